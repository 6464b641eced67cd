"""The statements an application sends to its database."""

from contextlib import contextmanager
from typing import Any

from sqlalchemy import event


class Statement(str):
    parameters: Any

    def __new__(cls, text, parameters):
        made = super().__new__(cls, text)
        made.parameters = parameters
        return made


@contextmanager
def statements_of(database, wanted=bool):
    """The statements sent within a block, or those of them whose text is wanted.

    What begins a transaction is one of them.
    """
    sent = []

    def note(_c, _cursor, text, parameters, *_):
        if wanted(text):
            sent.append(Statement(text, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
