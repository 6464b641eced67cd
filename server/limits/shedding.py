"""In front of the application: what there is no room for is refused at once, not left to wait.

Requests in work are bounded, because each needs a thread and a connection to the database. Posts of
workers and requests of organisers have places of their own: a flood of readers stops no
verification. Nobody holds a place while the server waits for their bytes.
"""

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.limits.answers import refusal, refuse
from server.limits.bodies import Body, has_body
from server.limits.kinds import Kind
from server.limits.metrics import LimitMetrics
from server.limits.rate_limiting import KIND, REQUESTER
from server.limits.requesters import Requester
from server.limits.room import BytesInFlight, Held, Room
from server.settings import MIB, Settings

RESERVED_PLACES = 8
RESERVED_WAITING = 256
RESERVED_PATIENCE_SECONDS = 4.0  # A worker gives up on an answer after five seconds.
RESERVED_BODY_BYTES = 128 * MIB
NEWCOMER_PLACES = 4
NEWCOMERS_WAITING = 128
MOST_DOWNLOADS = 32
MOST_DOWNLOADS_EACH = 8
MOST_UPLOADS = 32
MOST_UPLOADS_EACH = 8
SEND_SECONDS = 30.0
RETRY_SECONDS = 2
ANYBODY = Requester("local", None, None)


@dataclass(frozen=True)
class Capacity:
    """All that is bounded; one per process.

    `newcomers` is for requests whose token has not proved good here: a made-up one takes no place
    from a worker or an organiser that is known, and who comes first is not lost among readers.
    """

    public: Room
    reserved: Room
    newcomers: Room
    bodies: BytesInFlight
    reserved_bodies: BytesInFlight
    upload_bytes: BytesInFlight
    uploads: Held
    downloads: Held
    streams: Held

    @property
    def names(self) -> tuple[str, ...]:
        """What can be full."""
        return ("requests", "bodies", "upload_bytes", "uploads", "downloads", "event_streams")


def make_capacity(settings: Settings) -> Capacity:
    """The bounds of the settings."""
    patience = settings.max_wait_seconds
    return Capacity(
        public=Room(
            "requests",
            places=settings.max_requests_in_work,
            waiting=settings.max_requests_waiting,
            patience_seconds=patience,
        ),
        reserved=Room(
            "requests",
            places=RESERVED_PLACES,
            waiting=RESERVED_WAITING,
            patience_seconds=RESERVED_PATIENCE_SECONDS,
        ),
        newcomers=Room(
            "requests",
            places=NEWCOMER_PLACES,
            waiting=NEWCOMERS_WAITING,
            patience_seconds=RESERVED_PATIENCE_SECONDS,
        ),
        bodies=BytesInFlight("bodies", most=settings.max_body_bytes_in_flight),
        reserved_bodies=BytesInFlight("bodies", most=RESERVED_BODY_BYTES),
        upload_bytes=BytesInFlight("upload_bytes", most=settings.max_upload_bytes_in_flight),
        uploads=Held("uploads", most=MOST_UPLOADS, most_each=MOST_UPLOADS_EACH),
        downloads=Held("downloads", most=MOST_DOWNLOADS, most_each=MOST_DOWNLOADS_EACH),
        streams=Held(
            "event_streams",
            most=settings.max_event_streams,
            most_each=settings.max_event_streams_each,
        ),
    )


class Shedding:
    """Lets in what there is room for, and answers 503 with Retry-After to the rest."""

    def __init__(self, app: ASGIApp, *, capacity: Capacity, metrics: LimitMetrics) -> None:
        self._app = app
        self._capacity = capacity
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope.get(KIND, Kind.READ)
        if scope["type"] != "http" or kind is Kind.FREE:
            await self._app(scope, receive, send)
            return
        held = self._held(kind)
        key = scope.get(REQUESTER, ANYBODY).key
        if held is not None and not held.take(key):
            await self._refuse(held.name, scope, receive, send)
            return
        try:
            await self._serve(kind, key, scope, receive, send)
        finally:
            if held is not None:
                held.give_back(key)

    def _held(self, kind: Kind) -> Held | None:
        """What a request holds from its start to its end, beside a place."""
        if kind is Kind.STREAM:
            return self._capacity.streams
        return self._capacity.uploads if kind is Kind.UPLOAD else None

    async def _serve(
        self, kind: Kind, key: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        room = self._room(kind, scope)
        if not await room.enter():
            await self._refuse(room.name, scope, receive, send)
            return
        served = Served(self._capacity, self._metrics, room, kind, key, scope, receive, send)
        try:
            await self._app(scope, served.receive, served.send)
        except ConnectionAbortedError:
            # What the application was sending nobody takes, or there was no room for it.
            if not served.is_cut_off:
                raise
        finally:
            served.end()

    def _room(self, kind: Kind, scope: Scope) -> Room:
        requester: Requester = scope.get(REQUESTER, ANYBODY)
        if requester.is_unproven:
            return self._capacity.newcomers
        is_reserved = requester.is_trusted or (kind is Kind.WORKER and requester.role is not None)
        return self._capacity.reserved if is_reserved else self._capacity.public

    async def _refuse(self, what: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics.note_shed(what)
        await refuse(scope, receive, send, status=503, detail=_sentence(what), headers=_headers())


class Served:
    """A request that was let in: its place, its body, and its answer on the way out."""

    def __init__(
        self,
        capacity: Capacity,
        metrics: LimitMetrics,
        room: Room,
        kind: Kind,
        key: str,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._capacity = capacity
        self._metrics = metrics
        self._room = room
        self._kind = kind
        self._key = key
        self._scope = scope
        self._receive = receive
        self._send = send
        self._has_place = True
        self._is_download = False
        self._start: Message | None = None
        self.is_cut_off = False
        self._body = self._make_body()

    def _make_body(self) -> Body | None:
        if not has_body(Headers(scope=self._scope)):
            return None
        capacity = self._capacity
        in_flight = capacity.bodies
        if self._kind is Kind.UPLOAD:
            in_flight = capacity.upload_bytes
        elif self._room is not capacity.public:
            in_flight = capacity.reserved_bodies
        return Body(
            self._scope,
            self._receive,
            in_flight=in_flight,
            on_wait=self._leave,
            on_whole=self._enter_again,
            on_shed=self._metrics.note_shed,
        )

    async def receive(self) -> Message:
        """What the application reads."""
        return await (self._receive() if self._body is None else self._body.receive())

    async def _enter_again(self) -> bool:
        self._has_place = await self._room.enter()
        return self._has_place

    def _leave(self) -> None:
        if self._has_place:
            self._has_place = False
            self._room.leave()

    def end(self) -> None:
        """The request is over, however it ended."""
        self._leave()
        if self._body is not None:
            self._body.let_go()
            self._body = None  # Each refers to the other: both would wait for a collection.
        if self._is_download:
            self._is_download = False
            self._capacity.downloads.give_back(self._key)

    async def send(self, message: Message) -> None:
        """Send a part of the answer. The work is done, so its place is given back first.

        An answer in several parts is a download: they are bounded too, and end where nobody takes
        them. Raises ConnectionAbortedError then.
        """
        if message["type"] == "http.response.start" and self._kind is not Kind.STREAM:
            self._start = message  # Sent with the first part, which tells a download.
            return
        self._leave()
        if self._kind is Kind.STREAM:
            await self._send(message)
            return
        if self._start is not None:
            start, self._start = self._start, None
            if message.get("more_body", False) and not self._begin_download():
                await self._refuse_download()
            await self._send(start)
        await (self._send_in_time(message) if self._is_download else self._send(message))

    def _begin_download(self) -> bool:
        self._is_download = self._capacity.downloads.take(self._key)
        return self._is_download

    async def _refuse_download(self) -> None:
        what = self._capacity.downloads.name
        self._metrics.note_shed(what)
        self.is_cut_off = True
        await busy(self._scope, what)(self._scope, self._receive, self._send)
        raise ConnectionAbortedError("no room for a download")

    async def _send_in_time(self, message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError as error:
            self.is_cut_off = True
            raise ConnectionAbortedError("nobody takes the answer") from error


def busy(scope: Scope, what: str) -> Response:
    """The answer to a request that there is no room for."""
    return refusal(scope, 503, _sentence(what), _headers())


def _sentence(what: str) -> str:
    words = {
        "requests": "as many requests as it can work at",
        "uploads": "as many uploads as it can take at once",
        "downloads": "as many downloads as it can serve at once",
        "event_streams": "as many live streams open as it may, in all or to you",
    }
    have = words.get(what, "as much to do as it can")
    return f"The server has {have}; nothing was done. Try again in {RETRY_SECONDS} s."


def _headers() -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
