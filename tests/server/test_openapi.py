"""The description of the API at /openapi.json."""

import difflib
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from server.base.places import SOURCE
from tests.support.copies import serving
from tests.support.served import served
from tests.support.services import services_of

RENEW = "FINISHLINE_RENEW=1 python -m pytest tests/server/test_openapi.py"
STORED = Path(__file__).parents[1] / "data" / "openapi.json"
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    with served(tmp_path_factory.mktemp("described")) as (client, _):
        return client.get("/openapi.json").json()


def operations(schema):
    return {
        f"{method.upper()} {path}": operation
        for path, item in schema["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


def test_no_table_inside_a_schema_gets_the_name_of_another(schema):
    # A generated client names it by the schema and the field.
    found = schema["components"]["schemas"]
    inside = {
        f"{name}{field.title().replace('_', '')}"
        for name, one in found.items()
        for field, of in one.get("properties", {}).items()
        for kind in (of, *of.get("anyOf", ()))
        if kind.get("type") == "object"
    }

    assert inside & found.keys() == set()


def test_every_operation_with_a_rule_of_its_own_in_the_contract_check_is_there(schema):
    config = tomllib.loads((STORED.parents[2] / "schemathesis.toml").read_text())
    named = {name for rules in config["operations"] for name in rules["include-name"]}
    assert named - operations(schema).keys() == set()


def test_every_operation_says_what_it_does(schema):
    found = operations(schema)
    groups = [tag["name"] for tag in schema["tags"]]

    assert len(found) >= 20
    for name, operation in found.items():
        summary = operation["summary"]
        assert summary == summary.splitlines()[0].removesuffix("."), name
        assert operation["description"].rstrip().endswith("."), name
        assert operation["tags"], name
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids)
    assert (groups[0], groups[-1]) == ("leaderboards", "health")
    assert {tag for operation in found.values() for tag in operation["tags"]} == set(groups)


def test_every_operation_documents_its_refusals_as_they_are(schema):
    for name, operation in operations(schema).items():
        refusal = operation["responses"]["4XX"]
        assert refusal["description"], name
        problem = refusal["content"]["application/problem+json"]["schema"]
        assert set(problem["required"]) == {"type", "title", "status", "detail", "problems"}
        # FastAPI's own error body is never sent.
        assert "422" not in operation["responses"], name
    assert "HTTPValidationError" not in schema["components"]["schemas"]


def test_a_refusal_has_the_documented_fields(schema, client):
    documented = operations(schema)["GET /api/v1/leaderboards/{benchmark_id}"]["responses"]["4XX"]
    table = documented["content"]["application/problem+json"]["schema"]["properties"]
    body = client.get("/api/v1/leaderboards/digits", params={"limit": 0}).json()

    assert set(body) == set(table)
    assert set(body["problems"][0]) == set(table["problems"]["items"]["properties"])


def test_references_lead_somewhere(schema):
    def references(value):
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [r for item in value.values() for r in references(item)]
        if isinstance(value, list):
            return [r for item in value for r in references(item)]
        return []

    found = references(schema)
    assert found
    for reference in found:
        place = schema
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_the_example_of_a_submission_is_one(schema, digits_submission, submit):
    form = operations(schema)["POST /api/v1/submissions"]["requestBody"]["content"]
    digits_submission.claim = form["multipart/form-data"]["examples"]["digits"]["value"][
        "submission"
    ]

    assert submit(digits_submission).status_code == 201


WORDS = {"description", "summary", "title", "examples"}


def without_words(value, *, named=False):
    """The document without its words, and without the refusal that every operation has."""
    if isinstance(value, list):
        return [without_words(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: item for name, item in value.items() if named or name not in WORDS | {"4XX"}}
    return {
        name: without_words(item, named=name == "properties" and not named)
        for name, item in kept.items()
    }


def written(value, indent=0):
    """JSON with sorted names. A part that fits into a line takes one."""
    line = json.dumps(value, sort_keys=True)
    if indent + len(line) <= 100 or not isinstance(value, dict | list):
        return line
    inside = "\n" + " " * (indent + 1)
    if isinstance(value, list):
        parts = [written(item, indent + 1) for item in value]
        return f"[{inside}{f',{inside}'.join(parts)}\n{' ' * indent}]"
    parts = [f'"{name}": {written(item, indent + 1)}' for name, item in sorted(value.items())]
    return f"{{{inside}{f',{inside}'.join(parts)}\n{' ' * indent}}}"


def test_document_is_the_stored_one(schema):
    found = written(without_words(schema)) + "\n"
    if os.environ.get("FINISHLINE_RENEW"):
        STORED.write_text(found)
    lines = difflib.unified_diff(
        STORED.read_text().splitlines(), found.splitlines(), "stored", "now", lineterm="", n=4
    )
    different = list(lines)
    assert not different, "\n".join([*different, f"If you mean this change: {RENEW}"])


def test_every_address_that_the_documents_name_is_one(schema):
    templates = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in schema["paths"]]
    pages = [SOURCE / "README.md", *(SOURCE / "docs").glob("*.md")]
    named = {
        (page.name, address.rstrip("/.,"))
        for page in pages
        for address in re.findall(r"/api/v1/[\w/{}.-]*", page.read_text())
    }

    assert len(named) > 50
    for page, address in named:
        assert any(re.fullmatch(template, address) for template in templates), f"{page}: {address}"


def test_applications_of_a_process_share_the_routes_that_were_analysed(client, settings):
    with serving(settings) as other:
        of_both = [
            (one, two)
            for one, two in zip(client.app.routes, other.app.routes, strict=True)
            if hasattr(one, "original_router")
        ]
        assert len(of_both) > 30
        assert all(one is two for one, two in of_both)
        assert services_of(client) is not services_of(other)


def test_every_schema_has_a_short_example_that_is_one(schema):
    for name, own in schema["components"]["schemas"].items():
        whole = {"$ref": f"#/components/schemas/{name}", "components": schema["components"]}
        told = Draft202012Validator(whole, format_checker=FormatChecker())
        assert own["examples"], name
        for example in own["examples"]:
            assert not [f"{name}: {error.message}" for error in told.iter_errors(example)]
            assert len(json.dumps(example)) < 4000, name


@pytest.mark.parametrize(
    ("moved", "to"),
    [
        ("/trainings", "POST /api/v1/submissions"),
        ("/duels", "POST /api/v1/head-to-heads"),
        ("/workers/gpu-1/pause", "PATCH /api/v1/workers/NAME"),
        ("/verifications/v1/decide", "POST /api/v1/verifications/ID/decision"),
    ],
)
def test_an_address_that_moved_names_the_new_one(client, moved, to):
    for method in ("GET", "POST"):
        answer = client.request(method, f"/api/v1{moved}")
        assert (answer.status_code, to in answer.json()["hint"]) == (410, True)
    assert client.get("/api/v1/nothing").status_code == 404
    assert client.get("/duels").status_code == 404
