"""Buttons of a submission's page by the reader's role, each a form without a typed id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from finishline.rules.verification.purposes import ABLATION
from server.base.standing import KIND_THAT_CHECKS

View = Mapping[str, Any]


@dataclass(frozen=True)
class Role:
    """Changes that the reader of a submission's page may ask for."""

    may_withdraw: bool
    may_verify: bool
    organises: bool
    may_measure_factors: bool = False


@dataclass(frozen=True)
class Action:
    """A button: the address of its form, and the fields that it sends."""

    words: str
    address: str
    fields: dict[str, str] = field(default_factory=dict)
    is_main: bool = False


def actions_of(
    submission: View, place: View | None, role: Role, unable: str | None
) -> list[Action]:
    """The buttons in their order: requests first, then the ones that only read, last withdrawal.

    `unable` is why the reference cannot replay the submission.
    """
    here, name = f"/submissions/{quote(submission['id'], safe='')}", submission["id"]
    is_package = submission["package"] is not None
    actions = []
    if role.may_verify and not role.organises:
        words = "Measure again" if is_package else "Request verification"
        actions.append(Action(words, f"{here}/verify", is_main=True))
    if role.organises and unable is None and not submission["withdrawal"]:
        checked = {"code": "package", "logs": "train"}.get(submission["kind"], "inference")
        fields = {"preview": "yes", "kind": KIND_THAT_CHECKS[checked], "submissions": name}
        words = "Rerun" if submission["verifications"] else "Verify"
        actions.append(Action(words, "/console/verify", fields, is_main=True))
        if submission["kind"] != "inference":
            actions.append(Action("Head-to-head", "/console/head-to-heads", {"challenger": name}))
    if role.may_measure_factors:
        actions.append(Action("Measure factors", f"{here}/verify", {"kind": ABLATION.name}))
    beside = [other["submission_id"] for other in (place or {}).get("others", ())][:1]
    actions.append(Action("Compare", "/compare", {"ids": ",".join([name, *beside])}))
    actions.append(Action("Share", here, {"tab": "cite"}))
    if role.may_withdraw:
        actions.append(Action("Withdraw", f"{here}#withdraw", {"tab": "history"}))
    return actions
