"""Benchmarks: definitions, targets, records."""

from pydantic import BaseModel


class TargetView(BaseModel):
    """Quality to reach, in the unit of its source; `also` has further targets to reach with it."""

    metric: str
    value: float
    unit: str
    direction: str
    also: list["TargetView"] = []
