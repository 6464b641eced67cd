"""The statements an application sends to its database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from server.base.database import Database


class Statement(str):
    """The text of a statement, with the parameters it was sent with."""

    parameters: Any

    def __new__(cls, text: str, parameters: Any) -> "Statement":
        """A statement that was sent."""
        made = super().__new__(cls, text)
        made.parameters = parameters
        return made


@contextmanager
def statements_of(
    database: Database, wanted: Callable[[str], bool] = bool
) -> Iterator[list[Statement]]:
    """The statements sent within a block, or those of them whose text is wanted.

    What begins a transaction is one of them.
    """
    sent: list[Statement] = []

    def note(_c: Any, _cursor: Any, text: str, parameters: Any, *_: Any) -> None:
        if wanted(text):
            sent.append(Statement(text, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
