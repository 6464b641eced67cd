"""Bodies and views of webhooks and mail subscriptions."""

from datetime import datetime
from email.errors import MessageError
from email.headerregistry import Address
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from finishline.api.schema import Schema
from server.base.forms import Body, example
from server.base.models import Message, Receiver
from server.notices.events import KINDS, EventKind

SHAPE = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$"


def _mail_address(address: str) -> str:
    """Parse an address as mail programs do. Raises ValueError."""
    try:
        Address(addr_spec=address)
    except (ValueError, MessageError) as error:
        raise ValueError("expected one address, as in ada@example.org") from error
    return address


MailAddress = Annotated[str, Field(max_length=254, pattern=SHAPE), AfterValidator(_mail_address)]


class Wanted(Body):
    """Filter of events: of one's own submissions, of a benchmark, or all (organisers only)."""

    kinds: list[EventKind] = Field(
        min_length=1, max_length=len(KINDS), description="Each once, in any order."
    )
    scope: Literal["own", "benchmark", "all"] = "own"
    benchmark: str | None = Field(
        default=None, max_length=100, description="For the scope benchmark."
    )

    @model_validator(mode="after")
    def _names_its_benchmark(self) -> Self:
        if (self.scope == "benchmark") != (self.benchmark is not None):
            raise ValueError("expected a benchmark with the scope benchmark, and only with it")
        return self


class WebhookCreate(Wanted):
    """Webhook to create: its URL and its events."""

    model_config = example(
        url="https://hooks.example.org/finishline",
        kinds=["submission.verified", "submission.rejected"],
        scope="own",
    )

    url: str = Field(min_length=1, max_length=2000)


class MailCreate(Wanted):
    """Mail subscription to create: its address and its events."""

    address: MailAddress


class WebhookView(Schema):
    """A webhook without its secret."""

    id: str
    url: str
    kinds: list[str]
    scope: str
    benchmark: str | None
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_because: str | None


class WebhookCreated(WebhookView):
    """A webhook whose secret was just made: the only time it is shown."""

    secret: str


class WebhookList(Schema):
    """One's own webhooks, newest first."""

    webhooks: list[WebhookView]


class MailView(Schema):
    """A mail subscription."""

    id: str
    address: str
    kinds: list[str]
    scope: str
    benchmark_id: str | None
    confirmed_at: datetime | None


class TryView(Schema):
    """A delivery attempt: a status and the start of the response, or the error instead."""

    at: datetime
    status: int | None
    milliseconds: float
    answer: str
    error: str | None


class DeliveryView(Schema):
    """A message on its way: `state` is waiting, delivered or failed. `due_at` is the next try."""

    id: int
    message_id: str
    kind: str
    state: str
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    tries: list[TryView]


class DeliveryList(Schema):
    """The latest deliveries of a webhook, newest first."""

    deliveries: list[DeliveryView]


def webhook_view(hook: Receiver) -> WebhookView:
    """View of a stored webhook."""
    return WebhookView.of(hook, url=hook.address, benchmark=hook.benchmark_id)


def delivery_view(message: Message) -> DeliveryView:
    """View of a stored message."""
    return DeliveryView.of(message, due_at=message.due_at if message.state == "waiting" else None)
