"""Every published DAWNBench entry at hand, against figures computed by others."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import (
    DawnbenchEntry,
    parse_curve,
    parse_entry,
    refuse_missing_partner,
)
from finishline.rules.scoring.run import Run

TARGET = 94.0
ENTRY_FLAGS = ("json_", "extra_fields:", "cost_absent", "cost_null")


@pytest.fixture(scope="module")
def expected(archives: Path) -> dict[str, Any]:
    return json.loads((archives / "dawnbench" / "expected.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def read_entry(archives: Path) -> Callable[[dict[str, Any]], DawnbenchEntry]:
    def read(item: dict[str, Any]) -> DawnbenchEntry:
        content = (archives / "dawnbench" / "entries" / item["path"]).read_bytes()
        metric = item["metric"] if item["kind"] == "inference" else None
        return parse_entry(content, name=item["path"], kind=item["kind"], metric=metric)

    return read


@pytest.fixture(scope="module")
def read_curve(archives: Path) -> Callable[[dict[str, Any]], Run]:
    def read(item: dict[str, Any]) -> Run:
        path = (archives / "dawnbench" / "entries" / item["path"]).with_suffix(".tsv")
        return parse_curve(path.read_bytes(), name=path.name, metric=item["metric"], unit="percent")

    return read


def entries(expected: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [item for item in expected["entries"] if item["kind"] == kind]


def test_every_entry_imports_with_its_fields(
    expected: dict[str, Any], read_entry: Callable[[dict[str, Any]], DawnbenchEntry]
) -> None:
    assert len(expected["entries"]) == 26
    for item in expected["entries"]:
        entry = read_entry(item)
        said = (entry.author, entry.model, entry.hardware, entry.framework, entry.timestamp)
        assert said == tuple(
            item[name] for name in ("author", "model", "hardware", "framework", "timestamp")
        )
        flags = {flag for flag in item["flags"] if flag.startswith(ENTRY_FLAGS)}
        assert set(entry.flags) == flags, item["path"]
        if item["kind"] == "train":
            assert entry.cost_usd_per_hour == item["costPerHour"]


def test_every_inference_entry_has_its_latency_cost_and_quality(
    expected: dict[str, Any], read_entry: Callable[[dict[str, Any]], DawnbenchEntry]
) -> None:
    for item in entries(expected, "inference"):
        entry = read_entry(item)
        assert entry.latency_ms == item["latency_ms"]
        assert entry.cost_usd_per_item == item["cost_usd_per_item"]
        assert (entry.metric, entry.quality) == (item["metric"], item["accuracy"])


def test_every_curve_reaches_its_target_in_the_published_time(
    expected: dict[str, Any], read_curve: Callable[[dict[str, Any]], Run]
) -> None:
    for item in entries(expected, "train"):
        run = read_curve(item)
        reached = next(e for e in run.evaluations if e.quality >= item["threshold"])
        assert len(run.evaluations) == item["rows"]
        assert reached.seconds == pytest.approx(item["tta_hours"] * 3600, rel=1e-15)
        assert reached.line == item["tta_row"] + 1  # Rows count from below the header.
        assert (reached.epoch, reached.quality) == (item["tta_epoch"], item["tta_metric"])
        assert max(e.quality for e in run.evaluations) == item["best_metric"]
        assert run.evaluations[-1].seconds == pytest.approx(item["total_hours"] * 3600, rel=1e-15)


def problems(folder: Path, kind: str) -> Iterator[LogFormatError]:
    """Every problem with the files of one entry, each file by itself."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    try:
        refuse_missing_partner([path.name for path in paths], kind=kind)  # type: ignore[arg-type]
    except LogFormatError as error:
        yield error
    for path in paths:
        try:
            if path.suffix == ".tsv":
                parse_curve(
                    path.read_bytes(), name=path.name, metric="top1Accuracy", unit="percent"
                )
            else:
                parse_entry(path.read_bytes(), name=path.name, kind=kind, metric="top1Accuracy")  # type: ignore[arg-type]
        except LogFormatError as error:
            yield error


@pytest.mark.parametrize(
    ("number", "places"),
    [
        ("001", []),
        ("002", [(".json", 11, None)]),
        ("027", [(".json", None, None)]),
        ("029", [(".json", 20, None)]),
        ("030", [(".json", 12, None), (".tsv", 2, None)]),
        ("035", [(".tsv", 2, "hours")]),
        ("036", [(".tsv", 2, None)]),
        ("039", [(".tsv", 1, "header")]),
        ("041", [(".json", 2, "version")]),
        ("089", [(".json", None, "top1Accuracy")]),
        ("091", [(".tsv", 1, "header")]),
    ],
)
def test_every_malformed_state_is_refused_where_it_is_broken(
    archives: Path,
    expected: dict[str, Any],
    number: str,
    places: list[tuple[str, int | None, str | None]],
) -> None:
    """001 alone is well formed: it is below the target, which is no error of the file."""
    assert len(expected["malformed"]) == 11
    kind = "inference" if "/inference/" in expected["malformed"][number]["base"] else "train"
    found = list(problems(archives / "dawnbench" / "malformed" / number, kind))
    assert [(Path(error.file or "").suffix, error.line, error.field) for error in found] == places
    assert all(error.expected for error in found)


def test_the_state_below_the_target_imports(archives: Path) -> None:
    path = next((archives / "dawnbench" / "malformed" / "001").rglob("*.tsv"))
    run = parse_curve(path.read_bytes(), name=path.name, metric="top1Accuracy", unit="percent")
    assert max(evaluation.quality for evaluation in run.evaluations) == 93.45 < TARGET
