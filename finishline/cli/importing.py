"""Handing the submissions of an archive to a server, several at a time; a bad one stops none."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import httpx2
import orjson

from finishline.cli.archive_files import parts_of
from finishline.cli.client import ServerClient
from finishline.cli.errors import CliError, ExitCode, Problem
from finishline.cli.processes import Interrupts
from finishline.client.errors import NoAnswer
from finishline.rules.archive.files import Archive
from finishline.rules.archive.import_plan import Unsent, of_severity
from finishline.rules.archive.parcels import Parcel, key_of
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs.text import MAX_FILE_BYTES
from finishline.rules.submissions.submission import score_submission

State = Literal["imported", "already_there", "refused", "failed", "skipped", "to_import"]
IN_FLIGHT = 4
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
# A server scores an upload before it responds.
TIMEOUT = httpx2.Timeout(120.0, connect=5.0)
# Interval of checks for an interrupt.
POLL_SECONDS = 0.1
LEFT = "interrupted before the server responded; it may be stored"
# These say that nothing at all will be taken, so the others need not be tried.
FINAL = (ExitCode.NOT_ALLOWED, ExitCode.NOT_FOUND)


@dataclass(frozen=True)
class Outcome:
    """Outcome of one submission; `reason` says why where it is not on the server.

    `warnings` are the oddities of its files that break no rule.
    """

    path: str
    state: State
    runs: int = 0
    submission_id: str | None = None
    eligible: bool | None = None
    reason: str | None = None
    problems: Sequence[Problem] = field(default=())
    claim: Mapping[str, Any] | None = None
    warnings: Sequence[Mapping[str, Any]] = ()

    def document(self) -> dict[str, Any]:
        """The outcome as JSON, without fields that do not apply."""
        table = asdict(self) | {"problems": [asdict(problem) for problem in self.problems]}
        table.pop("state")
        return {name: value for name, value in table.items() if value not in (None, [], ())}


def send_all(
    planned: Iterable[Parcel | Unsent],
    send: Callable[[Parcel], Outcome],
    interrupts: Interrupts,
) -> Iterator[Outcome]:
    """Send each submission and yield its outcome; at most IN_FLIGHT are being sent at a time.

    Ends early when interrupted: nothing else is begun, and requests in flight are awaited unless
    the person leaves. Raises CliError if the server takes nothing at all, after every outcome.
    """
    refusals: list[CliError] = []

    def attempt(parcel: Parcel) -> Outcome | None:
        """The outcome of one; None if it is not begun."""
        if refusals or interrupts.stopping.is_set():
            return None
        try:
            return send(parcel)
        except CliError as error:
            refusals.append(error)
            return Outcome(parcel.path, "failed", len(parcel.logs), reason=error.message)

    pool = ThreadPoolExecutor(IN_FLIGHT)
    sending: deque[tuple[Parcel, Future[Outcome | None]]] = deque()
    try:
        for each in planned:
            if refusals or interrupts.stopping.is_set():
                break
            if isinstance(each, Unsent):
                state: State = "refused" if each.problems else "skipped"
                yield Outcome(each.path, state, reason=each.reason, problems=_told(each.problems))
                continue
            sending.append((each, pool.submit(attempt, each)))
            if len(sending) > 2 * IN_FLIGHT:
                yield from _settled(*sending.popleft(), interrupts)
        while sending:
            yield from _settled(*sending.popleft(), interrupts)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if refusals:
        raise refusals[0]


def _settled(
    parcel: Parcel, future: "Future[Outcome | None]", interrupts: Interrupts
) -> Iterator[Outcome]:
    """The outcome of one; none if it was never begun."""
    while not wait([future], timeout=POLL_SECONDS).done:
        if interrupts.leaving:
            if not future.cancel():
                yield Outcome(parcel.path, "failed", len(parcel.logs), reason=LEFT)
            return
    outcome = None if future.cancelled() else future.result()
    if outcome is not None:
        yield replace(outcome, warnings=of_severity(parcel.problems, "warning"))


def describe(parcel: Parcel, archive: Archive, benchmarks: Mapping[str, Benchmark]) -> Outcome:
    """Outcome of a dry run: the upload that would be sent, or why a server would refuse it."""
    try:
        claim = parcel.claim_json(archive)
        logs = {file.name: archive.small(file, limit=MAX_FILE_BYTES) for file in parcel.logs}
        scored = score_submission(
            claim,
            logs,
            benchmarks,
            file=parcel.claim_name,
            benchmark_id=parcel.benchmark_id,
            archive=True,
            with_interval=False,
        )
    except RuleError as error:
        problems = [_problem(each) for each in error.problems]
        return _refused(parcel, error.problems[0].message, problems)
    shown = parcel.fields | {"submission": orjson.loads(claim.removeprefix(b"\xef\xbb\xbf"))}
    eligible = scored.result.eligible
    return Outcome(parcel.path, "to_import", len(parcel.logs), eligible=eligible, claim=shown)


class Sender:
    """Sends submissions to one server; safe to use from several threads."""

    def __init__(
        self,
        server: ServerClient,
        archive: Archive,
        stopping: threading.Event,
        *,
        commit: str | None = None,
    ) -> None:
        self._server = server
        self._archive = archive
        # Not part of the idempotency key: a later import may name the commit of stored submissions.
        self._source = {} if commit is None else {"source_commit": commit}
        self._stopping = stopping
        self._unanswered = 0

    def send(self, parcel: Parcel) -> Outcome:
        """Send a submission. Raises CliError only if no other will be taken either."""
        try:
            return self._send(parcel)
        except CliError as error:
            if error.exit_code in FINAL:
                raise
            if error.exit_code == ExitCode.SERVER:
                return Outcome(parcel.path, "failed", len(parcel.logs), reason=error.message)
            return _refused(parcel, error.message, error.problems)
        except RuleError as error:
            return _refused(parcel, "It cannot be read.", [_problem(error)])
        except Exception as error:  # noqa: BLE001 - a fault of ours must not stop the others
            reason = f"{type(error).__name__}: {error}"
            return Outcome(parcel.path, "failed", len(parcel.logs), reason=reason)

    def _send(self, parcel: Parcel) -> Outcome:
        claim_json = parcel.claim_json(self._archive)
        key = key_of(parcel, claim_json, self._archive)
        view, repeated = self._patiently(lambda: self._post(parcel, claim_json, key))
        return Outcome(
            parcel.path,
            "already_there" if repeated else "imported",
            runs=len(parcel.logs),
            submission_id=view.get("id"),
            eligible=(view.get("result") or {}).get("eligible"),
        )

    def _post(self, parcel: Parcel, claim_json: bytes, key: str) -> tuple[dict[str, Any], bool]:
        with ExitStack() as opened:
            return self._server.post_form(
                "/submissions",
                files=parts_of(parcel, claim_json, opened),
                fields=parcel.fields | self._source,
                key=key,
            )

    def _patiently(
        self, post: Callable[[], tuple[dict[str, Any], bool]]
    ) -> tuple[dict[str, Any], bool]:
        """Ask again after a while if the server does not answer, is busy or fails.

        Once it has left several submissions unanswered each of the others is tried only once, and
        none again when the import is stopping.
        """
        waits = RETRY_SECONDS if self._unanswered < IN_FLIGHT else ()
        for pause in waits:
            try:
                return self._counted(post)
            except CliError as error:
                if error.exit_code != ExitCode.SERVER:
                    raise
                if self._stopping.wait(pause):
                    raise
        return self._counted(post, last=True)

    def _counted(
        self, post: Callable[[], tuple[dict[str, Any], bool]], *, last: bool = False
    ) -> tuple[dict[str, Any], bool]:
        try:
            answer = post()
        except CliError as error:
            silent = isinstance(error.__cause__, NoAnswer)
            self._unanswered = self._unanswered + last if silent else 0
            raise
        self._unanswered = 0
        return answer


def _refused(parcel: Parcel, reason: str, problems: Iterable[Problem]) -> Outcome:
    """The server's problems, with paths for names, then other faults that our own reading found."""
    paths = parcel.paths
    given = [*problems] or [Problem(message=reason, file=parcel.path)]
    listed = [replace(each, file=paths.get(each.file or "", each.file)) for each in given]
    said = {(each.file, each.line, each.field) for each in listed}
    ours = _told(of_severity(parcel.problems, "error"))
    listed += [each for each in ours if (each.file, each.line, each.field) not in said]
    return Outcome(parcel.path, "refused", len(parcel.logs), reason=reason, problems=listed)


def _problem(error: RuleError) -> Problem:
    return Problem(
        message=error.message,
        file=error.file,
        line=error.line,
        field=error.field,
        expected=error.expected,
    )


def _told(problems: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """The problems of a record as those of a command."""
    names = ("message", "file", "line", "field", "expected")
    return [Problem(**{name: problem[name] for name in names}) for problem in problems]
