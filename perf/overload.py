"""Is everybody answered while one asks 64 times at once, and while a crowd asks too much?

First a server whose board has 1,500 rows with 5 runs of 40 evaluations, without rate limits. Over
64 connections one reader asks for the board at other targets, then one submitter sends dry runs of
236 kB of code, then of logs. Each asks again as soon as it is answered. Another reader asks for
usual pages meanwhile: each answer is 200, and 99 % come within a second.

Then a server with its limits. A crowd of 160 clients at two thousand addresses, and a fifth of the
time at a single one, asks again as soon as it is answered. Every answer is 2xx, or 429 or 503 with
Retry-After. Memory grows only by the rows of stored submissions. Within 2 s after the end
everything is answered again.
"""

import asyncio
import itertools
import os
import random
import statistics
import time
from collections.abc import Iterator

import httpx2

from perf.boards import fill_board
from perf.harness import Bars, percentiles, run
from perf.servers import (
    NO_BROKER,
    Answers,
    Server,
    Submissions,
    cpu_seconds,
    environment_of,
    form_request,
    get_request,
    keep_asking,
    load,
    make_tokens,
    running_database,
    running_server,
)
from server.base.database import Database
from tests.support.boards import rows_of
from tests.support.world import PACKAGE, Worker, World

AT_ONCE, RESULTS, EVALUATIONS = 64, 1500, 40
P99_SECONDS = 1.0
PAUSE_SECONDS = 0.02
PEOPLE = {"eve": "submitter", "walter": "worker", "olivia": "organiser"}
CROWD = 160
ADDRESSES = 2000
SUBMISSION_EVERY = 20
RECOVERY_SECONDS = 2.0
MOST_KILOBYTES = 10.0  # A row of the board, which is kept in memory.
LIMITS = NO_BROKER | {
    "FINISHLINE_LOG_LEVEL": "error",
    "FINISHLINE_RATE_LIMITS": "true",
    "FINISHLINE_RATE_WRITES": "6000/minute",
    "FINISHLINE_RATE_READS": "300/minute",
    # As in the image: else each thread keeps its own memory, and uploads' memory stays.
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}


def measure(
    bars: Bars, *, database: str = "sqlite", one_seconds: float = 15.0, seconds: int = 60
) -> None:
    """Measure a reader while one client asks at once, and a server with a crowd."""
    with running_database(database) as (url, folder):
        filled = Database(url)
        fill_board(filled, RESULTS, evaluations=EVALUATIONS)
        filled.close()
        tokens = make_tokens(url, PEOPLE)
        for what, requests in loads(tokens["eve"]).items():
            with running_server(environment_of(url, folder, **NO_BROKER)) as server:
                sign_on(server, tokens)
                hold_neighbour(bars, server, what, requests, seconds=one_seconds)
    with running_database("sqlite") as (url, folder):
        token, log = make_tokens(url, {"eve": "submitter"})["eve"], folder / "server.log"
        with running_server(environment_of(url, folder, **LIMITS), log=log) as server:
            hold_overload(bars, server, token, seconds)
        text = log.read_text()
        errors = text.count("unforeseen error") + text.count("Traceback")
        bars.hold("crowd: errors in the server's log", errors, at_most=0)
        if errors:
            bars.say(text[-1500:])


def sign_on(server: Server, tokens: dict[str, str]) -> None:
    """Sign on as a confirmed worker that trains code, so that the server takes code."""
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        world = World(client, "")
        world.secrets |= tokens
        worker = Worker(world)
        worker.sign_on()
        # An earlier server of this database may have confirmed it.
        world.request("PATCH", f"/workers/{worker.name}", by="olivia", json={"confirmed": True})


def loads(token: str) -> dict[str, Iterator[bytes]]:
    """Requests of one client, by name."""
    drawn = random.Random(7)
    targets = (f"/benchmarks/digits?target={drawn.uniform(50, 95):.6f}" for _ in itertools.count())
    return {
        "boards of other targets": (get_request(t, X_Forwarded_For="10.1.0.1") for t in targets),
        "dry runs of code": (code_request(token, number) for number in itertools.count()),
        "dry runs of logs": Submissions().of(token, dry_run=True),
    }


def code_request(token: str, number: int) -> bytes:
    """Make a dry run of legal code of 236 kB, which is new each time."""
    lines = "".join(f"x{k} = [{k}, {number}, 'a', (1, 2)]\n" for k in range(4000))
    more = lines[:118_000].rpartition("\n")[0] + "\n"
    texts = PACKAGE | {"more.py": more, "most.py": more}
    files = [("files", name, text.encode()) for name, text in texts.items()]
    return form_request("/api/v1/submissions?dry_run=true", token, files)


def hold_neighbour(
    bars: Bars, server: Server, what: str, requests: Iterator[bytes], *, seconds: float
) -> None:
    """Put one load on the server, and compare the other reader's answers with the bars."""
    pages = usual_pages(server)
    # A process reads templates and makes tables for its first answers.
    load([server], [[*pages, next(requests)]])
    before, began = cpu_seconds(server), time.perf_counter()
    usual, many = asyncio.run(ask_beside(server, requests, pages, seconds=seconds))
    used = (cpu_seconds(server) - before) / (time.perf_counter() - began)
    bars.say(f"{what}: answered {dict(many.statuses)}; server {used:.2f} processors")
    p50, p99 = percentiles(usual.seconds)
    bars.say(f"beside {what}: p50 {p50:.3f} s; load of the machine {os.getloadavg()[0]:.1f}")
    bars.hold(f"answers beside {what} that are not 200", usual.other_than(200), at_most=0)
    bars.hold(f"answers beside {what}, p99 of {len(usual.seconds)}", p99, " s", at_most=P99_SECONDS)


async def ask_beside(
    server: Server, requests: Iterator[bytes], pages: list[bytes], *, seconds: float
) -> tuple[Answers, Answers]:
    """One client over many connections, and another over one. The other's answers come first."""
    usual, many = Answers(), Answers()
    asking = [keep_asking(server, requests, many) for _ in range(AT_ONCE)]
    tasks = [asyncio.create_task(each) for each in asking]
    await asyncio.sleep(1.0)
    other = keep_asking(server, itertools.cycle(pages), usual, pause=PAUSE_SECONDS)
    tasks.append(asyncio.create_task(other))
    await asyncio.sleep(seconds - 1.0)
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise SystemExit(f"a connection ended by itself: {ended!r}")
    return usual, many


def usual_pages(server: Server) -> list[bytes]:
    """List pages that people read: boards, a submission, lists, as pages and as documents."""
    entry = rows_of(server.get("/api/v1/leaderboards/digits"))[0]["submission_id"]
    paths = [
        "/", "/benchmarks/digits", "/api/v1/leaderboards/digits", "/api/v1/submissions?limit=20",
        f"/submissions/{entry}", f"/api/v1/submissions/{entry}", "/api/v1/queue",
        "/benchmarks/digits?division=open",
    ]  # fmt: skip
    return [get_request(path, X_Forwarded_For="10.2.0.1") for path in paths]


def requests_of(submission: str, token: str, submissions: Submissions) -> Iterator[bytes]:
    """Yield uncached reads, from many addresses and one, with a submission now and then."""
    drawn = random.Random(7)
    paths = [
        f"/api/v1/submissions/{submission}", "/api/v1/submissions?limit=5", "/workers",
        f"/submissions/{submission}", "/api/v1/verifications?limit=5", "/api/v1/queue",
        f"/api/v1/submissions/{submission}/runs/0/curve",
    ]  # fmt: skip
    while True:
        number = 0 if drawn.random() < 0.2 else drawn.randrange(1, ADDRESSES)
        origin = f"10.0.{number // 250}.{1 + number % 250}"
        if drawn.randrange(SUBMISSION_EVERY) == 0:
            yield next(submissions.of(token, X_Forwarded_For=origin))
        else:
            yield get_request(drawn.choice(paths), X_Forwarded_For=origin)


def hold_overload(bars: Bars, server: Server, token: str, seconds: int) -> None:
    """Let a crowd ask, and compare answers, memory and recovery with their bars."""
    submissions = Submissions()  # Shared by all threads, so that each log is new.
    load([server], [itertools.islice(submissions.of(token), 1)])
    (stored,) = server.get("/api/v1/submissions")["submissions"]
    requests = requests_of(stored["id"], token, submissions)
    answers, memory, stored_by_then = Answers(), list[float](), list[int]()
    for _ in range(seconds):
        load([server], [requests] * CROWD, 1.0, answers)
        memory.append(server.process.memory_info().rss)
        stored_by_then.append(answers.statuses[201])
    recovered = recovery_seconds(server, requests)
    bars.say(f"a crowd: {dict(answers.statuses)}; faults {dict(answers.faults)}")
    bars.hold("crowd: answers neither good nor a refusal", answers.faults.total(), at_most=0)
    for status in (429, 503):
        bars.hold(f"crowd: answers {status}", answers.statuses[status], at_least=1)
    warm = seconds // 4
    stored_since = stored_by_then[-1] - stored_by_then[warm]
    slope = statistics.linear_regression(range(len(memory[warm:])), memory[warm:]).slope
    growth = slope * (len(memory[warm:]) - 1) / stored_since / 1e3  # By the trend.
    bars.say(f"a crowd: {memory[-1] / 1e6:.0f} MB, {stored_since} submissions stored once warm")
    bars.hold("crowd: memory for each stored submission", growth, " kB", at_most=MOST_KILOBYTES)
    bars.hold("crowd: recovered after", recovered, " s", at_most=RECOVERY_SECONDS)


def recovery_seconds(server: Server, requests: Iterator[bytes]) -> float:
    """Return the seconds until four clients get fast answers without a 503. Inf after 30."""
    began = time.perf_counter()
    while time.perf_counter() < began + 30.0:
        answers = load([server], [requests] * 4, 0.25)
        if not answers.statuses[503] + answers.faults.total() and max(answers.seconds) < 1.0:
            return time.perf_counter() - began
    return float("inf")


if __name__ == "__main__":
    run(measure)
