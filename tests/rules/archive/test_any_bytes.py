"""Whatever bytes stand in the files of an archive: a record comes out, and no exception."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Score = Callable[..., list[dict[str, Any]]]
calmly = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("success"),
    st.sampled_from([0.93, 94.0, 1_700_000_000_000, 2**63, 1e400, -1, "NA", "closed", "v1.0"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
keys = st.sampled_from(
    ["run_start", "run_stop", "eval_accuracy", "eval_error", "seed", "global_batch_size",
     "submission_benchmark", "submission_division", "submission_org", "init_start", "init_stop",
     "eval_start", "eval_stop", "tracked_stats", "x"]
)  # fmt: skip
metadata = st.dictionaries(st.sampled_from(["status", "epoch_num", "samples_count", "x"]), values)
times = st.integers(1_699_999_999_990, 1_700_000_000_010) | scalars


@st.composite
def mllog_lines(draw: st.DrawFn) -> str:
    line = {"namespace": "", "time_ms": draw(times), "event_type": "POINT_IN_TIME",
            "key": draw(keys), "value": draw(values),
            "metadata": draw(metadata | values)}  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(line)), max_size=2)):
        line.pop(name, None)
    return f"{draw(st.sampled_from(['', '0: ', 'x' * 50]))}:::MLLOG {json.dumps(line)}"


@st.composite
def old_lines(draw: st.DrawFn) -> str:
    key = draw(st.sampled_from(["run_start", "run_stop", "eval_accuracy", "seed", "run_final"]))
    value = draw(st.just("") | values.map(lambda value: ": " + json.dumps(value)))
    seconds = draw(st.floats(0, 2e9) | st.floats())
    return f":::MLPv0.5.0 resnet {seconds} (a.py:1) {key}{value}"


def logs(lines: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    text = st.lists(lines | st.text(max_size=30), max_size=14)
    end = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])
    return st.builds(lambda parts, ending: ending.join(parts).encode("utf-8", "replace"), text, end)


any_log = st.one_of(st.binary(max_size=200), logs(mllog_lines()), logs(old_lines()))
cells = st.one_of(
    st.integers(-5, 100).map(str), st.floats().map(str), st.text(max_size=6), st.just("94.0")
)
curves = st.builds(
    lambda header, rows: "\n".join([header, *map("\t".join, rows)]).encode("utf-8", "replace"),
    st.sampled_from(["epoch\thours\ttop1Accuracy", "hours\ttop1Accuracy\tepoch", "epoch", ""]),
    st.lists(st.lists(cells, min_size=2, max_size=4), max_size=6),
)  # fmt: skip
entry_names = st.sampled_from(
    ["version", "author", "authorEmail", "framework", "model", "hardware", "timestamp", "latency",
     "costPerHour", "cost", "misc", "top1Accuracy", "f1Score", "codeURL"]
)  # fmt: skip
entries = st.dictionaries(entry_names, values).map(lambda entry: json.dumps(entry).encode())


def check(records: list[dict[str, Any]]) -> None:
    for record in records:
        json.dumps(record, allow_nan=False)
        for problem in record["problems"]:
            assert problem["severity"] in ("error", "warning")
            assert problem["message"]


@calmly
@given(texts=st.lists(any_log, min_size=1, max_size=4), system=values, scaling=values)
def test_any_logs_in_a_package(
    score_tree: Score, texts: list[bytes], system: Any, scaling: Any
) -> None:
    folder = "ACME/results/big/retinanet"
    files: dict[str, bytes] = {f"{folder}/result_{i}.txt": text for i, text in enumerate(texts)}
    files["ACME/systems/big.json"] = json.dumps(system).encode()
    files[f"{folder}/scaling.json"] = json.dumps({"scaling_factor": scaling}).encode()
    for every_line in (False, True):
        [record] = score_tree(files, every_line=every_line)
        check([record])
        assert record["n_runs"] == len(texts)


@calmly
@given(text=any_log, name=st.sampled_from(["a.txt", "a.log"]))
def test_any_log_by_itself(score_tree: Score, text: bytes, name: str) -> None:
    check(score_tree({name: text}))


@calmly
@given(
    entry=entries | st.binary(max_size=100),
    curve=curves | st.binary(max_size=100),
    task=st.sampled_from(["CIFAR10", "ImageNet", "SQuAD"]),
)
def test_any_entry(score_tree: Score, entry: bytes, curve: bytes, task: str) -> None:
    files = {}
    for kind in ("train", "inference"):
        files |= {f"{task}/{kind}/x.json": entry, f"{task}/{kind}/x.tsv": curve}
    records = score_tree(files)
    assert len(records) == 2
    check(records)
