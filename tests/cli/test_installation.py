"""The command by itself: imports, documents, and its way to a server."""

import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import typer
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError
from typer.core import TyperGroup

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import CliError, ExitCode, Problem
from finishline.cli.main import app

HEAVY = (
    "alembic", "celery", "fastapi", "kombu", "numpy", "plotly", "pyarrow", "pydantic", "redis",
    "reference_models", "scipy", "server", "sqlalchemy", "torch", "web", "worker",
)  # fmt: skip


def test_the_command_loads_no_server_no_array_library_and_no_broker():
    script = (
        "import json, sys; import finishline.cli.main; "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps(sorted(names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))

    assert loaded.intersection(HEAVY) == set()
    assert {"finishline.cli", "typer"} <= loaded


CHECKOUT = Path(__file__).parents[2]


DOCS = CHECKOUT / "docs"


PAGES = [CHECKOUT / "README.md", *sorted(DOCS.glob("*.md"))]


# What a sentence says without what it is for: `finishline submit` sends a key of its own.
UNFINISHED = (MissingParameter, NoArgsIsHelpError)


def commands_of(text):
    """`finishline ...` on lines of their own and within sentences."""
    text = text.replace("\\\n", " ")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^finishline .*?(?=\s+[#>]|$)", block, re.MULTILINE)
    for within in re.findall(r"(?<!`)`(finishline\s[^`]+)`(?!`)", text):
        yield " ".join(within.split())


def known_commands(group, *before):
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from known_commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def parse(words):
    """Raises what the command itself would say of wrong words."""
    command = typer.main.get_command(app)
    context = typer.Context(command)
    while isinstance(command, TyperGroup) and words:
        if words[0] not in command.commands:
            # What a page calls by a capital stands for any of them.
            assert words[0].isupper(), f"no command {words[0]!r}"
            return
        command = command.commands[words[0]]
        context = typer.Context(command, parent=context, info_name=words.pop(0))
    command.parse_args(context, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_taken(page):
    for line in commands_of(page.read_text()):
        with suppress(*UNFINISHED):
            parse(shlex.split(line)[1:])


def test_the_pages_name_commands():
    assert sum(len(list(commands_of(page.read_text()))) for page in PAGES) > 80


def test_the_list_of_commands_has_every_command():
    table = (DOCS / "cli.md").read_text().partition("## Exit codes")[0]
    # A row names its group once: `calibration list`, `show ID`.
    rows = [re.findall(r"`([a-z][^`]*)`", row.split(" | ")[0]) for row in table.splitlines()]
    listed = set()
    for names in filter(None, rows):
        group = names[0].split()[:-1] if len(names[0].split()) > 1 else []
        listed |= {word for name in names for word in re.split(r"[ |\\]+", name)} | set(group)

    for command in known_commands(typer.main.get_command(app)):
        assert set(command.split()) <= listed, command


def client_for(status, **answer):
    def respond(request):
        return httpx2.Response(status, **answer)

    return ServerClient("http://server.test", transport=httpx2.MockTransport(respond))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ExitCode.REFUSED),
        (409, ExitCode.REFUSED),
        (413, ExitCode.REFUSED),
        (422, ExitCode.REFUSED),
        (401, ExitCode.NOT_ALLOWED),
        (403, ExitCode.NOT_ALLOWED),
        (404, ExitCode.NOT_FOUND),
        (429, ExitCode.SERVER),
        (500, ExitCode.SERVER),
        (503, ExitCode.SERVER),
        (302, ExitCode.SERVER),
    ],
)
def test_each_status_has_its_exit_code(status, code):
    with client_for(status) as server, pytest.raises(CliError) as caught:
        server.get("/benchmarks")
    assert caught.value.exit_code is code


def test_a_command_waits_where_the_server_says_for_how_long(monkeypatch):
    waits = []
    monkeypatch.setattr("finishline.cli.client.time.sleep", waits.append)
    with (
        client_for(429, headers={"Retry-After": "2"}, json={"detail": "Too many."}) as server,
        pytest.raises(CliError, match="Too many"),
    ):
        server.post("/verifications/batch", {})
    assert waits == [2.0] * 5
    with client_for(429, headers={"Retry-After": "7200"}) as server, pytest.raises(CliError):
        server.get("/benchmarks")
    assert len(waits) == 5


def test_problems_of_the_server_reach_the_user():
    body = {
        "detail": "The run log is refused.",
        "problems": [
            {"file": "run_1.log", "line": 17, "field": "value", "message": "hours fell",
             "expected": "hours that do not decrease"},
        ],
    }  # fmt: skip
    with client_for(422, json=body) as server, pytest.raises(CliError) as caught:
        server.post("/submissions", {})
    assert caught.value.message == "The run log is refused."
    assert caught.value.problems == (
        Problem("hours fell", "run_1.log", 17, "value", "hours that do not decrease"),
    )
    assert str(caught.value.problems[0]) == (
        "run_1.log line 17, field value: hours fell; expected hours that do not decrease"
    )


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"problems": "none"}', b'{"problems": [3]}'])
def test_an_error_page_that_is_no_problem_document_is_still_one_sentence(body):
    with client_for(502, content=body) as server, pytest.raises(CliError, match="returned 502"):
        server.get("/benchmarks")


def test_an_answer_that_is_not_json_is_no_finishline_server():
    with (
        client_for(200, content=b"<html>hello") as server,
        pytest.raises(CliError, match="not a Finishline server") as caught,
    ):
        server.get("/benchmarks")
    assert caught.value.exit_code is ExitCode.SERVER


def test_nobody_listening_is_one_sentence_with_what_to_do():
    with (
        ServerClient("http://127.0.0.1:1") as server,
        pytest.raises(CliError, match="finishline up") as caught,
    ):
        server.health()
    assert caught.value.exit_code is ExitCode.SERVER


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://server", "http://", "http://[::1"])
def test_an_address_without_scheme_or_host_is_refused(url):
    with pytest.raises(CliError, match="Invalid server address") as caught:
        ServerClient(url)
    assert caught.value.exit_code is ExitCode.USAGE


def test_an_id_stays_one_segment_of_the_path():
    assert segment("../tokens") == "..%2Ftokens"
    assert segment("a b?c") == "a%20b%3Fc"


def test_a_proxy_in_the_environment_does_not_hide_the_local_server(standin, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    standin.answer("GET /healthz", {"status": "ok"})
    with ServerClient(standin.url) as server:
        assert server.health() == {"status": "ok"}
