"""Who may do what: the roles of users and of their tokens, and the scopes a token may have."""

from collections.abc import Iterable
from typing import Literal, get_args

Role = Literal["submitter", "organiser", "admin", "worker"]
Scope = Literal["read", "submit", "organise", "administer", "work", "tokens"]

ROLES: tuple[Role, ...] = get_args(Role)
SCOPES: tuple[Scope, ...] = get_args(Scope)
# An admin may do whatever an organiser may.
ORGANISERS: tuple[Role, ...] = ("organiser", "admin")
# From the least to the most: a user's role is the highest that their tokens may have.
RANK: dict[str, int] = {"worker": 0, "submitter": 1, "organiser": 2, "admin": 3}
# What a token of a role may do at most. `read` is every GET that asks for a token, `tokens` making,
# rotating and revoking one's own; a worker's token does none of it, for it lies on the host of a
# stranger.
SCOPES_OF: dict[str, tuple[Scope, ...]] = {
    "submitter": ("read", "submit", "tokens"),
    "organiser": ("read", "submit", "organise", "tokens"),
    "admin": ("read", "submit", "organise", "administer", "tokens"),
    "worker": ("read", "work"),
}


def may_hold(user_role: str, token_role: str) -> bool:
    """Whether a user of a role may have tokens of another; a worker's token may be anybody's."""
    return RANK[token_role] <= RANK[user_role]


def is_within(role: str, other: str) -> bool:
    """Whether everything a role may do the other may do too."""
    return set(SCOPES_OF[role]) <= set(SCOPES_OF[other])


def in_order(scopes: Iterable[str]) -> list[str]:
    """Scopes as they are kept: each once, in one order."""
    wanted = set(scopes)
    return [scope for scope in SCOPES if scope in wanted]
