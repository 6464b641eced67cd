"""Bodies of requests, and multipart forms: read one, its files by their names, and its texts."""

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
    """The body or the query of a request, in which an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


def example(**fields: Any) -> ConfigDict:
    """The settings of a body whose description has this example. Texts may stand for dates."""
    return ConfigDict(strict=False, json_schema_extra={"examples": [fields]})


def _refuse_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


# For a whole number of a request: pydantic takes true for 1. It stands after the limits, which
# would be missing from the API's document.
NO_FLAG = BeforeValidator(_refuse_flag)


def _sentence(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise PydanticCustomError("no_reason", "expected a sentence")
    return text.strip()


Sentence = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_sentence)]
# The field of a form or of a query string, which is sent empty where it is left so.
DayField = Annotated[
    date | None,
    BeforeValidator(lambda value: None if value in (None, "") else read_day(value)),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"const": ""}, {"type": "null"}]}
    ),
]


def multipart_body(parts: Mapping[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """OpenAPI's words for a multipart form of these parts alone, with those required."""
    schema = {
        "type": "object",
        "required": list(required),
        "properties": dict(parts),
        "additionalProperties": False,
    }
    content = {"multipart/form-data": {"schema": schema, **more}}
    return {"requestBody": {"required": True, "content": content}}


def files_part(description: str) -> dict[str, Any]:
    """The part `files` of such a form: one file at least."""
    one = {"type": "string", "format": "binary"}
    return {"type": "array", "minItems": 1, "items": one, "description": description}


async def with_form(
    request: Request,
    use: Callable[[FormData], T],
    *,
    max_files: int,
    parts: str = SUBMISSION,
) -> T:
    """Result of `use`, called in a thread with a multipart form, whose files are closed after it.

    `parts` is a sentence that names the parts. Raises HttpError.
    """
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
        is_of_form = error.status_code == 400  # Another one is of a limit on requests.
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
    """Read the parts `files` of a form by their names.

    Of more than `most_bytes` together little more is read: the rules refuse them. Raises
    ContentError naming part and expectation.
    """
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
    """Read a text of a form. None where it is absent or empty. Raises ContentError for a file."""
    value = form.get(name) or None
    if value is not None and not isinstance(value, str):
        raise refuse_part("a file", name, expected)
    return value


def refuse_part(
    message: str, field: str, expected: str, *, file: str | None = None
) -> ContentError:
    """The error for a part of a form."""
    problems = [problem(field, message, expected, file=file)]
    return ContentError(f"Part {field!r}: {message}; expected {expected}.", problems=problems)
