"""The API's description in words: groups in the order of a reader's tasks, a summary for each."""

import re
from collections.abc import Iterable
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

GROUPS = {
    "leaderboards": "Read ranked results, records and comparisons.",
    "benchmarks": "Read definitions, convergence and dates; add a benchmark.",
    "submissions": "Send logs, or code to be trained and timed; read and withdraw them.",
    "verifications": "Have a submission trained again, follow it, decide on it; head-to-heads.",
    "proofs": "Download a signed proof and the keys that check it.",
    "accounts": "Read your own account and make tokens.",
    "quotas": "Read how much may be asked for, and change it.",
    "notices": "Receive events by webhook.",
    "prices": "Read and extend the price book.",
    "workers": "Read workers and queues; pause them. Workers report here.",
    "calibrations": "Measure how a reference converges, and adopt it.",
    "users": "Manage users and organisations.",
    "audit": "Read the log of actions and check its chain.",
    "health": "Ask whether the server is up and ready.",
}
TAGS = [{"name": name, "description": words} for name, words in GROUPS.items()]


def describe(routes: Iterable[BaseRoute]) -> None:
    """Give each operation its function's name as id, and its docstring's sentence as summary."""
    for route in routes:
        describe(getattr(getattr(route, "original_router", None), "routes", ()))
        if isinstance(route, APIRoute) and route.summary is None:
            route.operation_id = route.name
            first, _, rest = route.description.partition("\n\n")
            route.summary = " ".join(first.split()).removesuffix(".")
            route.description = rest


def named_by_nouns(described: dict[str, Any]) -> dict[str, Any]:
    """The same with "Submission" for the schema `SubmissionView`: only code has rows beside it."""
    names = "|".join(name for name in described["components"]["schemas"] if name.endswith("View"))
    text = re.sub(rf'"(#/components/schemas/)?({names})"', _noun, orjson.dumps(described).decode())
    found: dict[str, Any] = orjson.loads(text)
    return found


def _noun(quoted: re.Match[str]) -> str:
    return f'"{quoted[1] or ""}{quoted[2].removesuffix("View")}"'
