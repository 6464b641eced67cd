"""DAWNBench logs and entries, made up and published."""

import json

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import parse_curve, parse_entry
from finishline.rules.run import Evaluation

HEADER = b"epoch\thours\ttop1Accuracy\n"


def refused(parse, content):
    with pytest.raises(LogFormatError) as caught:
        parse(content)
    assert caught.value.file == "curve.tsv"
    assert caught.value.expected
    return caught.value


def test_hours_become_seconds_at_full_precision(parse_percent_curve):
    """The first two rows of davidcpage_resnet9_1v100-ec2_pytorch.tsv."""
    run = parse_percent_curve(HEADER + b"1\t0.00152249\t34.69\n2\t0.00234980\t74.55\n")
    assert run.evaluations == (
        Evaluation(1.0, 0.00152249 * 3600, 34.69, line=2),
        Evaluation(2.0, 0.00234980 * 3600, 74.55, line=3),
    )
    assert (run.clock, run.status, run.stop_seconds) == ("dawnbench", None, None)
    assert (run.name, run.ledger) == ("curve.tsv", None)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfepoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n",
        b"epoch\thours\ttop1Accuracy\r\n1\t0.5\t94.0\r\n",
        b"epoch\thours\ttop1Accuracy\n1\t0.5\t94.0",
        b"epoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n\n \t \r\n\n",
        b" epoch\thours \ttop1Accuracy\n 1 \t0.5\t  94.0 \n",
        b"top1Accuracy\tepoch\thours\n94.0\t1\t0.5\n",
        b"epoch\thours\ttop1Accuracy\n1.0\t5e-1\t+94.\n",
    ],
    ids=["BOM", "CRLF", "no final newline", "blank lines", "spaces", "any order", "numbers"],
)
def test_what_the_archive_holds_imports(parse_percent_curve, content):
    assert parse_percent_curve(content).evaluations == (Evaluation(1.0, 1800.0, 94.0, line=2),)


def test_epochs_may_be_fractions_and_repeat_and_curves_may_fall(parse_percent_curve):
    run = parse_percent_curve(HEADER + b"0\t0\t10\n1.00096\t0.1\t94.0\n1.00096\t0.1\t0.5\n")
    found = [(each.epoch, each.seconds, each.quality) for each in run.evaluations]
    assert found == [(0.0, 0.0, 10.0), (1.00096, 360.0, 94.0), (1.00096, 360.0, 0.5)]


@pytest.mark.parametrize(
    "header",
    [
        b"epochs\thours\ttop1Accuracy", b"epoch\thours\ttop1Accuracy\t",
        b"epoch\thours\ttop1Accuracy\ttop5Accuracy", b"epoch\thours\tf1Score", b"epoch\thours",
        b"epoch\thours\thours", b"epoch\thours\ttop1Accuracy\thours",
        b"epoch hours top1Accuracy", b"epoch\t\thours\ttop1Accuracy", b"1\t0.5\t94.0", b"",
    ],
)  # fmt: skip
def test_any_other_header_is_refused(parse_percent_curve, header):
    error = refused(parse_percent_curve, header + b"\n1\t0.5\t94.0\n")
    assert (error.line, error.field) == (1, "header")
    assert error.expected == "epoch, hours, top1Accuracy, in any order, with a tab between"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (b"2\t\t0.6\t94", None), (b"2 0.6 94.0", None), (b"", None), (b"2\t\t94.0", "hours"),
        (b"2\tNA\t94.0", "hours"), (b'2\t"0.6"\t94.0', "hours"), (b"2\tinf\t94.0", "hours"),
        (b"2\t1e99\t94.0", "hours"), (b"2\t-0.6\t94.0", "hours"), (b"2\t0,6\t94.0", "hours"),
        (b"2\t0_6\t94.0", "hours"), (b"2\t0.4\t94.0", "hours"), (b"-2\t0.6\t94.0", "epoch"),
        ("\u0662\t0.6\t94.0".encode(), "epoch"), (b"2\t0.6\t100.01", "top1Accuracy"),
        (b"2\t0.6\t\xff", None),
    ],
)  # fmt: skip
def test_a_broken_row_is_refused_with_its_line(parse_percent_curve, row, field):
    error = refused(parse_percent_curve, HEADER + b"1\t0.5\t93\n" + row + b"\n3\t0.7\t94.0\n")
    assert (error.line, error.field) == (3, field)


@pytest.mark.parametrize(
    ("rows", "line", "field", "code"),
    [
        (b"1\t0.42\t93\n2\t0.40\t94\n", 3, "hours", "hours_decrease"),
        (b"\n", 1, None, "bad_tsv"),
        (b"1\t0.1\t0.41\n2\t0.2\t0.941\n3\t0.3\t0.9\n", 3, "top1Accuracy", "wrong_unit"),
        (b"1\t" * 20_000, 2, None, "bad_tsv"),
    ],
    ids=["decreasing hours", "header alone", "fractions", "long line"],
)
def test_a_broken_curve_is_refused_with_its_line(parse_percent_curve, rows, line, field, code):
    error = refused(parse_percent_curve, HEADER + rows)
    assert (error.line, error.field, error.code) == (line, field, code)


def test_many_rows_are_refused(parse_percent_curve):
    error = refused(parse_percent_curve, HEADER + b"1\t0.5\t94\n" * 100_001)
    assert error.expected == "at most 100,000 lines"


def test_percent_is_refused_where_a_fraction_is_the_rule():
    content = b"epoch\thours\tf1Score\n1\t1\t0.7\n2\t2\t75.1\n3\t3\t80\n"
    with pytest.raises(LogFormatError) as caught:
        parse_curve(content, name="curve.tsv", metric="f1Score", unit="fraction")
    assert (caught.value.line, caught.value.expected) == (3, "a fraction from 0 to 1")
    with pytest.raises(LogFormatError, match="no curve of loss"):
        parse_curve(HEADER, name="curve.tsv", metric="loss", unit="nats/byte")


ENTRY_FLAGS = ("json_", "extra_fields:", "cost_absent", "cost_null")


@pytest.fixture(scope="module")
def expected(archives):
    return json.loads((archives / "dawnbench" / "expected.json").read_text())


def test_every_entry_imports_with_its_fields(archives, expected):
    assert len(expected["entries"]) == 26
    for item in expected["entries"]:
        content = (archives / "dawnbench" / "entries" / item["path"]).read_bytes()
        metric = item["metric"] if item["kind"] == "inference" else None
        entry = parse_entry(content, name=item["path"], kind=item["kind"], metric=metric)
        for name in ("author", "model", "hardware", "framework", "timestamp"):
            assert getattr(entry, name) == item[name]
        flags = {flag for flag in item["flags"] if flag.startswith(ENTRY_FLAGS)}
        assert set(entry.flags) == flags, item["path"]


ENTRY = {
    "version": "v1.0",
    "author": "Alice",
    "authorEmail": "alice@example.org",
    "framework": "PyTorch 2.13",
    "model": "ResNet 9",
    "hardware": "1 V100 / 61 GB / 8 CPU",
    "costPerHour": 3.06,
    "timestamp": "2018-11-06",
}


INFERENCE = {"latency": 9.79, "top1Accuracy": 94.09, "cost": 2.4e-06}


@pytest.fixture
def entry():
    """Parses the entry with some fields changed; those set to ... are left out."""

    def parse(**changes):
        table = {name: value for name, value in (ENTRY | changes).items() if value is not ...}
        return parse_entry(json.dumps(table, indent=2).encode(), name="entry.json")

    return parse


def refused_entry(parse, **changes):
    with pytest.raises(LogFormatError) as caught:
        parse(**changes)
    assert caught.value.file == "entry.json"
    assert caught.value.expected
    return caught.value


def test_a_training_entry_is_typed(entry):
    read = entry(codeURL="https://example.org/code", misc={"batchSize": 512})
    assert (read.author, read.author_email) == ("Alice", "alice@example.org")
    assert (read.model, read.hardware) == ("ResNet 9", "1 V100 / 61 GB / 8 CPU")
    assert (read.framework, read.code_url) == ("PyTorch 2.13", "https://example.org/code")
    assert (read.cost_usd_per_hour, read.timestamp) == (3.06, "2018-11-06")
    assert (read.misc, read.extra, read.flags) == ({"batchSize": 512}, {}, ())
    assert (read.latency_ms, read.metric, read.quality) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"misc": "CUDA 8.0"}, {"misc": "CUDA 8.0"}),
        ({}, {"misc": None}),
        ({"timestamp": "2018-1-31"}, {"timestamp": "2018-01-31"}),
        ({"costPerHour": ...}, {"cost_usd_per_hour": None, "flags": ("cost_absent",)}),
        ({"costPerHour": None}, {"cost_usd_per_hour": None, "flags": ("cost_null",)}),
        ({"codeURL": ""}, {"code_url": None}),
        (
            {"optimizer": "SGD", "momentum": 0.9, "usedBlacklist": True},
            {
                "extra": {"optimizer": "SGD", "momentum": 0.9, "usedBlacklist": True},
                "flags": ("extra_fields:momentum,optimizer,usedBlacklist",),
            },
        ),
    ],
)
def test_an_odd_entry_is_read(entry, changes, fields):
    read = entry(**changes)
    assert {name: getattr(read, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        *(
            (name, ..., None)
            for name in ("version", "author", "authorEmail", "framework", "model", "hardware")
        ),
        ("timestamp", ..., None),
        ("version", 1.0, 2),
        ("author", 7, 3),
        ("model", "x" * 5000, 6),
        ("costPerHour", "NA", 8),
        ("costPerHour", True, 8),
        ("costPerHour", -1, 8),
        ("timestamp", "06/11/2018", 9),
        ("timestamp", "2018-13-01", 9),
        ("timestamp", 20181106, 9),
        ("misc", ["CUDA"], 10),
    ],
)
def test_a_wrong_field_is_refused_with_its_line(entry, name, value, line):
    error = refused_entry(entry, **{name: value})
    assert (error.field, error.line) == (name, line)
    assert (error.message == "missing") == (value is ...)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latency", "9.79"), ("latency", 0), ("latency", -1.0), ("top1Accuracy", "94.09"),
        ("top1Accuracy", 0.9409), ("top1Accuracy", 101.0), ("cost", "NA"),
    ],
)  # fmt: skip
def test_a_wrong_inference_field_is_refused(entry, name, value):
    assert refused_entry(entry, **(INFERENCE | {name: value})).field == name
