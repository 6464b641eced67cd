"""What counts submissions or what waits looks at none of them: it reads an index alone."""

from collections.abc import Callable
from typing import Any

from server.base.database import Database
from server.benchmarks.queries import count_submissions
from server.boards.records import count_tries
from server.operations.figures import read_figures
from server.verifications.work import waiting_mark
from tests.support.statements import statements_of


def test_counting_is_by_indexes_alone(
    submit: Callable[..., Any], digits_submission: Any, database: Database
) -> None:
    def counts(text: str) -> bool:
        counts_submissions = "count(" in text and "FROM submissions" in text
        return counts_submissions or "max(attempts.asked_at)" in text

    submission = submit(digits_submission).json()["id"]
    with statements_of(database, counts) as sent:
        read_figures(database, alive_seconds=60.0)
        with database.read() as session:
            assert count_submissions(session, ["digits"])["digits"].train == 1
            assert count_tries(session, "digits", "closed", [submission]) == {submission: 1}
            assert waiting_mark(session).count == 0

    assert len(sent) == 4
    with database.engine.connect() as connection:
        for each in sent:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", each.parameters).all()
            steps = [str(row[3]) for row in plan if "USING" in row[3] and "TEMP" not in row[3]]
            # Each of the submissions counted may have a published result, found by its key.
            (step,) = [one for one in steps if "published_results" not in one]
            assert "USING COVERING INDEX" in step, step
            # A scrape counts the submissions of all benchmarks, at most once in five seconds.
            assert step.startswith("SEARCH") or "GROUP BY submissions.kind" in str(each), step
