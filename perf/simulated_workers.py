"""Workers for perf/fleet.py: coroutines that speak the protocol and train nothing.

Each says hello every five seconds and asks a server for work (a few take it from the broker),
claims it, posts an evaluation every second, and reports. A server that does not answer is exchanged
for the next one, and a post is tried again, as by the real worker.
"""

import asyncio
import base64
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import quote

import orjson
import redis.asyncio as redis

from finishline.rules.verification.messages import WorkerSystem, queue_of
from perf.dispatch_child import CURVE

HELLO_SECONDS, WAIT_SECONDS, PAUSE_SECONDS = 5.0, 20.0, 1.0
EPOCH_SECONDS = 1.0
PATIENCE_SECONDS = 120.0
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)")
API = "/api/v1"
Headers = dict[str, str]


class Refused(Exception):  # noqa: N818
    """A 4xx: it is not tried again."""

    def __init__(self, status: int, content: bytes) -> None:
        super().__init__(f"{status}: {content[:300]!r}")
        self.status = status


@dataclass
class Crowd:
    """Facts that all workers share, and the figures that they gather."""

    ports: Sequence[int]
    broker_url: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unanswered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)

    def forget_figures(self) -> None:
        """Begin to count anew; reports are counted all along."""
        self.seconds.clear()
        self.unanswered.clear()
        self.refused.clear()


class Wire:
    """A connection to one of the servers, made again after it was lost."""

    def __init__(self, crowd: Crowd, server: int) -> None:
        self._crowd = crowd
        self._server = server
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, path: str, token: str, body: bytes | None = None, *, headers: Headers | None = None
    ) -> bytes:
        """The content of an answer. Raises Refused, or OSError where a server cannot answer."""
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        was_open = self._open is not None
        try:
            status, content = await self._exchange(request)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            if was_open and not isinstance(error, TimeoutError):  # It was closed while it rested.
                return await self.ask(path, token, body, headers=headers)
            self._server += 1
            raise OSError(str(error)) from error
        if status >= 500 or status == 429:
            self._server += 1
            self.close()
            raise OSError(f"{status}")
        if status >= 400:
            raise Refused(status, content)
        return content

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        async with asyncio.timeout(WAIT_SECONDS + 10.0):
            if self._open is None:
                port = self._crowd.ports[self._server % len(self._crowd.ports)]
                self._open = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = self._open
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = LENGTH.search(head)
            return int(head[9:12]), await reader.readexactly(int(length[1]) if length else 0)

    def close(self) -> None:
        """Close it, as the end of a process does."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


class SimulatedWorker:
    """One worker, from its first hello until it is cancelled: a kill, without a word."""

    def __init__(
        self, crowd: Crowd, system: WorkerSystem, token: str, number: int, *, by_broker: bool
    ) -> None:
        self.name = system.worker
        self._crowd = crowd
        self._system = system
        self._token = token
        self._number = number
        self._by_broker = by_broker
        self._busy = False
        self._said = asyncio.Event()

    def hello(self) -> bytes:
        """A hello as bytes."""
        return orjson.dumps({"system": self._system, "state": "busy" if self._busy else "idle"})

    async def live(self) -> None:
        """Say hello and work, for ever."""
        posts, waits = Wire(self._crowd, self._number), Wire(self._crowd, self._number)
        await asyncio.sleep(random.random() * HELLO_SECONDS)
        work = self._take_messages if self._by_broker else self._pull
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._say_hello(Wire(self._crowd, self._number)))
                tasks.create_task(work(posts, waits))
        finally:
            posts.close()
            waits.close()

    async def _say_hello(self, wire: Wire) -> None:
        path = f"{API}/workers/hello"
        try:
            while True:
                with suppress(OSError):
                    await self._timed("hello", lambda: wire.ask(path, self._token, self.hello()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._said.wait(), HELLO_SECONDS)
                self._said.clear()
        finally:
            wire.close()

    async def _pull(self, posts: Wire, waits: Wire) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        path = f"{API}/workers/{quote(self.name, safe='')}/next?wait={WAIT_SECONDS}"
        while True:
            content = b""
            with suppress(OSError, Refused):
                content = await waits.ask(path, self._token, b"{}")
            if content:
                await self._work(posts, orjson.loads(content))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _take_messages(self, posts: Wire, _waits: Wire) -> None:
        broker = redis.Redis.from_url(self._crowd.broker_url)
        try:
            while True:
                message = None
                try:
                    message = await broker.brpop([queue_of(self.name)], timeout=2)
                except (redis.ConnectionError, redis.TimeoutError, OSError):
                    await asyncio.sleep(PAUSE_SECONDS)
                if message is not None:
                    body = base64.b64decode(orjson.loads(message[1])["body"])
                    await self._work(posts, orjson.loads(body)[0][0])
        finally:
            await broker.aclose()

    async def _work(self, wire: Wire, job: dict[str, Any]) -> None:
        """Claim an attempt and make it."""
        path = f"{API}/attempts/{job['attempt_id']}"
        body = {"worker": self.name, "hardware_class": self._system.hardware_class}
        try:
            claim = orjson.dumps(body)
            lease = orjson.loads(await self._insist("claim", wire, f"{path}/claim", claim))
            self._busy = True
            await self._train(wire, path, job, lease)
            self._crowd.reported[job["verification_id"]] += 1
        except (Refused, OSError) as error:
            self._crowd.refused[str(error)[:3]] += 1
        finally:
            self._busy = False
            self._said.set()

    async def _train(
        self, wire: Wire, path: str, job: dict[str, Any], lease: dict[str, Any]
    ) -> None:
        token, headers = lease["token"], {"Finishline-Fence": str(lease["fence"])}
        runs: list[dict[str, Any]] = []
        sequence = 0

        async def post(**event: Any) -> None:
            nonlocal sequence
            body = orjson.dumps({"events": [event | {"sequence": sequence, "run": len(runs)}]})
            sequence += 1
            await self._insist("events", wire, f"{path}/evaluations", body, token, headers)

        for training in job["trainings"]:
            claimed_at = time.perf_counter()
            await post(kind="run_started")
            init = time.perf_counter() - claimed_at
            await post(kind="phase", phase="train", ledger={"init": init})
            began, evaluations = time.perf_counter(), []
            own = training["seed"] % 2**40 * 2**-40
            for epoch, quality in enumerate(CURVE, 1):
                await asyncio.sleep(EPOCH_SECONDS)
                seconds = time.perf_counter() - began
                ledger = {"init": init, "train": seconds, "eval": 0.0}
                counts = {"epoch": epoch, "samples": 1152 * epoch}
                figures = {"seconds": seconds, "quality": quality + own}
                evaluation: dict[str, Any] = counts | figures | {"ledger": ledger}
                evaluations.append(evaluation)
                await post(kind="evaluation", **evaluation)
            spans = dict.fromkeys(("tta_seconds", "parent_seconds", "child_seconds"), seconds)
            index, seed = len(runs), training["seed"]
            run = {"index": index, "seed": seed, "status": "reached", "ledger": ledger, **spans}
            runs.append(run | {"evaluations": evaluations, "cpu_seconds": seconds})
        report = orjson.dumps({"runs": runs, "system": asdict(self._system)})
        await self._insist("report", wire, f"{path}/report", report, token, headers)

    async def _insist(
        self,
        what: str,
        wire: Wire,
        path: str,
        body: bytes,
        token: str | None = None,
        headers: Headers | None = None,
    ) -> bytes:
        """Post until a server answers."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await self._timed(
                    what, lambda: wire.ask(path, token or self._token, body, headers=headers)
                )
            except OSError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(PAUSE_SECONDS / 2)

    async def _timed(self, what: str, ask: Callable[[], Any]) -> bytes:
        began = time.perf_counter()
        try:
            content: bytes = await ask()
        except OSError:
            self._crowd.unanswered[what] += 1
            raise
        self._crowd.seconds[what].append(time.perf_counter() - began)
        return content


def named(system: WorkerSystem, number: int) -> WorkerSystem:
    """The system of a numbered worker."""
    return replace(system, worker=f"worker-{number:04d}")
