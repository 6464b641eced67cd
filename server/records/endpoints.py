"""The records of a benchmark."""

from fastapi import APIRouter

from server.benchmarks.queries import find_benchmark
from server.dependencies import PartsDep
from server.records.queries import list_records
from server.records.schemas import RecordList

router = APIRouter(tags=["leaderboards"])


@router.get("/benchmarks/{benchmark_id}/records")
def get_records(benchmark_id: str, parts: PartsDep) -> RecordList:
    """Who held the record when, division by division, and which lower times were no records.

    A record must beat its holder by more than chance: in a duel, or by Welch's one-sided test.
    """
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        return list_records(session, benchmark)
