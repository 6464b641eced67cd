"""Many who ask for a board that has changed: it is made once, and nobody is shown an older one."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from server.base.request_metrics import RequestMetrics
from server.boards.cache import HINT, BoardCache
from tests.support.loops import run_async

BOARD = "/api/v1/leaderboards/digits"


class Boards:
    """A board behind the cache: its version, and an application that takes its time.

    `fault` may spoil an answer: it is called with how many were begun before.
    """

    def __init__(self, fault: Callable[[int], str] = lambda _begun: "") -> None:
        self.version = 0
        self.begun = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._fault = fault
        reader: Any = VersionsOf(self)
        self.path = BoardCache(self.answer, reader, RequestMetrics())

    def write(self) -> None:
        """A write that is acknowledged once this returns."""
        self.version += 1

    async def answer(self, scope: Any, _receive: Any, send: Any) -> None:
        """The application: it reads the version at once and answers when the gate is open."""
        fault = self._fault(self.begun)
        self.begun += 1
        version = self.version
        await self.gate.wait()
        await asyncio.sleep(0)
        if fault == "raises":
            raise ConnectionAbortedError("the database went away")
        hint = scope.get(HINT)
        if fault != "gives no hint" and hint is not None:
            hint.benchmark_id, hint.version, hint.etag = "digits", version, f'W/"{version}"'
        headers = [(b"set-cookie", b"a=b")] if fault == "is one person's" else []
        status = 503 if fault == "is turned away" else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"%d" % version})

    async def read(self, *headers: tuple[bytes, bytes], method: str = "GET") -> tuple[int, bytes]:
        """Status and body; status 0 where the application raised."""
        sent: list[Any] = []
        scope = {"type": "http", "method": method, "path": BOARD, "query_string": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        try:
            await self.path(scope | {"headers": list(headers)}, no_body, send)
        except ConnectionAbortedError:
            return 0, b""
        return sent[0]["status"], sent[1]["body"]

    async def readers(self, count: int) -> "list[asyncio.Task[tuple[int, bytes]]]":
        """So many, each as far as it comes before the gate."""
        tasks = [asyncio.ensure_future(self.read()) for _ in range(count)]
        await turns()
        return tasks


@dataclass(frozen=True)
class VersionsOf:
    """A reader of the version that the boards are at."""

    boards: Boards

    async def read(self) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"digits": self.boards.version}


async def no_body() -> Any:
    """What a reader sends after its head."""
    return {"type": "http.request", "body": b"", "more_body": False}


def run_story(story: Coroutine[Any, Any, int | None]) -> int | None:
    """Run it in a loop of its own; one in which somebody waits for ever fails."""
    return run_async(asyncio.wait_for(story, timeout=30.0))


async def turns(count: int = 10) -> None:
    """Let everybody go on as far as they can."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_after_a_write_a_board_is_made_once_for_all_who_ask_for_it() -> None:
    async def story() -> None:
        boards = Boards()
        await boards.read()
        boards.write()
        boards.gate.clear()
        readers = await boards.readers(8)
        known = asyncio.ensure_future(boards.read((b"if-none-match", b'W/"1"')))
        head = asyncio.ensure_future(boards.read(method="HEAD"))
        with_body = asyncio.ensure_future(boards.read((b"content-length", b"1")))
        await turns()
        assert boards.begun == 3, "the first board, once for all readers, and once for a body"
        boards.gate.set()
        assert {await reader for reader in readers} == {(200, b"1")}
        assert [await known, await head, await with_body] == [(304, b""), (200, b""), (200, b"1")]
        assert await boards.read() == (200, b"1")
        assert boards.begun == 3

    run_story(story())


def test_who_asks_after_a_write_is_not_given_what_was_begun_before_it() -> None:
    async def story() -> None:
        boards = Boards()
        await boards.read()
        boards.write()
        boards.gate.clear()
        early = await boards.readers(2)
        boards.write()
        late = await boards.readers(5)
        assert boards.begun == 2
        boards.gate.set()
        await turns(1)
        boards.gate.clear()
        await turns()
        assert boards.begun == 3, "made again, once for all who came late"
        boards.write()
        boards.gate.set()
        assert await early[0] == (200, b"1")
        # What was begun after they came is good for them, whatever has been written since.
        assert {await reader for reader in late} == {(200, b"2")}
        assert boards.begun == 3
        assert await boards.read() == (200, b"3")

    run_story(story())


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        ("raises", (0, b"")),
        ("is turned away", (503, b"1")),
        ("is one person's", (200, b"1")),
        ("gives no hint", (200, b"1")),
    ],
)
def test_what_one_reader_is_told_alone_leaves_the_others_to_ask_for_themselves(
    fault: str, first: tuple[int, bytes]
) -> None:
    async def story() -> None:
        boards = Boards(lambda begun: fault if begun == 1 else "")
        await boards.read()
        boards.write()
        boards.gate.clear()
        readers = await boards.readers(4)
        boards.gate.set()
        assert [await reader for reader in readers] == [first, *[(200, b"1")] * 3]
        assert boards.begun == 3

    run_story(story())


def test_nobody_waits_for_a_reader_that_is_slow_or_gone() -> None:
    async def story() -> None:
        boards = Boards()
        await boards.read()
        boards.write()
        boards.gate.clear()
        never = asyncio.Event()

        async def stuck(_message: Any) -> None:
            await never.wait()

        scope = {"type": "http", "method": "GET", "path": BOARD, "query_string": b"", "headers": []}
        slow = asyncio.ensure_future(boards.path(scope, no_body, stuck))
        await turns()
        readers = await boards.readers(3)
        gone = readers.pop(0)
        gone.cancel()
        boards.gate.set()
        assert {await reader for reader in readers} == {(200, b"1")}
        assert (boards.begun, slow.done(), gone.cancelled()) == (2, False, True)
        boards.write()
        boards.gate.clear()
        maker, *others = await boards.readers(3)
        maker.cancel()
        boards.gate.set()
        assert {await reader for reader in others} == {(200, b"2")}
        slow.cancel()

    run_story(story())


@pytest.mark.parametrize("seed", range(5))
def test_whatever_goes_on_no_reader_sees_less_than_was_written_before_it_asked(seed: int) -> None:
    sequence = random.Random(seed)
    faults = ("", "", "", "", "raises", "is turned away", "is one person's", "gives no hint")
    shown: list[int] = []

    async def reader(boards: Boards) -> None:
        for _ in range(40):
            written = boards.version
            status, body = await boards.read()
            if status == 200:
                shown.append(int(body))
                assert int(body) >= written
            await turns(sequence.randrange(4))

    async def writer(boards: Boards) -> None:
        for _ in range(60):
            boards.write()
            await turns(sequence.randrange(6))
            (boards.gate.clear if sequence.random() < 0.4 else boards.gate.set)()
        boards.gate.set()

    async def story() -> int:
        boards = Boards(lambda _begun: sequence.choice(faults))
        await asyncio.gather(writer(boards), *(reader(boards) for _ in range(8)))
        assert boards.path._flights == {}
        return boards.begun

    begun = run_story(story())
    assert len(set(shown)) > 10
    assert begun is not None
    assert begun < len(shown)
