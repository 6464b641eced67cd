"""Build dataclasses from untrusted plain tables, checking every field."""

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from finishline.rules.errors import RuleError

_Kind = TypeVar("_Kind")


def read_plain(kind: type[_Kind], value: object, *, path: str) -> _Kind:
    """Read a dataclass of plain values from the table it was written to.

    Whole numbers pass where a float is expected. Raises RuleError with the dotted field and the
    expectation: also for a field that the class does not have, and for tables nested too deeply.
    """
    try:
        return cast(_Kind, _read(kind, value, path))
    except RecursionError as error:
        raise RuleError("nested too deeply", field=path or None, expected="fewer levels") from error


def _read(kind: Any, value: object, path: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _read_optional(kind, value, path)
    if origin is Literal:
        if value not in get_args(kind):
            raise _wrong(value, path, " or ".join(map(str, get_args(kind))))
        return value
    if origin in (list, tuple):
        items = _list(value, path)
        read = [_read(get_args(kind)[0], item, f"{path}[{i}]") for i, item in enumerate(items)]
        return tuple(read) if origin is tuple else read
    if origin is not None:
        table = _table(value, path)
        return {name: _read(get_args(kind)[1], item, f"{path}.{name}") for name, item in table}
    return _read_dataclass(kind, value, path) if is_dataclass(kind) else _scalar(kind, value, path)


def _read_optional(kind: Any, value: object, path: str) -> Any:
    if value is None and type(None) in get_args(kind):
        return None
    (inner,) = (item for item in get_args(kind) if item is not type(None))
    return _read(inner, value, path)


def _read_dataclass(kind: Any, value: object, path: str) -> Any:
    table = dict(_table(value, path))
    hints = get_type_hints(kind)
    read = {}
    for item in fields(kind):
        if item.name in table:
            place = f"{path}.{item.name}" if path else item.name
            read[item.name] = _read(hints[item.name], table.pop(item.name), place)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise RuleError("missing", field=f"{path}.{item.name}".lstrip("."), expected="a value")
    if table:
        unknown = f"{path}.{min(table)}".lstrip(".")
        raise RuleError("unknown field", field=unknown, expected="no such field")
    return kind(**read)


def _scalar(kind: Any, value: object, path: str) -> Any:
    allowed = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(value, path, kind.__name__)
    if kind is not float:
        return value
    try:
        number = float(cast(float, value))
    except OverflowError as error:
        raise _wrong(value, path, "a finite number") from error
    if not math.isfinite(number):
        raise _wrong(value, path, "a finite number")
    return number


def _table(value: object, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise _wrong(value, path, "a table")
    return list(value.items())


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, path, "a list")
    return value


def _wrong(value: object, path: str, expected: str) -> RuleError:
    return RuleError(f"got {repr(value)[:60]}", field=path or None, expected=expected)
