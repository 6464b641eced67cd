"""`finishline webhook`: have events posted to an address, and list the deliveries."""

from typing import Annotated

import typer

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.people_tables import delivery_table, webhook_table
from finishline.cli.screen import open_screen

app = typer.Typer(no_args_is_help=True, help="Webhooks: signed events, posted to an address.")
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook.")]


@app.command("add")
def add_webhook(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="URL that takes POST requests, over https.")
    ],
    kinds: Annotated[
        list[str],
        typer.Option("--kind", help="Event, such as submission.verified. Repeat for several."),
    ],
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Events of all submissions to this benchmark.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All events (organisers only).")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a webhook, by default for your own submissions. Its secret is shown only once."""
    scope = "all" if everything else "benchmark" if benchmark is not None else "own"
    body = {"url": address, "kinds": kinds, "scope": scope, "benchmark": benchmark}
    with ServerClient(url, token) as server:
        view = server.post("/webhooks", body)
    return _answer_secret(view, as_json=as_json)


def _answer_secret(view: View, *, as_json: bool) -> int:
    lines = [str(view.get("secret")), f"Store it now: it is not shown again (id {view.get('id')})."]
    open_screen(as_json=as_json).answer(view, lines)
    return int(ExitCode.OK)


@app.command("list")
def list_webhooks(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List your webhooks."""
    with ServerClient(url, token) as server:
        view = server.get("/webhooks")
    open_screen(as_json=as_json).answer(view, [webhook_table(view["webhooks"])])
    return int(ExitCode.OK)


@app.command("test")
def send_test(
    webhook_id: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Send a test message."""
    with ServerClient(url, token) as server:
        view = server.post(f"/webhooks/{segment(webhook_id)}/test", {})
    told = f"Delivery {view['id']} is queued: finishline webhook deliveries {webhook_id}"
    open_screen(as_json=as_json).answer(view, [told])
    return int(ExitCode.OK)


@app.command("delete")
def delete_webhook(
    webhook_id: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Delete a webhook and the log of its deliveries."""
    with ServerClient(url, token) as server:
        server.delete(f"/webhooks/{segment(webhook_id)}")
    document = {"id": webhook_id, "deleted": True}
    open_screen(as_json=as_json).answer(document, [f"Webhook {webhook_id} is deleted."])
    return int(ExitCode.OK)


@app.command("deliveries")
def list_deliveries(
    webhook_id: Id,
    state: Annotated[
        str | None, typer.Option("--state", help="waiting, delivered or failed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many to list.")] = 50,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """List a webhook's deliveries and their responses."""
    with ServerClient(url, token) as server:
        address = f"/webhooks/{segment(webhook_id)}/deliveries"
        view = server.get(address, state=state, limit=limit)
    open_screen(as_json=as_json).answer(view, [delivery_table(view["deliveries"])])
    return int(ExitCode.OK)


@app.command("resend")
def resend(
    webhook_id: Id,
    delivery_id: Annotated[str, typer.Argument(metavar="DELIVERY", help="Id of the delivery.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Send a message again, with the same id."""
    address = f"/webhooks/{segment(webhook_id)}/deliveries/{segment(delivery_id)}/resend"
    with ServerClient(url, token) as server:
        view = server.post(address, {})
    open_screen(as_json=as_json).answer(view, [f"Delivery {delivery_id} is queued again."])
    return int(ExitCode.OK)


@app.command("secret")
def replace_secret(
    webhook_id: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Make a fresh secret. For one day, messages are signed with both."""
    with ServerClient(url, token) as server:
        view = server.post(f"/webhooks/{segment(webhook_id)}/secret", {})
    return _answer_secret(view, as_json=as_json)


@app.command("enable")
def enable_webhook(
    webhook_id: Id, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Enable a webhook that was disabled."""
    with ServerClient(url, token) as server:
        view = server.post(f"/webhooks/{segment(webhook_id)}/enable", {})
    open_screen(as_json=as_json).answer(view, [f"Webhook {webhook_id} is enabled."])
    return int(ExitCode.OK)
