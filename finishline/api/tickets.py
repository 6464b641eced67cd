"""Tickets: seeds drawn for a claim before its training."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from finishline.api.schema import NO_FLAG, Schema

EXAMPLE: dict[str, Any] = {
    "benchmark": "digits",
    "division": "closed",
    "settings": {"batch_size": 64},
    "hardware_class": "cpu-amd-ryzen-7-7840u-16-cores",
    "runs": 3,
}


class TicketCreate(Schema):
    """Training to draw seeds for.

    `division` defaults to the benchmark's first, `runs` to as many as the benchmark requires; up to
    twice as many may be requested. An omitted setting has the reference's value.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    benchmark: Annotated[str, Field(min_length=1, max_length=100)]
    division: Annotated[str, Field(min_length=1, max_length=20)] | None = None
    settings: Annotated[dict[str, float], Field(max_length=200)] = {}
    hardware_class: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    runs: Annotated[int, Field(ge=1, le=100), NO_FLAG] | None = None


class TicketView(Schema):
    """Seeds for one claim. This JSON is also the file that `finishline run --ticket` takes.

    `settings` are the reference's in full. A submission that names the ticket has each seed once:
    in a log, or in its list `unfinished`. `submission` is the one that spent it, null while it is
    open.
    """

    id: str
    benchmark: str
    benchmark_sha256: str
    division: str
    settings: dict[str, float]
    hardware_class: str
    seeds: list[int]
    created_at: datetime
    expires_at: datetime
    submission: str | None


class TicketList(Schema):
    """Your tickets, newest first, with those that are spent or expired."""

    tickets: list[TicketView]
