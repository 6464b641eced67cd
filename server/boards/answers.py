"""Answering with a board: bytes that are kept as long as the board does not change."""

import time
from collections.abc import Callable

from fastapi import Request, Response
from sqlalchemy.orm import Session

from server.board_versions import board_version, known_versions_of
from server.boards.encoding import Encoded
from server.boards.lessons import lesson_of
from server.boards.memory import memory_of
from server.boards.schemas import BoardQuery
from server.conditions import reader_has, reader_takes_gzip
from server.dependencies import Parts


def answer_board(
    parts: Parts,
    request: Request,
    benchmark_id: str,
    query: BoardQuery,
    media_type: str,
    make: Callable[[Session], Encoded],
) -> Response:
    """What `make` returns, made once for each query and version of the board.

    Whoever knows it already is told so and sent nothing. Nothing in it may depend on who asks.
    """
    asked_at = time.monotonic()
    with parts.database.read_snapshot() as session:
        version = board_version(session, benchmark_id)
        memory = memory_of(session)
        kept = memory.own_answers if query.is_own else memory.answers
        answer = kept.get(
            (benchmark_id, media_type, query.model_dump_json()),
            version,
            lambda: make(session),
        )
        known_versions_of(session).note(benchmark_id, version, asked_at=asked_at)
    headers = {
        "ETag": answer.etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept, Accept-Encoding",
        **place_headers(request, answer),
    }
    lesson = lesson_of(request.scope)
    if lesson is not None:
        lesson.benchmark_id, lesson.version, lesson.etag = benchmark_id, version, answer.etag
        lesson.is_kept = not query.is_own
    elif reader_has(request, answer.etag):
        return Response(status_code=304, headers=headers)
    content = answer.content
    if reader_takes_gzip(request):
        content = answer.gzip_content
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=media_type, headers=headers)


def place_headers(request: Request, answer: Encoded) -> dict[str, str]:
    """How many entries there are in all, and where the next ones are."""
    headers = {"X-Total-Count": str(answer.total)}
    if answer.next_cursor is not None:
        following = request.url.remove_query_params("page").include_query_params(
            cursor=answer.next_cursor
        )
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    return headers
