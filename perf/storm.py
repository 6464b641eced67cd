"""Nothing is lost at twice the load while PostgreSQL and Redis die: `python -m perf.storm`.

Starts PostgreSQL, Redis and two server processes as perf/fleet.py does, with fifty simulated
workers at work. First the capacity of the machine beside them: 16 clients that ask again as soon as
they are answered. Then twice that rate for fifteen minutes (`--minutes`, `--factor`): boards, pages
and lists, and submissions of MLPerf's form, of DAWNBench's and packages, each sent again under its
key until it is taken. Beside it people follow verifications live, a webhook is told of each
submission, and an administrator exports everything again and again. Every 60 to 90 s PostgreSQL,
Redis or both are killed (kill -9) and started again two seconds later.

Exit code 1 unless every answer is 2xx, or 429 or 503 with Retry-After, every submission that was
taken is stored once and told, every verification ends once, no log has a traceback, and the
servers' memory stays.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from sqlalchemy import select

from finishline.rules.verification.messages import BoxWord
from perf.fleet import Fleet, ask_evenly, grow, installed, load
from perf.fleet_faults import kill_and_restart, settle
from perf.harness import CHECKOUT, Bars
from perf.hellos import SYSTEM
from perf.overload import Load, claim_and_logs, mixed, post_of, watch_memory
from perf.servers import environment_of, make_tokens
from server.base.database import utc_now
from server.base.models import Submission, WorkerRow
from tests.chaos.packages import digits_package
from tests.support.processes import asking

# So many verifications are asked for as half of the workers could make.
WORKERS, ASKED_FOR = 50, 25
SUBMITTERS, FOLLOWERS, CLIENTS = 4, 5, 16
WRITE_SHARE, CAPACITY_SECONDS = 0.02, 10.0
CASES = (("postgresql",), ("redis",), ("postgresql", "redis"))
CALM_SECONDS = (60.0, 90.0)
EXPORT_EVERY_SECONDS, SETTLED_SECONDS = 60.0, 180.0
MOST_GROWTH = 0.10
KEY = re.compile(rb"\r\nidempotency-key: storm-(\d+)", re.IGNORECASE)
PATHS = (
    "/api/v1/leaderboards/digits?division=closed", "/benchmarks/digits", "/", "/workers",
    "/api/v1/submissions?limit=5", "/api/v1/verifications?limit=5", "/api/v1/queue",
)  # fmt: skip
CACHED = re.compile(rb"GET (/api/v1/leaderboards|/benchmarks|/ )")
DEFINITIONS = [CHECKOUT / "benchmarks" / f"{name}.toml" for name in ("digits", "cifar10")]
SETTINGS = {
    "FINISHLINE_RATE_LIMITS": "true",
    "FINISHLINE_RATE_WRITES": "6000/minute",
    "FINISHLINE_RATE_READS": "300/minute",
    "FINISHLINE_QUOTA_GPU_SECONDS_PER_MONTH": "unlimited",
    "FINISHLINE_WEBHOOK_PRIVATE_ADDRESSES": "true",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
ENTRY = {
    "version": "v1.0", "authorEmail": "a@example.org", "framework": "torch 2.13.0",
    "model": "ResNet", "hardware": "one machine", "codeURL": "https://example.org",
    "timestamp": "2026-01-02", "costPerHour": 1.0,
}  # fmt: skip
BARS = Bars("storm")


@dataclass
class Posts:
    """Submissions in turn, each handed out again until it is answered for good."""

    tokens: list[str]
    made: int = 0
    under_way: dict[int, bytes] = field(default_factory=dict)
    again: deque[int] = field(default_factory=deque)
    accepted: set[int] = field(default_factory=set)
    refused: Counter[int] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            if self.again:
                yield self.under_way[self.again.popleft()]
                continue
            self.made += 1
            token = self.tokens[self.made % len(self.tokens)]
            self.under_way[self.made] = made = make_post(self.made, token)
            yield made

    def note(self, number: int, status: int | None) -> None:
        """Follow an answer."""
        if status is None or status == 429 or status >= 500:
            self.again.append(number)
            return
        self.under_way.pop(number, None)
        if status < 300:
            self.accepted.add(number)
        else:
            self.refused[status] += 1


def make_post(number: int, token: str) -> bytes:
    """Submission `number`, unlike any other's: of MLPerf's form, of DAWNBench's, or a package."""
    path, fields, files = "submissions", {}, claim_and_logs(number)
    if number % 3 == 1:
        rows = ["epoch\thours\ttop1Accuracy"]
        rows += [f"{n}\t{n * (1 + number * 1e-5) / 40}\t{90 + n}" for n in range(1, 6)]
        entry = json.dumps(ENTRY | {"author": f"author {number}"}).encode()
        files = [("submission", ("entry.json", entry))]
        files += [("logs", ("entry.tsv", "\n".join(rows).encode()))]
        fields = {"benchmark": "cifar10"}
    elif number % 6 == 2:
        path, files = "trainings", digits_package(number)
    return post_of(files, token=token, key=f"storm-{number}", path=path, fields=fields)


class Storm(Load):
    """A load that remembers when the database was read and a submission was taken."""

    def __init__(self, port: int, posts: Posts, requests: Iterator[bytes]) -> None:
        super().__init__(port, requests)
        self.good: dict[str, list[float]] = {"read": [], "submission": []}
        self._posts = posts

    def note(self, request: bytes, status: int | None) -> None:
        """Remember the moment, and whether a submission was taken."""
        key = KEY.search(request)
        if key is not None:
            self._posts.note(int(key[1]), status)
        if status is not None and status < 300 and not CACHED.match(request):
            self.good["read" if key is None else "submission"].append(time.perf_counter())


def main() -> int:
    """Measure, print, and say by the exit code whether every bar is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--factor", type=float, default=2.0)
    asked = parser.parse_args()
    copies = int(ASKED_FOR / 20 * asked.minutes * 60) + 10
    with (
        tempfile.TemporaryDirectory(prefix="finishline-perf-") as name,
        installed(
            Path(name), BARS, copies=copies, workers=WORKERS, beside=DEFINITIONS, settings=SETTINGS
        ) as fleet,
    ):
        asyncio.run(measure(Path(name), fleet, 60 * asked.minutes, asked.factor))
    return BARS.exit_code


async def measure(folder: Path, fleet: Fleet, seconds: float, factor: float) -> None:
    """Everything at once, then the sums."""
    people = {f"s-{number}": "submitter" for number in range(SUBMITTERS)}
    posts = Posts(list(make_tokens(address_of(fleet), people).values()))
    add_boxed_worker(fleet)
    told = await listen(fleet)
    await grow(fleet, WORKERS)
    requests = mixed(PATHS, iter(posts), random.Random(7), write_share=WRITE_SHARE)
    ports = fleet.crowd.ports
    tries = [Storm(port, posts, requests) for port in ports]
    share = CLIENTS // len(ports)
    rates = (each.closed(clients=share, seconds=CAPACITY_SECONDS) for each in tries)
    capacity = sum(await asyncio.gather(*rates))
    BARS.say(f"capacity {capacity:.0f} good answers/s over {CLIENTS} clients, {load()}")
    fleet.crowd.forget_figures()
    loads = [Storm(port, posts, requests) for port in ports]
    seen: dict[str, Counter[str]] = {"streams": Counter(), "exports": Counter()}
    until, cpu, began = time.perf_counter() + seconds, fleet.cpu_seconds(), time.perf_counter()
    memory, servers = [list[float](), list[float]()], fleet.servers()
    watching = [asyncio.create_task(watch_memory(*pair)) for pair in zip(servers, memory)]  # noqa: B905
    outages: list[tuple[str, float]] = []
    await asyncio.gather(
        hurt(fleet, until, outages),
        ask_evenly(fleet, ASKED_FOR, seconds),
        *(each.open(rate=factor * capacity / len(ports), seconds=seconds) for each in loads),
        *(follow(fleet, seen["streams"], until) for _ in range(FOLLOWERS)),
        export_again(folder, fleet, seen["exports"], until),
    )
    for task in watching:
        task.cancel()
    spent = (fleet.cpu_seconds()[0] - cpu[0]) / (time.perf_counter() - began)
    BARS.say(f"servers took {spent:.2f} cores, {load()}; {seen}")
    BARS.say(f"workers: unanswered {fleet.crowd.unanswered}, refused {fleet.crowd.refused}")
    tell(loads, outages, memory)
    await send_the_rest(posts, ports[0])
    await settle(fleet)
    await judge(fleet, posts, told)


def address_of(fleet: Fleet) -> str:
    """The address of its database."""
    return fleet.database.url.render_as_string(hide_password=False)


def add_boxed_worker(fleet: Fleet) -> None:
    """Add a worker that trained packages a moment ago: they wait for it for ever."""
    now, box = utc_now(), asdict(BoxWord("anyone", None, {"numpy-2.4": "0" * 64}))
    row = WorkerRow(name="boxed", hardware_class="cpu-boxed", state="idle", system=asdict(SYSTEM))
    row.box, row.first_seen_at, row.last_seen_at, row.confirmed_at = box, now, now, now
    with fleet.database.write() as session:
        session.add(row)


async def listen(fleet: Fleet) -> Counter[str]:
    """Make a webhook to this process; the submissions it is told of, each as often as it came."""
    told: Counter[str] = Counter()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: *(\d+)", head)
        content = orjson.loads(await reader.readexactly(int(length[1]) if length else 0))
        told[content["data"]["links"]["api"].rpartition("/")[2]] += 1
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    wanted = {"url": url, "kinds": ["submission.accepted"], "scope": "all"}
    address = f"http://127.0.0.1:{fleet.crowd.ports[0]}/api/v1/webhooks"
    headers = {"Authorization": f"Bearer {fleet.organiser}"}
    answer = await asyncio.to_thread(asking.post, address, json=wanted, headers=headers)
    assert answer.status_code == 201, answer.text
    return told


async def hurt(fleet: Fleet, until: float, outages: list[tuple[str, float]]) -> None:
    """Kill and start again in turn; note names, and the moments at which they were there again."""
    while time.perf_counter() + CALM_SECONDS[1] < until:
        await asyncio.sleep(random.uniform(*CALM_SECONDS))
        names = CASES[len(outages) % len(CASES)]
        killed_at = time.perf_counter()
        await asyncio.gather(*(kill_and_restart(fleet, name) for name in names))
        outages.append((" and ".join(names), time.perf_counter()))
        BARS.say(f"{outages[-1][0]} killed, back {outages[-1][1] - killed_at:.1f} s later")


async def follow(fleet: Fleet, streams: Counter[str], until: float) -> None:
    """Follow the verification that was asked for last to its end, again and again."""
    while time.perf_counter() < until:
        await asyncio.sleep(1.0)
        path = f"/api/v1/verifications/{fleet.asked[-1] if fleet.asked else 'none'}/events"
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(60.0):
                port = random.choice(fleet.crowd.ports)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request.encode())
                content = await reader.read(-1)
                writer.close()
            streams[
                content[9:12].decode() + (" to the end" if b"event: end" in content else "")
            ] += 1


async def export_again(folder: Path, fleet: Fleet, exports: Counter[str], until: float) -> None:
    """Export everything again and again; one that fails says a sentence."""
    definitions = {"FINISHLINE_BENCHMARKS_DIR": str(folder / "benchmarks")}
    environment = environment_of(address_of(fleet), folder, **definitions)
    export = ("server.admin", "export", "--keep-missing", str(folder / "export.tar"))
    command = (sys.executable, "-m", *export)
    while time.perf_counter() < until:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, said = await process.communicate()
        (folder / "export.tar").unlink(missing_ok=True)
        exports[f"exit code {process.returncode}"] += 1
        exports["tracebacks"] += said.count(b"Traceback")
        if process.returncode:
            BARS.say(f"an export failed: {said.decode()[-300:]}")
        await asyncio.sleep(EXPORT_EVERY_SECONDS)


def tell(loads: list[Storm], outages: list[tuple[str, float]], memory: list[list[float]]) -> None:
    """Print the figures of the load, and hold them against their bars."""
    statuses = sum((each.statuses for each in loads), Counter[int]())
    faults = sum((each.faults for each in loads), Counter[str]())
    BARS.say(f"answered {dict(sorted(statuses.items()))}; faults {dict(faults)}")
    for name, moment in outages:
        for kind in ("read", "submission"):
            later = [at - moment for each in loads for at in each.good[kind] if at > moment]
            BARS.say(f"{name} back, first good {kind} {min(later, default=-1):.2f} s after")
    BARS.hold("answers that are neither good nor a refusal", faults.total(), at_most=0)
    for each in memory:
        late = each[len(each) // 2 :]
        rise = statistics.linear_regression(range(len(late)), late).slope * (len(late) - 1)
        over_time = ", ".join(f"{value:.0f}" for value in each[:: max(len(each) // 15, 1)])
        BARS.say(f"memory of a server, MiB: {over_time}")
        growth = rise / statistics.fmean(late)
        BARS.hold("growth over the second half", growth, at_most=MOST_GROWTH)


async def send_the_rest(posts: Posts, port: int) -> None:
    """Send each submission again that was not answered for good."""
    BARS.say(f"{posts.made} submissions made, {len(posts.under_way)} wait for an answer")
    posts.again = deque(posts.under_way)
    rest, give_up_at = Storm(port, posts, iter(posts)), time.perf_counter() + SETTLED_SECONDS
    while posts.again and time.perf_counter() < give_up_at:
        await rest.ask()


async def judge(fleet: Fleet, posts: Posts, told: Counter[str]) -> None:
    """Hold what was promised against what is stored, told and logged."""
    with fleet.database.read() as session:
        named = Submission.idempotency_key.startswith("storm-")
        rows = session.execute(select(Submission.id, Submission.idempotency_key).where(named)).all()
    stored = Counter(int(key.removeprefix("storm-")) for _, key in rows if key)
    BARS.say(f"{len(posts.accepted)} submissions taken, refused {dict(posts.refused)}")
    BARS.hold("taken and not stored", len(posts.accepted - set(stored)), at_most=0)
    BARS.hold("stored and not taken", len(set(stored) - posts.accepted), at_most=0)
    BARS.hold("stored twice", sum(count > 1 for count in stored.values()), at_most=0)
    ids, give_up_at = {row.id for row in rows}, time.perf_counter() + SETTLED_SECONDS
    while ids - set(told) and time.perf_counter() < give_up_at:
        await asyncio.sleep(1.0)
    BARS.hold("stored and not told by webhook", len(ids - set(told)), at_most=0)
    BARS.say(f"webhook: {sum(told[one] > 1 for one in ids)} of {len(ids)} told more than once")
    logs = "".join(each.log() for name, each in fleet.services.items() if name != "redis")
    for line, count in Counter(re.findall(r"\n([\w.]+Error: [^\n]{0,200})", logs)).most_common(10):
        BARS.say(f"in the log {count} times: {line}")
    BARS.hold("tracebacks in the log", logs.count("Traceback"), at_most=0)


if __name__ == "__main__":
    sys.exit(main())
