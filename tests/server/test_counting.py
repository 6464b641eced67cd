"""What counts submissions or what waits looks at none of them: it reads an index alone."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from server.benchmarks.queries import count_submissions
from server.database import Database
from server.observability.figures import read_figures
from server.records.tries import count_tries
from server.workers.work import waiting_mark


def test_counting_is_by_indexes_alone(
    submit: Callable[..., Any], digits_submission: Any, database: Database
) -> None:
    sent: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        counts_submissions = "count(" in statement and "FROM submissions" in statement
        if counts_submissions or "max(attempts.asked_at)" in statement:
            sent.append((statement, parameters))

    submission = submit(digits_submission).json()["id"]
    event.listen(database.engine, "before_cursor_execute", note)
    try:
        read_figures(database, alive_seconds=60.0)
        with database.read() as session:
            assert count_submissions(session, ["digits"])["digits"].train == 1
            assert count_tries(session, "digits", "closed", [submission]) == {submission: 1}
            assert waiting_mark(session).count == 0
    finally:
        event.remove(database.engine, "before_cursor_execute", note)

    assert len(sent) == 4
    with database.engine.connect() as connection:
        for statement, parameters in sent:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            (step,) = [str(row[3]) for row in plan if "USING" in row[3] and "TEMP" not in row[3]]
            assert step.startswith("SEARCH"), step
            assert "USING COVERING INDEX" in step, step
