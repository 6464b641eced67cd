"""Commands of one request each, as rows: rename, add or remove one here."""

from collections.abc import Callable
from typing import Any, Literal

import typer

from finishline.api.people import Role
from finishline.cli import answers
from finishline.cli.client import ServerClient
from finishline.cli.commands.lists import add_prices, invite, owned
from finishline.cli.commands.proof import audit_log
from finishline.cli.errors import UsageError
from finishline.cli.rows import (
    REQUIRED,
    Body,
    Given,
    Words,
    argument,
    asks_server,
    option,
    read_rows,
)
from finishline.cli.screen import Screen

ROWS = """
account set --display-name
    PATCH /me -> account_lines
    Change the name that readers see with your results. "" is the name of your account again.
account token list
    GET /me/tokens -> tokens
    List your tokens, without their secrets.
account token add --role --label --days
    POST /me/tokens -> secret_lines
    Make a token for yourself, with at most your token's rights. It is shown only once.
account token remove ID
    DELETE /me/tokens/{id} -> Revoked tokens: {revoked}.
    Revoke one of your tokens and every token made with it.

account webhook list
    GET /webhooks -> webhooks
    List your webhooks.
account webhook add ADDRESS --kind --benchmark --all
    POST /webhooks -> secret_lines
    Make a webhook, by default for your own submissions. Its secret is shown only once.
account webhook remove ID
    DELETE /webhooks/{id} -> Webhook {id} is removed.
    Remove a webhook and the log of its deliveries.
account webhook set WEBHOOK HOOK_STATE
    PATCH /webhooks/{webhook} -> Webhook {webhook} is {state}d.
    Enable a webhook that was disabled, or disable one.
account webhook test WEBHOOK
    POST /webhooks/{webhook}/test
    -> Delivery {id} is queued: finishline account webhook deliveries {webhook}
    Send a test message.
account webhook deliveries WEBHOOK --state --limit=50
    GET /webhooks/{webhook}/deliveries -> deliveries
    List a webhook's deliveries and their responses.
account webhook resend WEBHOOK DELIVERY
    POST /webhooks/{webhook}/deliveries/{delivery}/repeat -> Delivery {delivery} is queued again.
    Send a message again, with the same id.
account webhook secret WEBHOOK
    POST /webhooks/{webhook}/secret -> secret_lines
    Make a fresh secret, which signs all messages from now on. It is shown only once.

admin user list --q
    GET /users -> users
    List users by name.
admin user add NAME --role=submitter --organisation --email --display-name
    POST /users -> new_user_lines
    Add a user. Make their tokens with `finishline admin token add`.
admin user set NAME --role --organisation --email --display-name --disable/--enable
    PATCH /users/{name} -> users from .
    Change a user's role, organisation, e-mail, display name or access. Omitted options stay, and ""
    removes a value.
admin user approve NAME --undo
    PUT /users/{name}/known -> users from .
    Let workers without a memory cgroup train a user's code submissions (organisers).
    Such a sandbox bounds less of its host's memory: approve only users whom you know.
admin user remove NAME --yes
    POST /users/{name}/erasure -> {name} is {view[name]} from now on.
    Replace a person's name by former-17 everywhere, and end their access.
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
admin token add USER --role=submitter --label --days
    POST /tokens -> secret_lines
    Make a token for a user. It is shown only once.
admin token remove ID
    DELETE /tokens/{id} -> Revoked tokens: {revoked}.
    Revoke a token and every token made with it.
admin invite list
    GET /invitations -> invitations
    List the links that you made. An admin sees all.
admin invite remove ID
    DELETE /invitations/{id} -> Link {id} is revoked.
    Revoke a link. People who joined with it stay.

admin quota list
    GET /quotas -> all_quotas_lines
    List the quotas that differ from the defaults (organisers only).
admin quota show USER
    GET /quotas/{user} -> quota_lines
    Show the quotas of a user and their use (organisers only).
admin quota set USER --reason! --submissions-per-day --gpu-hours-per-month
    PUT /quotas/{user} -> quota_lines
    Set the quotas of a user (organisers only).
admin price list --provider --instance --region --on
    GET /prices -> prices
    List prices, the latest of each instance first.

admin worker list
    GET /workers -> workers_lines
    List the workers that have reported to the server.
admin worker set WORKER ORDER --reason
    PATCH /workers/{name} -> worker_lines
    Confirm a worker's hardware class, so that it gets attempts, or pause or resume the worker.
    A paused worker finishes its attempt and leases no other. To pause one needs a --reason.
admin queue list
    GET /queue -> queue_lines
    List waiting attempts in the order in which they start.
admin queue set PAUSE --reason
    PATCH /queue -> Every queue is {pause}d.
    Pause every queue, or end the pause. Running attempts continue. To pause needs a --reason.

admin review VERIFICATION DECISION --reason!
    POST /verifications/{verification}/decision -> Verdict of {id}, {outcome}: {decision}. {reason}
    Publish the verdict of a rerun, or keep the published verdict (organisers only).
admin withdraw SUBMISSION --reason! --undo
    POST /submissions/{submission}/withdrawal | /submissions/{submission}/reinstatement
    -> shown_submission_lines
    Withdraw a submission from its board, or reinstate it. Its page stays.
admin waive SUBMISSION RULE --reason! --undo
    POST /submissions/{submission}/waivers | /submissions/{submission}/waivers/{rule}/revocation
    -> shown_submission_lines
    Waive a rule for one submission, so that it may rank (organisers only).
admin retire SUBMISSION --reason!
    POST /submissions/{submission}/retirement -> Submission {id} is retired. Its record stays.
    Take first place from a holder that can't be trained any more (organisers).
    The previous holder that can be trained follows. `finishline admin withdraw ID --undo` undoes
    it.

benchmark list
    GET /benchmarks -> benchmarks
    List the server's benchmarks.
benchmark calibrate list --benchmark --limit=20
    GET /calibrations -> calibrations
    List calibrations, newest first.
benchmark calibrate compare ID [WITH]
    GET /calibrations/{id}/compare -> compared sizes from sizes
    Compare two calibrations batch size by batch size.
benchmark calibrate adopt ID --reason!
    POST /calibrations/{id}/adoption -> calibration_lines
    Use a calibration for replays planned from now on (organisers only).
benchmark calibrate cancel ID
    POST /calibrations/{id}/cancellation -> calibration_lines
    Cancel the remaining runs and keep the finished ones (organisers only).
"""


@asks_server
def account(server: ServerClient, screen: Screen, context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        view = server.get("/me")
        view |= {"quotas": server.get("/me/quota")["quotas"]}
        screen.answer(view, [*answers.account_lines(view, {}), *answers.quota_lines(view, {})])


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
    "ID": argument("id", "Id, as the list shows it."),
    "HOOK_STATE": argument("state", "The change to make.", Literal["enable", "disable"]),
    "NAME": argument("name", "Name of the user or organisation."),
    "ORDER": argument("order", "The change to make.", Literal["confirm", "pause", "resume"]),
    "PAUSE": argument("pause", "Pause, or end the pause.", Literal["pause", "resume"]),
    "RULE": argument("rule", "Code of the rule, such as too_few_runs."),
    "SUBMISSION": argument("submission", "Id of a submission."),
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
    "--gpu-hours-per-month": option(
        "gpu_seconds_per_month",
        f"Accelerator hours: {AMOUNT}",
        flag="--gpu-hours-per-month",
        callback=_amount(3600),
    ),
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
    "--on": option("on", "Only prices valid on a day, such as 2026-11-21.", metavar="DAY"),
    "--organisation": option("organisation", "Organisation of the user."),
    "--provider": option("provider", "Only this provider."),
    "--q": option("q", "Only those with this text in their name or e-mail."),
    "--reason": option("reason", REASON),
    "--reason!": option("reason", REASON, default=REQUIRED),
    "--region": option("region", "Only this region."),
    "--role": option("role", "Role of the token, or highest role of the user's.", Role),
    "--role=submitter": option(
        "role", "Role of the token, or highest role of the user's.", Role, "submitter"
    ),
    "--state": option("state", "waiting, delivered or failed."),
    "--submissions-per-day": option(
        "submissions_per_day", f"Submissions: {AMOUNT}", callback=_amount(1)
    ),
    "--undo": option("undo", "Take it back.", bool, False),
    "--user": option("user", "Only tokens of this user."),
    "--yes": option("yes", "Nothing brings the name back.", bool, False),
}


def _changes(given: Given) -> dict[str, Any]:
    changes = {
        name: None if value == "" else value
        for name, value in given.items()
        if name != "name" and value is not None
    }
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


def _paused(given: Given) -> dict[str, Any]:
    order = given.get("order") or given["pause"]
    if order == "pause" and not given["reason"]:
        raise UsageError("A pause needs a --reason, which is shown to those who wait.")
    change = {"confirmed": True} if order == "confirm" else {"paused": order == "pause"}
    return change if given["reason"] is None else change | {"reason": given["reason"]}


BODIES: dict[str, Body] = {
    "account webhook set": lambda given: {"enabled": given["state"] == "enable"},
    "account set": lambda given: {"display_name": given["display_name"] or None},
    "account webhook add": _events,
    "admin queue set": _paused,
    "admin user approve": lambda given: {"known": not given["undo"]},
    "admin user remove": _erasure,
    "admin worker set": _paused,
    "admin user set": _changes,
}
PAGES = {"admin user list": "after", "admin worker list": "cursor"}
GROUPS = {
    "account": "Show your account and quotas. Change them, your tokens and your webhooks.",
    "account token": "Your own tokens.",
    "account webhook": "Signed events, posted to an address.",
    "admin": "Users, tokens, quotas, prices, workers and results of a server (organisers, admins).",
    "admin user": "Users.",
    "admin organisation": "Organisations.",
    "admin token": "Tokens of others.",
    "admin invite": "Links by which people join.",
    "admin quota": "Quotas of users.",
    "admin price": "The price book.",
    "admin worker": "Workers of the server.",
    "admin queue": "Waiting attempts.",
    "benchmark": "Benchmarks of a server, their phases, files and calibrations, and your own.",
    "benchmark calibrate": "Measure how many epochs a reference needs (organisers).",
}
COMMANDS = read_rows(ROWS, GROUPS, Words(PARAMETERS, vars(answers), BODIES, PAGES))
COMMANDS["account"].callback(invoke_without_command=True, no_args_is_help=False)(account)
COMMANDS["admin invite"].command("add")(invite)
COMMANDS["admin price"].command("add")(add_prices)
COMMANDS["admin price"].command("owned")(owned)
ADMIN = COMMANDS["admin"]
ADMIN.add_typer(COMMANDS["account webhook"], name="webhook")
ADMIN.command("audit")(audit_log)
