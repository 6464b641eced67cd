"""How much log times scatter within pools, over all replays of a benchmark on a hardware class."""

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.measured_time import Spread, calibrated_spread, pooled_spread
from server.models import Pool, PoolRun


class Spreads:
    """The spread of each hardware class, until ten runs tell it that of the calibrated epochs."""

    def __init__(self, session: Session, benchmark: Benchmark) -> None:
        self._of_class = _of_classes(session, benchmark.benchmark_id)
        self._calibrated = calibrated_spread(benchmark)

    def of(self, hardware_class: str) -> Spread | None:
        """The spread of one run's log time on a class; None where nothing tells it."""
        return self._of_class.get(hardware_class) or self._calibrated


def _of_classes(session: Session, benchmark_id: str) -> dict[str, Spread]:
    statement = (
        select(Pool.hardware_class, Pool.id, PoolRun.seconds)
        .join(PoolRun, PoolRun.pool_id == Pool.id)
        .where(Pool.benchmark_id == benchmark_id, PoolRun.seconds.is_not(None))
    )
    pools: defaultdict[str, defaultdict[str, list[float]]]
    pools = defaultdict(lambda: defaultdict(list))
    for hardware_class, pool_id, seconds in session.execute(statement):
        if seconds is not None:
            pools[hardware_class][pool_id].append(seconds)
    found = {name: pooled_spread(those.values()) for name, those in pools.items()}
    return {name: spread for name, spread in found.items() if spread is not None}
