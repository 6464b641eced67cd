"""The API's description: groups by a reader's tasks, summaries, and examples of one story."""

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
    """Use each function's name as operation id, and its docstring's sentence as summary."""
    for route in routes:
        describe(getattr(getattr(route, "original_router", None), "routes", ()))
        if isinstance(route, APIRoute) and route.summary is None:
            route.operation_id = route.name
            first, _, rest = route.description.partition("\n\n")
            route.summary = " ".join(first.split()).removesuffix(".")
            route.description = rest


def named_by_nouns(described: dict[str, Any]) -> dict[str, Any]:
    """Name the schema `SubmissionView` "Submission". Only code has to tell it from the row."""
    views = (name for name in described["components"]["schemas"] if name.endswith("View"))
    nouns = "|".join(name.removesuffix("View") for name in views)
    quoted = rf'"((?:#/components/schemas/)?(?:{nouns}))View"'
    found: dict[str, Any] = orjson.loads(re.sub(quoted, r'"\1"', orjson.dumps(described).decode()))
    return found


Schema = dict[str, Any]
Schemas = dict[str, Schema]
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
# Values of one story, ada's log submission on digits and its replay by the worker gpu-7, by field
# or by "Schema.field". A field takes a value of its type.
STORY: dict[str, tuple[Any, ...]] = {
    "about": ("Classify the digits of 1,797 small pictures.",),
    "accelerator": ("NVIDIA H100 80GB HBM3",),
    "accelerator_count rank": (1,),
    "action": ("submission.withdraw",),
    "actor": ("olivia",),
    "answer": ("ok",),
    "at": ("2026-11-24T12:00:00+00:00",),
    "backend": ("onnxruntime",),
    "batch_size batch_sizes": (64,),
    "benchmark benchmark_id": ("digits",),
    "benchmark_version": ("1",),
    "best_quality": (98.66,),
    "bound": ("memory",),
    "challenger first hidden": ("063a47w5fhf3",),
    "clock official_clock": ("mlperf",),
    "code": ("within_band",),
    "commit": ("4b825dc642cb6eb9a060e54bf8d69288fbee4904",),
    "configuration": ("fp32, 4096 x 4096",),
    "date": ("2026-11-24",),
    "detail": ("There is no submission 'none'.",),
    "direction": ("higher",),
    "division divisions": ("closed",),
    "email": ("ada@example.org",),
    "environment": ("torch-2.13-cpu",),
    "epoch epochs epochs_to_target": (7.0,),
    "error": ("its log is missing",),
    "field": ("tta_seconds", "value"),
    "figure measure": ("seconds",),
    "file": ("run_0.log",),
    "formula": ("mean of the runs",),
    "framework": ("torch 2.13.0",),
    "evidence": ("measured",),
    "hardware hardware_class": ("1x-nvidia-h100-80gb-hbm3",),
    "highest_role role": ("submitter",),
    "holder second": ("7fhwwsrtzbfm",),
    "how": ("a matrix product of 4096 x 4096",),
    "instance": ("p5.4xlarge",),
    "kind": ("replay", "train"),
    "kinds": ("record.set",),
    "label": ("laptop",),
    "license": ("Apache-2.0",),
    "link": ("https://example.org/join#c0de",),
    "log_tail": ("epoch 7: 97.66",),
    "message": ("all 22 evaluations of the replays lie in the reference band",),
    "metric": ("top1Accuracy",),
    "model": ("small net",),
    "module BoardView.kind SubmissionView.kind SubmissionPreview.kind": ("train",),
    "moment": ("before",),
    "name worker": ("gpu-7",),
    "next_step": ("Start the worker again.",),
    "nonce": ("c2f1a6",),
    "note": ("The official ranking has another target.",),
    "organisation OrganisationView.name": ("Example Labs",),
    "origin": ("probed",),
    "outcome": ("verified",),
    "p_value": (0.004,),
    "package public_key seal": (SHA256,),
    "pending_decisions verification_id": ("04876bb817e600e",),
    "precision": ("fp32",),
    "problems": ("record 12 was changed",),
    "processor": ("AMD EPYC 9554",),
    "processor_count": (16,),
    "provider": ("aws",),
    "purpose": ("replay",),
    "quality": (97.66,),
    "ratio": (0.98,),
    "reason": ("record claim",),
    "region": ("us-east-1",),
    "scope": ("own",),
    "secret": ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",),
    "seed": (253086427,),
    "sentence": ("Open until 2027-02-01.",),
    "source": ("https://example.org/data",),
    "source_url": ("https://example.org/prices",),
    "state": ("done", "idle"),
    "status": ("verified", 200),
    "subject_kind": ("user", "submission"),
    "submissions": ("063a47w5fhf3", 12),
    "submitter user InvitationView.name UserView.name": ("ada",),
    "target": (97.5,),
    "task": ("Image classification",),
    "title": ("Digits",),
    "token": ("fl_ifZW2b5QlE5UnyfmIVTuv2Tv7nbuLkfOXKIKyVBA2m4",),
    "trained_with": ("reference",),
    "tta_display": ("1.892 s",),
    "unit": ("percent",),
    "verdict": ("verified", "pass"),
    "version": ("1", 1),
    "weight": ("passes",),
    "why": ("It is withdrawn.",),
    "BoardView.metric PreviewView.metric": ("tta",),
    "SystemView.name": ("one H100",),
}
VALUES = {name: values for names, values in STORY.items() for name in names.split()}
# Moments that have passed in the story. Others are null where they may be.
COME = ("ended_at", "last_seen_at", "last_used_at", "measured_at", "started_at", "submitted_at")
# Values by the end of a field's name, after the values by its whole name.
ENDS: dict[str, tuple[Any, ...]] = {
    "sha256": (SHA256,),
    "url": ("https://example.org/finishline",),
    "seconds": (1.892,),
    "percent": (2.4,),
    "hour": (3.9,),
    "usd": (12.5,),
    "bytes": (6703,),
    "gib": (80.0,),
    "id": ("063a47w5fhf3", 17),
    "by": ("olivia",),
    "because": ("torch 2.13",),
}
FORMATS = {"date-time": "2026-11-24T12:00:00Z", "date": "2026-11-24"}
PLAIN: dict[str, Any] = {
    "string": "as stated",
    "integer": 3,
    "number": 1.5,
    "boolean": False,
}
TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


def add_examples(schemas: Schemas) -> None:
    """Give each schema an example, unless it states one."""
    for title, schema in schemas.items():
        if not schema.get("examples"):
            schema["examples"] = [_example(schema, title, "", schemas)]


def _example(schema: Schema, title: str, name: str, schemas: Schemas) -> Any:
    """Make an example of a field of the schema called `title`, or of the schema itself."""
    if "$ref" in schema:
        title = schema["$ref"].rpartition("/")[2]
        own = schemas[title].get("examples")
        return own[0] if own else _example(schemas[title], title, name, schemas)
    if "anyOf" in schema:
        chosen = _choice(schema["anyOf"], title, name)
        return None if chosen is None else _example(chosen, title, name, schemas)
    kind = schema.get("type", "object")
    if kind == "object":
        return _table(schema, title, schemas)
    if kind == "array":
        items = schema.get("items", {})
        return [_example(items, title, name, schemas)] * max(1, schema.get("minItems", 1))
    return _value(schema, title, name, kind)


def _choice(choices: list[Schema], title: str, name: str) -> Schema | None:
    """Choose the first type with a value in the story, else null if allowed, else any type."""
    told = [each for each in choices if _is_told(each, title, name)]
    may_be_null = any(each.get("type") == "null" for each in choices)
    if told or not may_be_null:
        return [*told, *choices][0]
    return None


def _is_told(schema: Schema, title: str, name: str) -> bool:
    kind = schema.get("type")
    if schema.get("format") in FORMATS:
        return name in COME
    return kind in TYPES and bool(_fitting(schema, title, name, kind))


def _table(schema: Schema, title: str, schemas: Schemas) -> dict[str, Any]:
    """Fill every required field, and each optional field of one value."""
    required = schema.get("required", ())
    return {
        name: _example(field, title, name, schemas)
        for name, field in schema.get("properties", {}).items()
        if name in required or field.get("type") in TYPES
    }


def _fitting(schema: Schema, title: str, name: str, kind: str) -> list[Any]:
    own = VALUES.get(f"{title}.{name}") or VALUES.get(name, ())
    known = [*own, *ENDS.get(name.rpartition("_")[2], ())]
    return [
        value
        for value in known
        if isinstance(value, TYPES[kind])
        and isinstance(value, bool) == (kind == "boolean")
        and value in schema.get("enum", [value])
    ]


def _value(schema: Schema, title: str, name: str, kind: str) -> Any:
    if "const" in schema:
        return schema["const"]
    fitting = _fitting(schema, title, name, kind)
    if "enum" in schema:
        return [*fitting, *schema["enum"]][0]
    value = FORMATS.get(schema.get("format", "")) or next(iter(fitting), PLAIN[kind])
    if kind in ("integer", "number"):
        value = max(min(value, schema.get("maximum", value)), schema.get("minimum", value))
    return value
