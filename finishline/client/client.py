"""Connect to a server, with one method for each request of a program, and its data frames."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Self, TypeVar

import httpx2
from pydantic import BaseModel, PrivateAttr, ValidationError

from finishline.api.benchmarks import BenchmarkList, BenchmarkView
from finishline.api.boards import COLUMN_FIELDS, BoardRow, BoardView, flat
from finishline.api.comparisons import SubmissionComparison
from finishline.api.people import MeView, QuotaView
from finishline.api.submissions import (
    CurveView,
    RunExport,
    RunRecord,
    SubmissionList,
    SubmissionView,
)
from finishline.api.verifications import VerificationView
from finishline.client.errors import Unavailable
from finishline.client.files import Logs, Source, files_of_code, send_code, send_logs, upload_of
from finishline.client.sse import ServerEvent, follow_events
from finishline.client.transport import Retries, Transport, segment
from finishline.profiles import DEFAULT_URL, chosen_server

Model = TypeVar("Model", bound=BaseModel)
PageType = TypeVar("PageType", SubmissionList, RunExport)

LOG_LIMIT_BYTES = 1024**3
ENDED = ("done", "failed", "cancelled")


class Board(BoardView):
    """A page of a leaderboard. Iteration continues with the next pages, unless you chose one."""

    _next_page: Callable[[str], "Board"] | None = PrivateAttr(default=None)

    def __iter__(self) -> Iterator[BoardRow]:  # type: ignore[override]  # Not over its fields.
        page: Board = self
        while True:
            yield from page.entries
            if self._next_page is None or page.next_cursor is None:
                return
            page = self._next_page(page.next_cursor)

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each entry, by columns such as `system_name`."""
        return _frame(COLUMN_FIELDS, (flat(row.model_dump()) for row in self))


class Runs(Iterator[RunRecord]):
    """The runs of a benchmark, page by page."""

    def __init__(self, runs: Iterator[RunRecord]) -> None:
        self._runs = runs

    def __next__(self) -> RunRecord:
        return next(self._runs)

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each run, by columns such as `system_name`."""
        return _frame(RunRecord.model_fields, (run.model_dump() for run in self))


def _frame(columns: Iterable[str], items: Iterable[dict[str, Any]]) -> Any:
    """Make a DataFrame. A table's fields are columns. Raises ImportError without pandas."""
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ImportError(
            "to_pandas needs pandas; install it with `pip install 'finishline-tta[pandas]'`."
        ) from error
    rows = list(items)
    if not rows:
        return pandas.DataFrame(columns=list(columns))
    return pandas.json_normalize(rows, sep="_")


class Client:
    """A connection to one server. Use it as a context manager, or close it.

    `url` and `token` come from FINISHLINE_URL and FINISHLINE_TOKEN by default, else from
    `finishline login`. You can read without a token. Requests that are safe to repeat are retried
    up to `retries` times if the server is down or asks to wait. Every method raises a
    FinishlineError.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retries: int = 4,
        pause: Callable[[float], None] = time.sleep,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._pause = pause
        server = chosen_server(url, token)
        self._transport = Transport(
            server.url or DEFAULT_URL,
            server.token,
            timeout=httpx2.Timeout(timeout_seconds, connect=5.0),
            retries=Retries(retries, pause),
            transport=transport,
        )
        self.url = self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def submit(
        self,
        source: Source,
        *,
        logs: Logs | None = None,
        hardware_class: str | None = None,
    ) -> SubmissionView:
        """Send logs or code and return the accepted submission.

        `source` is a folder with a submission.json or a training.toml, the path of such a JSON, the
        JSON as a mapping with its `logs`, or the files of code by name. Code is measured on workers
        of `hardware_class`, or of a class with its environment. You can send the same content
        again: it stays one submission.
        """
        code = files_of_code(source)
        if code is None:
            accepted, _ = send_logs(self._transport, upload_of(source, logs))
        else:
            accepted, _ = send_code(self._transport, code, hardware_class=hardware_class)
        return read_view(SubmissionView, accepted)

    def benchmarks(self) -> list[BenchmarkView]:
        """List the benchmarks of the server."""
        return self._get(BenchmarkList, "/benchmarks").benchmarks

    def benchmark(self, benchmark_id: str) -> BenchmarkView:
        """Get one benchmark."""
        return self._get(BenchmarkView, f"/benchmarks/{segment(benchmark_id)}")

    def board(self, benchmark_id: str, **filters: object) -> Board:
        """Get a benchmark's leaderboard: its first page, and on iteration all the others.

        With `limit`, `page` or `cursor` you get one page. The filters are the same as in the
        board's address: division, round, metric, status, q, sort, order, limit, page, cursor,
        clock, target, price, prices_on, hardware_class, framework, date_from, date_to, withdrawn,
        evidence, check, accelerator, vendor, size, ids, best.
        """
        path = f"/leaderboards/{segment(benchmark_id)}"
        board = self._get(Board, path, **filters)
        if not filters.keys().isdisjoint(("limit", "page", "cursor")):
            return board
        board._next_page = lambda cursor: self._get(Board, path, **filters, cursor=cursor)
        return board

    def submission(self, submission_id: str) -> SubmissionView:
        """Get a submission with its result, its runs and its verifications."""
        return self._get(SubmissionView, _path(submission_id))

    def submissions(
        self, *, benchmark: str | None = None, package: str | None = None, page_size: int = 100
    ) -> Iterator[SubmissionView]:
        """Yield every submission, newest first. `package` is a prefix of a code's SHA-256."""
        query = {"benchmark": benchmark, "package": package, "limit": page_size}
        for page in self._pages(SubmissionList, "/submissions", query):
            yield from page.submissions

    def runs(self, benchmark_id: str, *, page_size: int = 1000) -> Runs:
        """Get every run of a benchmark as a flat record, in order of arrival."""
        path = f"/benchmarks/{segment(benchmark_id)}/runs.json"
        pages = self._pages(RunExport, path, {"limit": page_size})
        return Runs(run for page in pages for run in page.runs)

    def curve(self, submission: SubmissionView | str, run: int) -> CurveView:
        """Get every evaluation of a run (counted from 0)."""
        return self._get(CurveView, f"{_path(submission)}/runs/{run}/curve")

    def log(self, submission: SubmissionView | str, run: int) -> bytes:
        """Get the raw log of a run (counted from 0), byte for byte as it was sent."""
        path = f"{_path(submission)}/runs/{run}/log"
        return self._transport.download(path, limit_bytes=LOG_LIMIT_BYTES)

    def compare(self, submissions: Sequence[SubmissionView | str]) -> SubmissionComparison:
        """Compare each pair of two to six submissions of a benchmark: who is faster, how surely."""
        ids = [item if isinstance(item, str) else item.id for item in submissions]
        return self._get(SubmissionComparison, "/compare", submissions=",".join(ids))

    def withdraw(self, submission: SubmissionView | str, *, reason: str) -> SubmissionView:
        """Withdraw a submission: it stays visible without a rank. Only its submitter may."""
        changed = self._transport.post(f"{_path(submission)}/withdrawal", {"reason": reason})
        return read_view(SubmissionView, changed)

    def verify(
        self,
        submission: SubmissionView | str,
        *,
        kind: str | None = None,
        reason: str | None = None,
        repeats: int | None = None,
    ) -> VerificationView:
        """Request the verification of a submission, or another kind that you name.

        An ablation trains each variant of a code submission's factors `repeats` times. The owner of
        a submission may request its first, on their quota, and an organiser any.
        """
        path = _path(submission) + "/verifications"
        body: dict[str, object] = {"reason": reason}
        if kind is not None:
            body["kind"] = kind
        if repeats is not None:
            body["repeats"] = repeats
        return read_view(VerificationView, self._transport.post(path, body))

    def verification(self, verification_id: str) -> VerificationView:
        """Get a verification: its plan, its attempts, its verdict with every reason."""
        return self._get(VerificationView, f"/verifications/{segment(verification_id)}")

    def proof(self, verification_id: str) -> bytes:
        """Get the signed evidence of a verdict, as `finishline proof` reads it."""
        path = f"/verifications/{segment(verification_id)}/proof"
        return self._transport.download(path, limit_bytes=LOG_LIMIT_BYTES)

    def cancel(self, verification_id: str) -> VerificationView:
        """Cancel a running or waiting verification. For organisers."""
        path = f"/verifications/{segment(verification_id)}/cancellation"
        return read_view(VerificationView, self._transport.post(path))

    def watch(self, verification_id: str) -> Iterator[ServerEvent]:
        """Yield the events of a verification up to `end`, and reconnect after the last one seen."""
        path = f"/verifications/{segment(verification_id)}/events"

        return follow_events(partial(self._transport.stream, path), pause=self._pause)

    def wait(
        self, verification_id: str, *, timeout_seconds: float | None = None, poll_seconds: float = 1
    ) -> VerificationView:
        """Wait for the end of a verification, and return it. Raises TimeoutError."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            verification = self.verification(verification_id)
            if verification.state in ENDED:
                return verification
            if deadline is not None and time.monotonic() + poll_seconds > deadline:
                raise TimeoutError(
                    f"Verification {verification_id} is still {verification.state}"
                    f" after {timeout_seconds:g} s."
                )
            self._pause(poll_seconds)

    def account(self) -> MeView:
        """Get your user name, and role and expiry of your token."""
        return self._get(MeView, "/me")

    def quota(self) -> QuotaView:
        """Get your quotas of submissions and replays, their use, and when there is room again."""
        return self._get(QuotaView, "/me/quota")

    def _get(self, kind: type[Model], path: str, **query: object) -> Model:
        return read_view(kind, self._transport.get(path, **query))

    def _pages(
        self, kind: type[PageType], path: str, query: Mapping[str, object]
    ) -> Iterator[PageType]:
        cursor: str | None = None
        while True:
            page = self._get(kind, path, **query, cursor=cursor)
            yield page
            cursor = getattr(page, "next_cursor", None)
            if cursor is None:
                return


def _path(submission: SubmissionView | str) -> str:
    name = submission if isinstance(submission, str) else submission.id
    return f"/submissions/{segment(name)}"


def read_view(kind: type[Model], document: object) -> Model:
    """Read a document as a value of this kind, also from a newer server. Raises Unavailable."""
    try:
        return kind.model_validate(document, extra="allow")
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise Unavailable(
            f"Unexpected response from the server: not a valid {kind.__name__} (field {place}: "
            f"{first['msg']}). Update the client or the server to the same version."
        ) from error
