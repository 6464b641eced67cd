"""Parquet files, where pyarrow is installed: rows by name, with a type for each column."""

import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from datetime import date, datetime
from importlib.util import find_spec
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ARROW = {str: "string", int: "int64", float: "float64", bool: "bool_", date: "date32"}
Rows = list[dict[str, Any]]


def can_write_parquet() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


@contextmanager
def parquet_file(target: Any, columns: Mapping[str, Any]) -> Iterator[Callable[[Rows], None]]:
    """Write rows to a file: each call adds a group of them. The types are those of Python."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema([(name, _arrow_type(kind)) for name, kind in columns.items()])
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        yield lambda rows: writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema=schema))


def types_of(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """The types of a model's fields."""
    return {name: field.annotation for name, field in fields.items()}


def _arrow_type(annotation: Any) -> Any:
    """The Arrow type of a field's annotation; every field may be absent."""
    import pyarrow

    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        (inner,) = (item for item in get_args(annotation) if item is not type(None))
        return _arrow_type(inner)
    if origin in (list, tuple):
        return pyarrow.list_(_arrow_type(get_args(annotation)[0]))
    if origin is dict:
        return pyarrow.map_(*map(_arrow_type, get_args(annotation)))
    if origin is Literal:
        return _arrow_type(type(get_args(annotation)[0]))
    if annotation is datetime:
        return pyarrow.timestamp("us", tz="UTC")
    if is_dataclass(annotation) or issubclass(annotation, BaseModel):
        fields = get_type_hints(annotation)
        if issubclass(annotation, BaseModel):
            fields = types_of(annotation.model_fields)
        return pyarrow.struct([(name, _arrow_type(kind)) for name, kind in fields.items()])
    return getattr(pyarrow, ARROW[annotation])()
