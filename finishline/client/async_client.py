"""The client for asyncio: each method of Client, awaited, in a thread."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Self

from finishline.client.board import Board
from finishline.client.client import Client

# Methods that give one item after the other, for `async for`.
ITERATORS = frozenset({"runs", "submissions", "watch"})


class AsyncClient:
    """A Client whose methods are awaited; those that iterate are for `async for`.

    It takes what Client takes. Each call runs in a thread of asyncio's, by the code of Client; a
    task that is cancelled leaves its thread to end by itself. Boards come with all their pages.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = Client(*arguments, **options)
        self.url = self._client.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.to_thread(self._client.close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._client, name)
        if name in ITERATORS:
            return wraps(method)(lambda *given, **named: _each(method(*given, **named)))

        @wraps(method)
        async def call(*given: Any, **named: Any) -> Any:
            return await asyncio.to_thread(_ask, method, *given, **named)

        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(each for each in dir(self._client) if each[0] != "_")})


def _ask(method: Callable[..., Any], *given: Any, **named: Any) -> Any:
    found = method(*given, **named)
    return found.whole() if isinstance(found, Board) else found


async def _each(items: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item
