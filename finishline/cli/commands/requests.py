"""The commands of one request each, as rows: rename, add or remove one here."""

from collections.abc import Callable
from typing import Any, Literal

from finishline.api.people import Role
from finishline.cli import answers
from finishline.cli.commands.lists import import_prices, owned
from finishline.cli.errors import UsageError
from finishline.cli.rows import REQUIRED, Body, Given, Words, argument, option, read_rows

ROWS = """
account show
    GET /me -> account_lines
    Show the token's user, role and expiry.
account name DISPLAY_NAME
    PATCH /me -> account_lines
    Change the name that readers see beside your results.
account tokens
    GET /me/tokens -> tokens
    List your tokens, without their secrets.
account make --role --label --days
    POST /me/tokens -> secret_lines
    Make a token for yourself, with at most your token's rights. It is shown only once.
account revoke ID
    DELETE /me/tokens/{id} -> revoked_lines
    Revoke one of your tokens and every token made with it.

admin invitation list
    GET /invitations -> invitations
    List the links that you made; an admin sees all.
admin invitation revoke ID
    DELETE /invitations/{id} -> Link {id} is revoked.
    Revoke a link. Those who joined with it stay.
admin user list --q
    GET /users -> users
    List users by name.
admin user add NAME --role=submitter --organisation --email --display-name
    POST /users -> new_user_lines
    Add a user. Make their tokens with `finishline admin token make`.
admin user set NAME --role --organisation --email --display-name
        --no-organisation --no-email --no-display-name --disable/--enable
    PATCH /users/{name} -> user_lines
    Change a user's role, organisation, e-mail, display name or access. Omitted options stay.
admin user approve NAME
    PUT /users/{name}/known -> {name} is known to the organisers.
    Let workers without a memory cgroup train a user's code submissions (organisers).
    Such a sandbox bounds less of its host's memory: approve only users whom you know.
admin user disapprove NAME
    PUT /users/{name}/known -> {name} is not known to the organisers.
    Send a user's code submissions only to workers with a memory cgroup (organisers).
admin user erase NAME --yes
    POST /users/{name}/erasure -> erased_lines
    Replace a person's name by former-17 wherever it stands, and end their access.
    Their submissions stay under that name.
admin organisation list
    GET /organisations -> organisations
    List organisations by name.
admin organisation add NAME
    POST /organisations -> Organisation {name} added.
    Add an organisation.
admin token list --user
    GET /tokens -> tokens
    List the tokens you may revoke, without their secrets.
admin token make USER --role=submitter --label --days
    POST /tokens -> secret_lines
    Make a token for a user. It is shown only once.
admin token revoke ID
    DELETE /tokens/{id} -> revoked_lines
    Revoke a token and every token made with it.

admin retire SUBMISSION --reason!
    POST /submissions/{submission}/retirement -> Submission {id} is retired. Its record stays.
    Take first place from a holder that can't be trained any more (organisers).
    The previous holder that can be trained follows. `finishline withdraw ID --undo` undoes it.

benchmarks
    GET /benchmarks -> benchmarks
    List the server's benchmarks.
show SUBMISSION
    GET /submissions/{submission} -> shown_submission_lines
    Show one submission with its runs and verifications.
decide VERIFICATION DECISION --reason!
    POST /verifications/{verification}/decide -> decision_lines
    Decide about the verdict of a rerun (organisers only).
compare-verifications FIRST SECOND
    GET /verifications/compare -> comparison_lines
    Show two verifications of one submission side by side.

calibration list --benchmark --limit=20
    GET /calibrations -> calibrations
    List calibrations, newest first.
calibration compare ID [WITH]
    GET /calibrations/{id}/compare -> compared_calibrations_lines
    Compare two calibrations batch size by batch size.
calibration adopt ID --reason!
    POST /calibrations/{id}/adopt -> calibration_lines
    Use a calibration for replays planned from now on (organisers only).
calibration cancel ID
    POST /calibrations/{id}/cancel -> calibration_lines
    Cancel the remaining runs and keep the finished ones (organisers only).

prices list --provider --instance --region --on
    GET /prices -> prices
    List prices, the latest of each instance first.
prices add PROVIDER INSTANCE REGION USD_PER_HOUR --from --source --pricing
        --note --supersedes --hardware-class
    POST /prices -> Price {id} added: {usd_per_hour:.6g} USD per hour.
    Add a price (organisers only). Prices are never edited: --supersedes corrects one.

quota
    GET /me/quota -> quota_lines
    Show your quotas for uploads and replays, and their use.
quota list
    GET /quotas -> all_quotas_lines
    List the quotas that differ from the defaults (organisers only).
quota show USER
    GET /quotas/{user} -> quota_lines
    Show the quotas of a user and their use (organisers only).
quota set USER --reason! --submissions-per-day --gpu-hours-per-month
    PUT /quotas/{user} -> quota_lines
    Set the quotas of a user (organisers only).

queue
    GET /queue -> queue_lines
    List waiting attempts in the order in which they start, or pause the queue.
queue pause --reason!
    POST /queue/pause -> Every queue is paused.
    Pause everything. Running attempts continue.
queue resume --reason
    POST /queue/resume -> Every queue is resumed.
    End the pause of everything.
workers
    GET /workers -> workers_lines
    List the workers that have reported to the server, or hold one of them.
workers pause WORKER --reason!
    POST /workers/{name}/pause -> paused_worker_lines
    Pause a worker: it finishes its attempt and leases no other until it is resumed.
workers resume WORKER --reason
    POST /workers/{name}/resume -> resumed_worker_lines
    Resume a worker that was paused.
workers confirm WORKER --reason
    POST /workers/{name}/confirm
    -> Worker {name} is confirmed for hardware class {worker[hardware_class]}.
    Confirm a worker's hardware class. Attempts go to confirmed workers only.

webhook add ADDRESS --kind --benchmark --all
    POST /webhooks -> secret_lines
    Make a webhook, by default for your own submissions. Its secret is shown only once.
webhook list
    GET /webhooks -> webhooks
    List your webhooks.
webhook test WEBHOOK
    POST /webhooks/{webhook}/test
    -> Delivery {id} is queued: finishline webhook deliveries {webhook}
    Send a test message.
webhook delete ID
    DELETE /webhooks/{id} -> Webhook {id} is deleted.
    Delete a webhook and the log of its deliveries.
webhook deliveries WEBHOOK --state --limit=50
    GET /webhooks/{webhook}/deliveries -> deliveries
    List a webhook's deliveries and their responses.
webhook resend WEBHOOK DELIVERY
    POST /webhooks/{webhook}/deliveries/{delivery}/resend -> Delivery {delivery} is queued again.
    Send a message again, with the same id.
webhook secret WEBHOOK
    POST /webhooks/{webhook}/secret -> secret_lines
    Make a fresh secret. For one day, messages are signed with both.
webhook enable WEBHOOK
    POST /webhooks/{webhook}/enable -> Webhook {webhook} is enabled.
    Enable a webhook that was disabled.
"""


def _amount(each: int) -> Callable[[str | None], int | str | None]:
    def read(text: str | None) -> int | str | None:
        if text in (None, "unlimited", "default"):
            return text
        try:
            number = float(str(text))
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9:
            raise UsageError(f"Invalid amount {text!r}. Expected a number, unlimited or default.")
        return round(number * each)

    return read


AMOUNT = "a number, unlimited, or default."
REASON = "Reason, kept in the audit log and shown with the change."
PARAMETERS = {
    "ADDRESS": argument("address", "URL that takes POST requests, over https."),
    "DECISION": argument(
        "decision",
        "Publish its verdict, or keep the one that is published.",
        Literal["publish", "keep"],
    ),
    "DELIVERY": argument("delivery", "Id of the delivery."),
    "DISPLAY_NAME": argument(
        "display_name", 'Name that readers see; "" for your account\'s.', metavar="NAME"
    ),
    "FIRST": argument("first", "Id of a verification."),
    "ID": argument("id", "Id, as the list shows it."),
    "INSTANCE": argument("instance", "Name in the provider's price list."),
    "NAME": argument("name", "Name of the user or organisation."),
    "PROVIDER": argument("provider", "Name of the provider."),
    "REGION": argument("region", "Name in the provider's price list."),
    "SECOND": argument("second", "Id of another verification of the same submission."),
    "SUBMISSION": argument("submission", "Id of a submission."),
    "USD_PER_HOUR": argument(
        "usd_per_hour", "US dollars per hour of one instance.", float, min=0, max=1e7
    ),
    "USER": argument("user", "Name of the user."),
    "VERIFICATION": argument("verification", "Id of a verification with a verdict."),
    "WEBHOOK": argument("webhook", "Id of the webhook.", metavar="ID"),
    "[WITH]": argument(
        "with_",
        "Calibration to compare with (default: the file's own runs).",
        default=None,
        metavar="[WITH]",
    ),
    "WORKER": argument("name", "Name of a worker."),
    "--all": option("everything", "All events (organisers only).", bool, False, "--all"),
    "--benchmark": option("benchmark", "Only of this benchmark."),
    "--days": option(
        "expires_in_days", "Days until it expires.", float, flag="--days", min=0.001, max=3650
    ),
    "--disable/--enable": option(
        "disabled", "Refuse or accept their tokens.", bool, flag="--disable/--enable"
    ),
    "--display-name": option("display_name", "Name that readers see in place of the name."),
    "--email": option("email", "E-mail address for notices."),
    "--from": option(
        "effective_on",
        "First day of validity, such as 2026-11-21.",
        default=REQUIRED,
        flag="--from",
        metavar="DAY",
    ),
    "--gpu-hours-per-month": option(
        "gpu_seconds_per_month",
        f"Accelerator hours: {AMOUNT}",
        flag="--gpu-hours-per-month",
        callback=_amount(3600),
    ),
    "--hardware-class": option("hardware_class", "Class of this instance, whose rows it may rank."),
    "--instance": option("instance", "Only this instance."),
    "--kind": option(
        "kinds",
        "Event, such as submission.verified. Repeat for several.",
        list[str],
        REQUIRED,
        "--kind",
    ),
    "--label": option("label", "Purpose of the token."),
    "--limit=20": option("limit", "How many to list.", int, 20, min=1, max=100, clamp=True),
    "--limit=50": option("limit", "How many to list.", int, 50, min=1, max=200),
    "--no-display-name": option("no_display_name", "Show the name again.", bool, False),
    "--no-email": option("no_email", "Remove the e-mail address.", bool, False),
    "--no-organisation": option("no_organisation", "Remove from the organisation.", bool, False),
    "--note": option("note", "Note, shown with the price."),
    "--on": option("on", "Only prices valid on a day, such as 2026-11-21.", metavar="DAY"),
    "--organisation": option("organisation", "Organisation of the user."),
    "--pricing": option(
        "pricing", "Spot prices never rank.", Literal["on_demand", "spot"], "on_demand"
    ),
    "--provider": option("provider", "Only this provider."),
    "--q": option("q", "Only those with this text in their name or e-mail."),
    "--reason": option("reason", REASON),
    "--reason!": option("reason", REASON, default=REQUIRED),
    "--region": option("region", "Only this region."),
    "--role": option("role", "Role of the token, or highest role of the user's.", Role),
    "--role=submitter": option(
        "role", "Role of the token, or highest role of the user's.", Role, "submitter"
    ),
    "--source": option(
        "source_url", "Address of the provider's price page.", default=REQUIRED, flag="--source"
    ),
    "--state": option("state", "waiting, delivered or failed."),
    "--submissions-per-day": option(
        "submissions_per_day", f"Submissions: {AMOUNT}", callback=_amount(1)
    ),
    "--supersedes": option(
        "supersedes", "Id of the wrong price that this one replaces.", int, min=1
    ),
    "--user": option("user", "Only tokens of this user."),
    "--yes": option("yes", "Nothing brings the name back.", bool, False),
}


def _changes(given: Given) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in ("role", "organisation", "email", "display_name", "disabled"):
        if given.get(f"no_{name}"):
            changes[name] = None
        elif given[name] is not None:
            changes[name] = given[name]
    if not changes:
        raise UsageError(
            "Nothing to change. Pass --role, --organisation, --email, --display-name or --disable."
        )
    return changes


def _erasure(given: Given) -> dict[str, Any]:
    name = given["name"]
    if not given["yes"]:
        raise UsageError(f"Nothing was erased. To erase {name}, add --yes.")
    return {"name": name}


def _events(given: Given) -> dict[str, Any]:
    of_one = "own" if given["benchmark"] is None else "benchmark"
    return {
        "url": given["address"],
        "kinds": given["kinds"],
        "scope": "all" if given["everything"] else of_one,
        "benchmark": given["benchmark"],
    }


BODIES: dict[str, Body] = {
    "account name": lambda given: {"display_name": given["display_name"] or None},
    "admin user approve": lambda given: {"known": True},
    "admin user disapprove": lambda given: {"known": False},
    "admin user erase": _erasure,
    "admin user set": _changes,
    "webhook add": _events,
}
PAGES = {"admin user list": "after", "workers": "cursor"}
GROUPS = {
    "account": "Your account and your own tokens.",
    "admin": "Users, organisations and tokens (admins).",
    "admin invitation": "Links by which people join: list, revoke.",
    "admin user": "Users: list, add, set, approve, disapprove, erase.",
    "admin organisation": "Organisations: list, add.",
    "admin token": "Tokens of others: list, make, revoke.",
    "admin price": "Prices: derive the price of an owned system.",
    "calibration": "List, show, compare, adopt and cancel calibrations.",
    "prices": "The price book: list, add, import.",
    "queue": "Queue: list; pause and resume it (organisers).",
    "quota": "Your quotas and their use.",
    "webhook": "Webhooks: signed events, posted to an address.",
    "workers": "Workers: list; confirm, pause or resume one (organisers).",
}
COMMANDS = read_rows(ROWS, GROUPS, Words(PARAMETERS, vars(answers), BODIES, PAGES))
COMMANDS["admin price"].command("owned")(owned)
COMMANDS["prices"].command("import")(import_prices)
