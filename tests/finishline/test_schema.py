"""The client against the description of the API, its imports and its folders."""

import re

import httpx2
import pytest

from finishline import Client, NotFound
from finishline.api.benchmarks import BenchmarkList, BenchmarkView
from finishline.api.boards import BoardView
from finishline.api.comparisons import SubmissionComparison
from finishline.api.people import MeView, QuotaView
from finishline.api.submissions import CurveView, RunExport, SubmissionList, SubmissionView
from finishline.api.verifications import VerificationView
from finishline.places import find_folder, installed_server

FILTERS = (
    "division", "round", "metric", "status", "q", "sort", "order", "limit", "page", "cursor",
    "clock", "target", "price", "prices_on", "hardware_class", "framework", "date_from", "date_to",
    "withdrawn", "evidence", "check", "vendor", "accelerator", "size", "ids", "best",
)  # fmt: skip
LOGS = {"run_0.log": b"nothing"}


# What each method does, and what it reads the answer as; None for what is no JSON.
CALLS = {
    "submit": (lambda client: client.submit({}, logs=LOGS), SubmissionView),
    "benchmarks": (lambda client: client.benchmarks(), BenchmarkList),
    "benchmark": (lambda client: client.benchmark("b"), BenchmarkView),
    "board": (lambda client: client.board("b", **dict.fromkeys(FILTERS, "1")), BoardView),
    "submission": (lambda client: client.submission("s"), SubmissionView),
    "submissions": (
        lambda client: next(client.submissions(benchmark="b", package="0" * 64)),
        SubmissionList,
    ),
    "runs": (lambda client: next(client.runs("b")), RunExport),
    "curve": (lambda client: client.curve("s", 0), CurveView),
    "proof": (lambda client: client.proof("v"), None),
    "account": (lambda client: client.account(), MeView),
    "log": (lambda client: client.log("s", 0), None),
    "compare": (lambda client: client.compare(["s", "t"]), SubmissionComparison),
    "withdraw": (lambda client: client.withdraw("s", reason="r"), SubmissionView),
    "verify": (lambda client: client.verify("s", repeats=2), VerificationView),
    "verification": (lambda client: client.verification("v"), VerificationView),
    "cancel": (lambda client: client.cancel("v"), VerificationView),
    "watch": (lambda client: next(client.watch("v")), None),
    "wait": (lambda client: client.wait("v"), VerificationView),
    "quota": (lambda client: client.quota(), QuotaView),
}


@pytest.fixture
def api(client):
    return client.app.openapi()


def request_of(call):
    asked = []

    def respond(request):
        request.read()
        asked.append(request)
        return httpx2.Response(404)

    with (
        Client("http://server.test", transport=httpx2.MockTransport(respond)) as client,
        pytest.raises(NotFound),
    ):
        call(client)
    return asked[0]


def operation_of(api, request):
    found = [
        item[request.method.lower()]
        for path, item in api["paths"].items()
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path)
        and request.method.lower() in item
    ]
    assert len(found) == 1, f"{request.method} {request.url.path}"
    return found[0]


def test_every_call_of_the_client_is_one_of_the_api(api):
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public == set(CALLS) | {"close"}
    for name, (call, _kind) in CALLS.items():
        request = request_of(call)
        operation = operation_of(api, request)
        parameters = {item["name"]: item for item in operation.get("parameters", [])}
        query = {key for key, item in parameters.items() if item["in"] == "query"}
        required = {key for key in query if parameters[key].get("required")}
        assert required <= set(request.url.params) <= query, name


def test_a_board_can_be_asked_for_by_every_filter_there_is(api):
    parameters = api["paths"]["/api/v1/leaderboards/{benchmark_id}"]["get"]["parameters"]
    assert {item["name"] for item in parameters if item["in"] == "query"} == set(FILTERS)


def test_every_answer_is_read_as_the_model_that_the_api_names(api):
    kinds = [(name, kind) for name, (_call, kind) in CALLS.items() if kind is not None]
    assert len(kinds) == len(CALLS) - 3
    for name, kind in kinds:
        operation = operation_of(api, request_of(CALLS[name][0]))
        answers = [item for code, item in operation["responses"].items() if code.startswith("2")]
        schema = answers[0]["content"]["application/json"]["schema"]
        noun = kind.__name__.removesuffix("View")
        assert schema == {"$ref": f"#/components/schemas/{noun}"}, name


def test_folders_lie_beside_the_server_or_inside_a_wheel(tmp_path):
    server = installed_server()
    assert server is not None
    assert (find_folder(server, "benchmarks") / "digits.toml").is_file()

    inside = tmp_path / "server" / "files" / "docs"
    inside.mkdir(parents=True)
    (tmp_path / "docs").mkdir()  # Another project's.
    assert find_folder(tmp_path / "server", "docs") == inside


def test_another_project_with_a_package_of_that_name_is_no_server(tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "__init__.py").touch()
    monkeypatch.delitem(__import__("sys").modules, "server", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    assert installed_server() is None
