"""The registry of hardware classes: groups of machines with comparable times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Row, Table, bindparam, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.accelerators import accelerators_of_cloud, is_same_kind
from finishline.rules.submissions.claim import NOTHING
from server.base.database import utc_now
from server.base.errors import ContentError
from server.base.models import HardwareClassRow, WorkerRow

# A faster machine under a class's name is as wrong as a slower one.
ROOF_TOLERANCE = 0.1
_CLASSES = cast(Table, HardwareClassRow.__table__)
_CLASS = select(_CLASSES).where(_CLASSES.c.name == bindparam("name"))


def list_classes(session: Session) -> list[HardwareClassRow]:
    """Every registered class, by name."""
    return list(session.scalars(select(HardwareClassRow).order_by(HardwareClassRow.name)))


def register_class(session: Session, worker: WorkerRow, *, origin: str) -> None:
    """Register a worker's class with the system it said hello with, unless it is registered.

    Raises ContentError if it is, and the worker is another machine.
    """
    row = session.get(HardwareClassRow, worker.hardware_class)
    if row is not None:
        refuse_misfit(row, worker.system)
        return
    system = worker.system
    session.add(
        HardwareClassRow(
            name=worker.hardware_class,
            accelerator=system["accelerator"],
            accelerator_count=system["accelerator_count"],
            processor=system["processor"],
            processor_count=system["processor_count"],
            roof=None,
            origin=origin,
            created_at=utc_now(),
        )
    )


def refuse_misfit(row: HardwareClassRow, system: Mapping[str, Any]) -> None:
    """Raise ContentError unless a worker's system is that of its hardware class.

    That is its accelerators, or where it has none, its number of processors.
    """
    for field in ("accelerator", "accelerator_count", "processor_count"):
        expected, found = getattr(row, field), system[field]
        if found != expected and not (field == "processor_count" and _may_have(row, found)):
            raise ContentError(
                f"system.{field}: {found!r}; hardware class {row.name} has {expected!r}. Give this "
                "worker the name of another class in FINISHLINE_HARDWARE_CLASS."
            )


def _may_have(row: HardwareClassRow | Row[Any], processors: int | None) -> bool:
    """Whether a machine of a class may have so many processors: any beside accelerators."""
    if row.accelerator_count or not processors or not row.processor_count:
        return True
    return processors == row.processor_count


@dataclass(frozen=True)
class Misfit:
    """A figure of a claim's system that is not its hardware class's."""

    field: str
    found: str
    expected: str


def misfit_of_claim(session: Session, system: Mapping[str, Any]) -> Misfit | None:
    """Find the first figure of a claim's system that contradicts its registered class.

    A claim without a count states no accelerator, so it may not name one in a class that has none.
    Names agree where one has all words of the other.
    """
    asked = {"name": system["hardware_class"]}
    row = session.connection().execute(_CLASS, asked).one_or_none()
    if row is None:
        return None
    count = system.get("accelerator_count") or 0
    if count != row.accelerator_count:
        return Misfit("accelerator_count", str(count), str(row.accelerator_count))
    processors = system.get("processor_count")
    if not _may_have(row, processors):
        return Misfit("processor_count", str(processors), str(row.processor_count))
    rented = accelerators_of_cloud(system.get("cloud"))
    if rented is not None and not row.accelerator_count:
        found = f"{system['cloud']['instance']} with {rented.words}"
        return Misfit("cloud.instance", found, "an instance without accelerators")
    name = (system.get("accelerator") or "").strip()
    if name.casefold() in NOTHING:
        return None
    if not row.accelerator_count:
        return Misfit("accelerator", name, "none")
    if row.accelerator and not is_same_kind(name, row.accelerator):
        return Misfit("accelerator", name, row.accelerator)
    return None


def roof_misfit(session: Session, worker: WorkerRow, gflops: float) -> str | None:
    """Say how a canary is off its class's roof; None within a tenth of it, or without a roof.

    The first canary of a confirmed worker is the roof of a class that has none.
    """
    row = session.get(HardwareClassRow, worker.hardware_class)
    if row is None or worker.confirmed_at is None:
        return None
    if row.roof is None and gflops > 0:
        row.roof = gflops
    if row.roof is None:
        return None
    if row.roof * (1 - ROOF_TOLERANCE) <= gflops <= row.roof * (1 + ROOF_TOLERANCE):
        return None
    ratio = gflops / row.roof
    side = "slower" if ratio < 1 else "faster"
    return (
        f"{100 * abs(ratio - 1):.1f} % {side} than hardware class {row.name} with its roof of "
        f"{row.roof:.4g} GFLOP/s, where {100 * ROOF_TOLERANCE:g} % is allowed: another machine"
    )
