"""Entries of archives as claims, whatever bytes their files hold."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from finishline.rules.archive.import_plan import NOT_STATED, set_claim
from finishline.rules.benchmarks.accelerators import CLASS_NAME
from finishline.rules.submissions.descriptions import read_system
from tests.support.archive_folders import (
    ENTRY,
    START,
    make_line,
    make_log,
    make_package,
    score_tree,
)

HEADERS = {
    "CIFAR10": "epoch\thours\ttop1Accuracy",
    "ImageNet": "epoch\thours\ttop1Accuracy\ttop5Accuracy",
    "SQuAD": "epoch\thours\tf1Score",
}


def codes(record):
    return {problem["code"] for problem in record["problems"]}


def train(task, *rows, **changes):
    return {
        f"{task}/train/x.json": json.dumps(ENTRY | {"costPerHour": 3.0} | changes),
        f"{task}/train/x.tsv": "\n".join((HEADERS[task], *rows)),
    }


@pytest.mark.parametrize(
    ("task", "below", "at"),
    [
        ("CIFAR10", "93.99", "94.0"),
        ("ImageNet", "70\t92.999", "75\t93"),
        ("SQuAD", "0.7499", "0.75"),
    ],
)
def test_every_task_has_its_own_target(task, below, at):
    [record] = score_tree(train(task, f"1\t0.5\t{below}", f"2.5\t1.0\t{at}", f"3\t2.0\t{below}"))
    assert (record["tta_seconds"], record["tta_epoch"], record["cost_usd"]) == (3600.0, 2.5, 3.0)
    assert (record["tta_display"], record["eligible"]) == ("1:00:00", True)
    [record] = score_tree(train(task, f"1\t0.5\t{below}"))
    assert (record["reached"], record["eligible"], record["tta_seconds"]) == (False, False, None)
    assert codes(record) == {"below_threshold"}


def test_hours_of_zero_and_a_missing_price_are_fine():
    [record] = score_tree(train("CIFAR10", "0\t0\t95", costPerHour=None))
    assert (record["tta_seconds"], record["cost_usd"], record["problems"]) == (0.0, None, [])


@pytest.mark.parametrize(
    ("task", "said", "cost"),
    [
        ("CIFAR10", {"top1Accuracy": 95.0}, 1e-5),
        ("ImageNet", {"top5Accuracy": 93.1, "top1Accuracy": 70.0}, None),
        ("SQuAD", {"f1Score": 0.8}, 0.0),
    ],
)
def test_inference_has_latency_and_cost(task, said, cost):
    entry = ENTRY | said | {"latency": 12.5, "cost": cost}
    [record] = score_tree({f"{task}/inference/y.json": json.dumps(entry), "README.md": ""})
    assert (record["latency_ms"], record["eligible"], record["kind"]) == (12.5, True, "inference")
    assert record["cost_usd_per_10000"] == (None if cost is None else cost * 10_000)


def test_an_f1_score_in_percent_is_a_fraction_and_flagged():
    entry = ENTRY | {"latency": 1.0, "f1Score": 82.52}
    [record] = score_tree({"SQuAD/inference/y.json": json.dumps(entry)})
    assert record["best_metric"] == pytest.approx(0.8252)
    assert (codes(record), record["eligible"]) == ({"f1_score_in_percent"}, True)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"version": "v2"}, {"bad_version"}),
        ({"costPerHour": "0.9"}, {"number_as_string"}),
        ({"costPerHour": -1}, {"bad_value"}),
        ({"timestamp": "20.4.2018"}, {"bad_timestamp"}),
        ({"author": None, "model": ""}, {"missing_field", "bad_value"}),
        ({"author": None, "autohr": "Ada"}, {"missing_field"}),
        (
            {"version": "v0", "costPerHour": "NA", "misc": 3},
            {"bad_version", "number_as_string", "bad_misc"},
        ),
    ],
)
def test_every_bad_field_is_told_at_once(changes, wanted):
    [record] = score_tree(train("CIFAR10", "1\t1\t95", **changes))
    assert (codes(record), record["eligible"]) == (wanted, False)
    assert record["tta_seconds"] == 3600.0


@pytest.mark.parametrize(
    ("rows", "code", "line"),
    [
        (("1\t1\t95", "2\t0.5\t95"), "hours_decrease", 3),
        (("1\t1\t0.95",), "wrong_unit", 2),
        (("1\tNA\t95",), "bad_tsv", 2),
        ((), "bad_tsv", 1),
    ],
)
def test_a_curve_that_is_none_gives_no_time(rows, code, line):
    [record] = score_tree(train("CIFAR10", *rows))
    [problem] = record["problems"]
    place = (problem["code"], problem["line"], problem["file"])
    assert place == (code, line, "CIFAR10/train/x.tsv")
    assert (record["tta_seconds"], record["eligible"]) == (None, False)


def test_both_halves_of_an_entry_must_be_there():
    files = train("CIFAR10", "1\t1\t95")
    for name, code in (("json", "missing_json"), ("tsv", "missing_tsv")):
        left = {path: text for path, text in files.items() if not path.endswith(name)}
        [record] = score_tree(left)
        assert (codes(record), record["eligible"]) == ({code}, False)


@pytest.mark.parametrize(
    ("task", "row"), [("CIFAR10", "1\t1\t95"), ("ImageNet", "1\t1\t70\t95"), ("SQuAD", "1\t1\t0.8")]
)
def test_folder_or_columns_tell_the_task(task, row):
    inner = {path.rpartition("/")[2]: text for path, text in train(task, row).items()}
    for root in (("/", "archive", task, "train"), ("/", "tree")):
        [record] = score_tree(inner, root=root)
        assert (record["path"], record["benchmark"]) == ("x.json", task)
        assert (record["kind"], record["eligible"]) == ("train", True)


RECORD = {
    "organisation": "Cisco",
    "system": "hpf_n8",
    "benchmark": "dlrm_dcnv2",
    "division": "closed",
    "version": "5.1",
    "definition": {"id": "mlperf-v5.1-dlrm_dcnv2", "sha256": "0" * 64},
    "runs": [{"file": "result_0.txt"}, {"file": "result_1.txt"}],
    "scaling_json": None,
}


# As in Cisco's published hpf_n8.json.
DESCRIPTION = {
    "division": "closed",
    "status": "Available on-premise",
    "system_name": "hpf_n8",
    "number_of_nodes": "8",
    "host_processors_per_node": "2",
    "host_processor_model_name": "Intel(R) Xeon(R) Platinum 8592+",
    "host_memory_capacity": "2 TB",
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
    "framework": "PyTorch NVIDIA Release 23.09",
}


def describe(**others):
    return read_system(json.dumps(DESCRIPTION | others).encode(), file="systems/hpf_n8.json")


def system_of(**others):
    return set_claim(RECORD, describe(**others))["system"]


def test_without_a_description_the_system_is_what_its_folder_is_called():
    claim = set_claim(RECORD | {"division": None}, None)
    system = {"name": "hpf_n8", "hardware_class": "hpf-n8", "processor": NOT_STATED}
    assert (claim["system"], claim["framework"]) == (system, NOT_STATED)
    assert "division" not in claim


def test_systems_without_accelerators_are_compared_by_their_processors():
    system = system_of(accelerators_per_node="0", accelerator_model_name="N/A")
    assert system["hardware_class"] == "16-intel-r-xeon-r-platinum-8592"
    assert (system["accelerator_count"], "accelerator" in system) == (0, False)


def test_a_set_claims_what_its_package_says():
    assert set_claim(RECORD, describe()) == {
        "benchmark": "mlperf-v5.1-dlrm_dcnv2",
        "division": "closed",
        "model": "dlrm_dcnv2",
        "framework": "PyTorch NVIDIA Release 23.09",
        "system": {
            "name": "hpf_n8",
            "hardware_class": "64-nvidia-h100-sxm5-80gb",
            "processor": "Intel(R) Xeon(R) Platinum 8592+",
            "processor_count": 16,
            "memory_gib": 16384.0,
            "accelerator": "NVIDIA H100-SXM5-80GB",
            "accelerator_count": 64,
            "availability": "Available on-premise",
        },
        "runs": ["result_0.txt", "result_1.txt"],
        "organisation": "Cisco",
        "notes": "MLPerf Training v5.1: Cisco/hpf_n8/dlrm_dcnv2 (Available on-premise)",
    }


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("2 TB", 2048.0),
        ("512GB", 512.0),
        ("1,536 GiB", 1536.0),
        ("2.25 TB", 2304.0),
        *((text, None) for text in ("", "N/A", "a lot", "24x 96GB", "2.048 TB", "-2 TB", "2 PB")),
    ],
)
def test_memory_is_read_in_every_usual_unit_or_left_out(text, gib):
    assert system_of(number_of_nodes=1, host_memory_capacity=text).get("memory_gib") == gib


def test_any_name_makes_a_hardware_class():
    for name in ("", "ÄÖÜ", "x" * 500, "...", "a/../b"):
        system = system_of(accelerator_model_name=name, host_processor_model_name=name)
        assert re.fullmatch(CLASS_NAME, system["hardware_class"])


def test_systems_of_v05_are_named_by_their_hardware_and_kept_apart():
    small = read_system(b'{"hardware": "tpuv2-8", "nodes": []}', file="entry.json")
    large = read_system(b'{"hardware": "tpuv2-512 + tpuv2-8"}', file="entry.json")
    record = RECORD | {"system": "tpu", "version": "0.5"}
    systems = [set_claim(record, each)["system"] for each in (small, large)]
    assert [system["name"] for system in systems] == ["tpuv2-8", "tpuv2-512 + tpuv2-8"]
    assert systems[0]["hardware_class"] != systems[1]["hardware_class"]


calmly = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


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
def mllog_lines(draw):
    line = {"namespace": "", "time_ms": draw(times), "event_type": "POINT_IN_TIME",
            "key": draw(keys), "value": draw(values),
            "metadata": draw(metadata | values)}  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(line)), max_size=2)):
        line.pop(name, None)
    return f"{draw(st.sampled_from(['', '0: ', 'x' * 50]))}:::MLLOG {json.dumps(line)}"


@st.composite
def old_lines(draw):
    key = draw(st.sampled_from(["run_start", "run_stop", "eval_accuracy", "seed", "run_final"]))
    value = draw(st.just("") | values.map(lambda value: ": " + json.dumps(value)))
    seconds = draw(st.floats(0, 2e9) | st.floats())
    return f":::MLPv0.5.0 resnet {seconds} (a.py:1) {key}{value}"


def logs(lines):
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


def check(records):
    for record in records:
        json.dumps(record, allow_nan=False)
        for problem in record["problems"]:
            assert problem["severity"] in ("error", "warning")
            assert problem["message"]


@calmly
@given(texts=st.lists(any_log, min_size=1, max_size=4), system=values, scaling=values)
def test_any_logs_in_a_package(texts, system, scaling):
    folder = "ACME/results/big/retinanet"
    files = {f"{folder}/result_{i}.txt": text for i, text in enumerate(texts)}
    files["ACME/systems/big.json"] = json.dumps(system).encode()
    files[f"{folder}/scaling.json"] = json.dumps({"scaling_factor": scaling}).encode()
    [record] = score_tree(files)
    check([record])
    assert record["n_runs"] == len(texts)


@calmly
@given(text=any_log, name=st.sampled_from(["a.txt", "a.log"]))
def test_any_log_by_itself(text, name):
    check(score_tree({name: text}))


@calmly
@given(
    entry=entries | st.binary(max_size=100),
    curve=curves | st.binary(max_size=100),
    task=st.sampled_from(["CIFAR10", "ImageNet", "SQuAD"]),
)
def test_any_entry(entry, curve, task):
    files = {}
    for kind in ("train", "inference"):
        files |= {f"{task}/{kind}/x.json": entry, f"{task}/{kind}/x.tsv": curve}
    records = score_tree(files)
    assert len(records) == 2
    check(records)


def curve_log(late_ms=0, **options):
    """A run of 10 minutes that ends like any other, whose four first evaluations are so late."""
    started = make_line("run_start", START)
    curve = [
        make_line("eval_accuracy", START + 100 * i + late_ms, 0.02 * i, epoch_num=i / 10)
        for i in range(1, 5)
    ]
    return make_log(**options).replace(started, started + "".join(curve))


def told(records):
    return [
        (p["file"].rpartition("/")[2], p["message"], p["severity"])
        for record in records
        for p in record["problems"]
        if p["code"] == "same_log"
    ]


def test_copy_with_another_seed_is_an_error():
    """Published: tinycorp's tinybox_green, BERT of v4.1, result_3.txt and result_8.txt."""
    logs = [curve_log(i, seed=i) for i in range(4)]
    alike = make_package([*logs, curve_log(2, seed=4)])
    first = "ACME/results/big/retinanet/result_2.txt"
    message = f"every quality and time equals that of {first}"
    assert told(score_tree(alike)) == [("result_4.txt", message, "error")]
    assert not score_tree(alike)[0]["eligible"]
    assert told(score_tree(make_package([*logs, curve_log(9, seed=4)]))) == []
    assert told(score_tree(make_package())) == []
