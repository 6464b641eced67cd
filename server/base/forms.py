"""Request bodies and multipart forms: read a form, its files by name, and its texts."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from finishline.api.schema import Schema
from finishline.rules.table import read_day
from server.base.errors import ContentError, HttpError, problem

MAX_TEXT_PART_BYTES = 256 * 1024
SUBMISSION = (
    "A submission has either parts 'files', training.toml among them, or one part 'submission', a "
    "JSON, and parts 'logs'"
)
T = TypeVar("T")


class Body(Schema):
    """The body or the query of a request. An unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


def example(**fields: Any) -> ConfigDict:
    """Give the description of a body this example, in which texts may be dates."""
    return ConfigDict(strict=False, json_schema_extra={"examples": [fields]})


def _refuse_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


# Refuses true as a whole number: pydantic takes it for 1. Put it after the limits, because before
# them it hides them from the API's document.
NO_FLAG = BeforeValidator(_refuse_flag)


def _sentence(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise PydanticCustomError("no_reason", "expected a sentence")
    return text.strip()


Sentence = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_sentence)]
# A date of a form or query, which browsers send empty if it is left so.
DayField = Annotated[
    date | None,
    BeforeValidator(lambda value: None if value in (None, "") else read_day(value)),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"const": ""}, {"type": "null"}]}
    ),
]


def multipart_body(parts: Mapping[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """Describe for OpenAPI a multipart form of exactly these parts."""
    schema = {
        "type": "object",
        "required": list(required),
        "properties": dict(parts),
        "additionalProperties": False,
    }
    content = {"multipart/form-data": {"schema": schema, **more}}
    return {"requestBody": {"required": True, "content": content}}


def text_part(description: str, **more: Any) -> dict[str, Any]:
    """Describe a part of a form that is a text."""
    return {"type": "string", **more, "description": description}


def files_part(description: str) -> dict[str, Any]:
    """Describe the part `files` of a form: at least one file."""
    one = {"type": "string", "format": "binary"}
    return {"type": "array", "minItems": 1, "items": one, "description": description}


async def with_form(
    request: Request,
    use: Callable[[FormData], T],
    *,
    max_files: int,
    parts: str = SUBMISSION,
) -> T:
    """Call `use` in a thread with a multipart form, then close its files. Raises HttpError."""
    content_type = request.headers.get("content-type", "")
    if not content_type.startswith("multipart/form-data"):
        raise HttpError(415, f"{parts}; send it as multipart/form-data.")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HttpError(415, "Compressed requests are not read; send the files as they are.")
    try:
        form = await request.form(
            max_files=max_files, max_fields=10, max_part_size=MAX_TEXT_PART_BYTES
        )
    except HTTPException as error:
        is_of_form = error.status_code == 400  # Others come from limits on requests.
        if is_of_form and ("Too many" in error.detail or "maximum size" in error.detail):
            most = f"{parts}, together at most {max_files} files."
            raise HttpError(413, f"{error.detail} {most}") from error
        raise
    try:
        return await run_in_threadpool(use, form)
    finally:
        await form.close()


def read_files(
    form: FormData, *, fields: Sequence[str], most_bytes: int, expected: str
) -> dict[str, bytes]:
    """Read the parts `files` of a form, just past `most_bytes` in all. Raises ContentError."""
    for name in form:
        if name not in fields:
            raise refuse_part("unknown part", name, " or ".join(fields))
    files: dict[str, bytes] = {}
    left = most_bytes
    for part in form.getlist("files"):
        if isinstance(part, str):
            raise refuse_part("a text without a file name", "files", "a file")
        name = part.filename or ""
        if name in files:
            raise refuse_part(f"{name!r} was sent twice", "files", "each file once", file=name)
        files[name] = part.file.read(max(left, 0) + 1)
        left -= len(files[name])
    if not files:
        raise refuse_part("no file", "files", expected)
    return files


def read_text(form: FormData, name: str, *, expected: str) -> str | None:
    """Read a text of a form, or None if absent or empty. Raises ContentError for a file."""
    value = form.get(name) or None
    if value is not None and not isinstance(value, str):
        raise refuse_part("a file", name, expected)
    return value


def refuse_part(
    message: str, field: str, expected: str, *, file: str | None = None
) -> ContentError:
    """Make the error for a part of a form."""
    problems = [problem(field, message, expected, file=file)]
    return ContentError(f"Part {field!r}: {message}; expected {expected}.", problems=problems)
