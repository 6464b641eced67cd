"""Hostile text in every field that a person or a worker can send is text on every page."""

import html
import re
from html.parser import HTMLParser
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from tests.support.addresses import addresses, walk

pytestmark = pytest.mark.timeout(420)  # 20 s of work, of which an idle machine waits 10.
MARKUP = ("<script>alert(", "=1+1'\"")
# No page shows these.
NOT_ON_A_PAGE = {
    "POST /attempts/{attempt_id}/report precision.flags.*",
    "POST /workers/probes canary.how",
}
# A field that is an id, a name of something that must exist, or a worker's own note.
NOT_FREE = re.compile(
    r"""(?x) /claim\ | /evaluations\ | \ benchmark$ | \ challenger$ | \ holder$ | \ subject$
    | \ submissions\.\[\]$ | attempt_id$ | POST\ /workers/probes\ worker$ | hardware_class$
    | /report\ (system|all_reduce|canaries|precision\.scope|runs\.\[\]\.telemetry)
    | \ figures\.\*\.unit$ | \ canary\.configuration$ | environments\.\*$ | nodes\.\[\]
    | erasure\ name$ | division$ | source_commit$ | organisation$
    | /witness-token\ reason$ """
)


@pytest.fixture(scope="session")
def answers(hostile):
    """Every address as an admin reads it, the API by a token and pages in the browser."""
    api, browser = hostile.world.headers("ada"), hostile.world.browser("ada")
    return {
        address: hostile.client.get(address, headers=api if path.startswith("/api/") else browser)
        for path, address in addresses(hostile.client, hostile.known)
        if not path.endswith("/events")
    }


def with_markup(answers):
    """The addresses of the pages where a text is more than text."""
    pages = of_type(answers, "text/html")
    return [a for a, page in pages.items() if any(mark in page.text for mark in MARKUP)]


def of_type(answers, kind):
    return {a: r for a, r in answers.items() if r.headers.get("content-type", "").startswith(kind)}


def test_no_text_becomes_markup(answers):
    pages = of_type(answers, "text/html")

    assert len(pages) > 150
    assert with_markup(pages) == []
    assert max(answer.status_code for answer in answers.values()) < 500


class Page(HTMLParser):
    """What a page could run: handlers, scripts and links."""

    def __init__(self, text):
        super().__init__()
        self.code, self.forms = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        told = {name: value or "" for name, value in attributes}
        self.code += [f"{tag} {name}" for name in told if name.startswith("on")]
        if tag == "script" and told.get("type") != "application/json":
            self.code += [] if told.get("src", "").startswith("/") else [self.rawdata[:60]]
        for name in ("href", "src", "action"):
            self.code += [told[name]] if told.get(name, "").startswith("javascript:") else []
        if tag == "form":
            self.forms.append((told.get("method", "get"), told.get("action", ""), {}))
        elif tag in ("input", "textarea", "select", "button") and self.forms and "name" in told:
            is_text = told.get("type", "text") not in ("hidden", "checkbox", "radio", "submit")
            typed = is_text and tag in ("input", "textarea")
            value = "=1+1'\"><script>alert('form')</script>" if typed else told.get("value", "")
            self.forms[-1][2].setdefault(told["name"], value)


def test_pages_run_files_of_the_server(answers):
    pages = of_type(answers, "text/html")
    assert {address: code for address in pages if (code := Page(pages[address].text).code)} == {}


def test_signed_in_pages_are_not_stored(answers):
    for address, page in of_type(answers, "text/html").items():
        is_own = address.startswith(("/console", "/account"))
        assert not is_own or page.headers.get("cache-control") == "no-store", address


def test_charts_name_hostile_text_as_text(answers):
    charts = {a: r for a, r in answers.items() if "/charts/" in a and a.endswith(".json")}

    assert len(charts) > 8
    assert [address for address, answer in charts.items() if MARKUP[0] in answer.text] == []


def test_feeds_and_badges_are_xml(answers):
    found = of_type(answers, "image/svg") | of_type(answers, "application/atom")

    assert len(found) > 8
    for address, answer in found.items():
        parts = ElementTree.fromstring(answer.text).iter()  # noqa: S314  of this server
        assert "script" not in {part.tag.rpartition("}")[2] for part in parts}, address


def test_other_answers_are_not_sniffed(answers):
    others = {a: r for a, r in answers.items() if a not in of_type(answers, "text/html")}

    assert len(others) > 100
    assert {r.headers.get("x-content-type-options") for r in others.values()} == {"nosniff"}


def test_every_text_is_on_a_page(answers, hostile):
    pages = "".join(page.text for page in of_type(answers, "text/html").values())
    missing = {
        field
        for number, field in enumerate(hostile.texts.fields)
        if f"&lt;script&gt;alert({number})" not in pages
    }

    assert missing == NOT_ON_A_PAGE


def test_every_free_field_is_sent(hostile):
    document = hostile.client.get("/openapi.json").json()
    free = {
        f"{method.upper()} {path.removeprefix('/api/v1')} {field}"
        for path, item in document["paths"].items()
        for method, operation in item.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for field in free_fields(content["schema"], document)
    }
    missing = {name for name in free - set(hostile.texts.fields) if not NOT_FREE.search(name)}

    assert len(free & set(hostile.texts.fields)) > 30
    assert missing == set()


def free_fields(schema, document, depth=0):
    """The names of the texts of a schema that take any words."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", ()):
        yield from free_fields(choice, document, depth)
    takes_all = re.search(schema.get("pattern", ""), "=1+1'\"><script>alert(1)</script>")
    if schema.get("type") == "string" and not {"enum", "const", "format"} & set(schema):
        yield from [""] if takes_all else []
    inside = dict(schema.get("properties", {})) if depth < 4 else {}
    inside |= {"[]": schema["items"]} if "items" in schema else {}
    more = schema.get("additionalProperties")
    inside |= {"*": more} if isinstance(more, dict) else {}
    for name, part in inside.items():
        for field in free_fields(part, document, depth + 1):
            yield f"{name}.{field}".rstrip(".")


def test_pages_show_hostile_input_as_text(answers, hostile):
    """Queries of pages, names in addresses, and forms that are shown again."""
    text = "=1+1'\"><script>alert('query')</script>"
    browser = hostile.world.browser("ada")
    asked = {}

    def ask(method, address, **more):
        answer = hostile.client.request(method, address, headers=browser, **more)
        asked[f"{method} {address} {sorted(more.get('data', more.get('params', {})))}"] = answer

    for path, route in walk(hostile.client.app.routes):
        if "GET" in route.methods and not path.startswith("/api/") and hasattr(route, "dependant"):
            ask("GET", re.sub(r"{\w+}", quote(text.replace("/", "")), path))
            for name in queries_of(route.dependant) | {"q", "sort", "division"}:
                ask("GET", path.format_map(Ids(hostile.known)), params={name: text})
    for address, page in of_type(answers, "text/html").items():
        for method, action, fields in Page(page.text).forms:
            if method.lower() == "post" and "sign-out" not in action:
                ask("POST", html.unescape(action) or address, data=fields, follow_redirects=False)

    assert len(asked) > 300
    assert with_markup(asked) == []
    assert max(answer.status_code for answer in asked.values()) < 500
    assert sum("&lt;script&gt;alert(" in answer.text for answer in asked.values()) > 100


class Ids(dict):
    def __missing__(self, name):
        return "none"


def queries_of(dependant):
    """The names of the queries of a page."""
    own = {each.alias for each in dependant.query_params}
    return own.union(*(queries_of(each) for each in dependant.dependencies))
