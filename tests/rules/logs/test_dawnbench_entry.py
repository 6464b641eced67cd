"""DAWNBench entry JSON: typed, with everything unknown kept."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import DawnbenchEntry, parse_entry

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
def entry() -> Callable[..., DawnbenchEntry]:
    """Parses the entry with some fields changed; those set to ... are left out."""

    def parse(**changes: Any) -> DawnbenchEntry:
        table = {name: value for name, value in (ENTRY | changes).items() if value is not ...}
        return parse_entry(json.dumps(table, indent=2).encode(), name="entry.json")

    return parse


def refused(parse: Callable[..., DawnbenchEntry], **changes: Any) -> LogFormatError:
    with pytest.raises(LogFormatError) as caught:
        parse(**changes)
    assert caught.value.file == "entry.json"
    assert caught.value.expected
    return caught.value


def test_a_training_entry_is_typed(entry: Callable[..., DawnbenchEntry]) -> None:
    read = entry(codeURL="https://example.org/code", misc={"batchSize": 512})
    assert (read.author, read.author_email) == ("Alice", "alice@example.org")
    assert (read.model, read.hardware) == ("ResNet 9", "1 V100 / 61 GB / 8 CPU")
    assert (read.framework, read.code_url) == ("PyTorch 2.13", "https://example.org/code")
    assert (read.cost_usd_per_hour, read.timestamp) == (3.06, "2018-11-06")
    assert (read.misc, read.extra, read.flags) == ({"batchSize": 512}, {}, ())
    assert (read.latency_ms, read.metric, read.quality) == (None, None, None)


def test_an_inference_entry_has_latency_and_a_metric(
    entry: Callable[..., DawnbenchEntry],
) -> None:
    read = entry(**INFERENCE)
    assert (read.latency_ms, read.cost_usd_per_item) == (9.79, 2.4e-06)
    assert (read.metric, read.quality) == ("top1Accuracy", 94.09)


def test_misc_may_be_a_text(entry: Callable[..., DawnbenchEntry]) -> None:
    assert entry(misc="CUDA 8.0").misc == "CUDA 8.0"
    assert entry().misc is None
    assert refused(entry, misc=["CUDA"]).field == "misc"


def test_months_without_padding_pass(entry: Callable[..., DawnbenchEntry]) -> None:
    assert entry(timestamp="2018-1-31").timestamp == "2018-01-31"


def test_everything_unknown_is_kept(entry: Callable[..., DawnbenchEntry]) -> None:
    read = entry(optimizer="SGD", momentum=0.9, usedBlacklist=True)
    assert read.extra == {"optimizer": "SGD", "momentum": 0.9, "usedBlacklist": True}
    assert read.flags == ("extra_fields:momentum,optimizer,usedBlacklist",)


def test_an_absent_price_and_a_null_price_both_mean_none(
    entry: Callable[..., DawnbenchEntry],
) -> None:
    assert entry(costPerHour=...).cost_usd_per_hour is None
    assert entry(costPerHour=None).cost_usd_per_hour is None
    assert entry(costPerHour=...).flags == ("cost_absent",)
    assert entry(costPerHour=None).flags == ("cost_null",)


def test_an_empty_url_is_none(entry: Callable[..., DawnbenchEntry]) -> None:
    assert entry(codeURL="").code_url is None


def test_an_f1_score_in_percent_is_rescaled_and_flagged(
    entry: Callable[..., DawnbenchEntry],
) -> None:
    """The one such entry of the archive says 82.52."""
    read = entry(latency=7.6, f1Score=82.52)
    assert read.quality == pytest.approx(0.8252, rel=1e-15)
    assert "f1_score_in_percent" in read.flags
    assert "f1_score_in_percent" not in entry(latency=7.6, f1Score=0.8252).flags


def test_a_price_that_is_there_twice_is_refused() -> None:
    content = json.dumps(ENTRY).replace("{", '{"costPerHour": 0.01, ').encode()
    with pytest.raises(LogFormatError, match="2 times") as caught:
        parse_entry(content, name="entry.json")
    assert caught.value.field == "costPerHour"


def test_tabs_crlf_bom_and_non_ascii_pass_and_are_flagged() -> None:
    text = json.dumps(ENTRY | {"model": "Réseau"}, indent="\t", ensure_ascii=False)
    content = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    read = parse_entry(content, name="entry.json")
    assert read.model == "Réseau"
    assert read.flags == ("json_bom", "json_crlf", "json_non_ascii")


@pytest.mark.parametrize(
    "name", ["version", "author", "authorEmail", "framework", "model", "hardware", "timestamp"]
)
def test_a_missing_field_is_refused(entry: Callable[..., DawnbenchEntry], name: str) -> None:
    error = refused(entry, **{name: ...})
    assert (error.field, error.message) == (name, "missing")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("version", "v0.1", 2),
        ("version", 1.0, 2),
        ("author", "", 3),
        ("author", 7, 3),
        ("model", "x" * 5000, 6),
        ("costPerHour", "NA", 8),
        ("costPerHour", "0.9", 8),
        ("costPerHour", True, 8),
        ("costPerHour", -1, 8),
        ("timestamp", "06/11/2018", 9),
        ("timestamp", "2018-13-01", 9),
        ("timestamp", 20181106, 9),
    ],
)
def test_a_wrong_field_is_refused_with_its_line(
    entry: Callable[..., DawnbenchEntry], name: str, value: Any, line: int
) -> None:
    error = refused(entry, **{name: value})
    assert (error.field, error.line) == (name, line)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latency", "9.79"),
        ("latency", 0),
        ("latency", -1.0),
        ("top1Accuracy", "94.09"),
        ("top1Accuracy", 0.9409),
        ("top1Accuracy", 101.0),
        ("cost", "NA"),
    ],
)
def test_a_wrong_inference_field_is_refused(
    entry: Callable[..., DawnbenchEntry], name: str, value: Any
) -> None:
    assert refused(entry, **(INFERENCE | {name: value})).field == name


def test_an_inference_entry_must_have_the_metric_of_its_benchmark() -> None:
    content = json.dumps(ENTRY | {"latency": 0.1, "top5Accuracy": 94.2}).encode()
    assert parse_entry(content, name="entry.json").metric == "top5Accuracy"
    with pytest.raises(LogFormatError) as caught:
        parse_entry(content, name="entry.json", kind="inference", metric="top1Accuracy")
    assert (caught.value.field, caught.value.message) == ("top1Accuracy", "missing")


def test_an_inference_entry_without_a_latency_is_refused() -> None:
    content = json.dumps(ENTRY | {"top1Accuracy": 94.2}).encode()
    with pytest.raises(LogFormatError, match="latency: missing"):
        parse_entry(content, name="entry.json", kind="inference")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b'{"version": "v1.0",}',
        b'{"version": "v1.0", "costPerHour": NaN}',
        b'{"misc": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"author": "\xff"}',
        b'{"misc": "' + b"x" * 2_000_000 + b'"}',
    ],
    ids=["empty", "list", "null", "comma", "NaN", "deep", "bytes", "long"],
)
def test_what_is_no_entry_is_refused(content: bytes) -> None:
    with pytest.raises(LogFormatError) as caught:
        parse_entry(content, name="entry.json")
    assert caught.value.file == "entry.json"
