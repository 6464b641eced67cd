"""Base class of every table, and its column types."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, MetaData
from sqlalchemy.orm import DeclarativeBase

from server.base.database import UtcDateTime


class Base(DeclarativeBase):
    """Names every constraint, so that migrations can name it too."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  SQLAlchemy reads this class attribute
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }
