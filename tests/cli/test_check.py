"""`finishline check` and `score`: the rules alone, on real files, as on a participant's machine."""

import csv
import io
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from finishline.rules.archive import score as archive_score
from finishline.rules.archive.definitions import shipped_texts
from tests.support.archive_folders import ENTRY, make_log, write_entries, write_package
from tests.support.submission_folder import BENCHMARKS, write_submission


@pytest.mark.parametrize(("finals", "reached", "tta"), [((), 3, 20.0), ((60.0,) * 3, 0, None)])
def test_submission_below_its_target_is_scored(finishline, tmp_path, finals, reached, tta):
    named = {"finals": finals} if finals else {}
    ran = finishline("check", str(write_submission(tmp_path / "sub", **named)), "--json")
    assert ran.code == 0
    result = ran.json()["result"]
    assert (result["started"], result["reached"], result["tta_seconds"]) == (3, reached, tta)


def test_a_log_that_ends_without_run_stop_is_told(finishline, standin, tmp_path):
    folder = write_submission(tmp_path / "sub")
    whole = write_submission(tmp_path / "whole")
    for name, kept in (("run_1.log", "INTERVAL_START"), ("run_2.log", "eval_stop")):
        lines = (folder / name).read_text().splitlines(keepends=True)
        last = max(number for number, line in enumerate(lines) if kept in line)
        (folder / name).write_text("".join(lines[: last + 1]))
    standin.answer("POST /api/v1/submissions", {"id": "s1", "result": {}}, status=201)

    ran = finishline("check", str(folder), "--json")

    assert (ran.code, ran.json()["result"]["reached"]) == (0, 2)
    own, *cut_off = ran.json()["remarks"]
    assert "never ranks" in own["message"]
    assert finishline("check", str(whole), "--json").json()["remarks"] == [own]
    assert [(remark["file"], remark["field"]) for remark in cut_off] == [
        ("run_1.log", "run_stop"),
        ("run_2.log", "run_stop"),
    ]
    assert finishline("submit", str(folder), "--json").json()["remarks"] == [own, *cut_off]
    for command in ("check", "submit"):
        told = finishline(command, str(folder)).out
        assert [each["message"] in told for each in cut_off] == [True, True]
        assert "run_stop" not in finishline(command, str(whole)).out


def test_log_of_a_run_that_was_cut_off_is_told(finishline, tmp_path):
    folder = write_submission(tmp_path / "mine")
    for path in folder.iterdir():
        if path.name != "run_0.log":
            path.unlink()
    for path in (folder, folder / "run_0.log"):
        ran = finishline("check", str(path))
        assert (ran.code, "the log is of the benchmark 'digits'" in ran.err) == (1, True)
        assert "without a submission.json" in ran.err
        assert "resnet" not in ran.err
    ran = finishline("check", str(folder / "run_0.log"), "--benchmark", "digits")
    assert (ran.code, "is a log" in ran.err) == (2, True)


def test_broken_rule_names_file_and_field(finishline, tmp_path):
    ran = finishline("check", str(write_submission(tmp_path / "sub", surprise=1)), "--json")
    assert (ran.code, ran.out) == (1, "")
    [problem] = ran.error()["problems"]
    assert (problem["file"], problem["field"]) == ("submission.json", "surprise")


def test_a_log_by_itself_is_checked_with_the_submission_beside_it(finishline, tmp_path):
    folder = write_submission(tmp_path / "sub")
    ran = finishline("check", str(folder / "run_0.log"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"check the whole submission: finishline check {folder}\n")


def test_a_dawnbench_entry_needs_its_benchmark_named(finishline, tmp_path):
    (tmp_path / "entry.json").write_text(json.dumps(ENTRY))
    rows = ["epoch\thours\ttop1Accuracy", "1\t0.05\t50.0", "2\t0.1\t94.0"]
    (tmp_path / "entry.tsv").write_text("\n".join(rows) + "\n")
    path = str(tmp_path / "entry.json")
    ran = finishline("check", path, "--benchmark", "cifar10", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json()["result"]["tta_seconds"] == pytest.approx(360.0)
    assert ran.json()["remarks"] == [], "a TSV has no run_stop"
    error = finishline("check", path, "--json").error()
    assert error["problems"][0]["field"] == "benchmark"
    assert error["message"].endswith("Name it with --benchmark, such as --benchmark cifar10.")


def test_benchmark_definitions_that_are_not_there_are_one_sentence(finishline, tmp_path):
    folder = write_submission(tmp_path / "sub")
    ran = finishline("check", str(folder), "--benchmarks-dir", str(tmp_path / "gone"))
    assert ran.code == 1
    assert "no benchmark definition" in ran.err


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path / "package")


@pytest.fixture
def tree(tmp_path):
    return write_entries(tmp_path / "dawnbench")


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_one_json_line_for_each_submission(finishline, package, tree):
    ran = finishline("score", str(tree), str(package))
    assert (ran.code, ran.err) == (0, "")
    good, half, result = lines(ran.out)
    assert (good["path"], good["tta_seconds"]) == ("CIFAR10/train/good.json", 1800.0)
    assert (half["eligible"], half["problems"][0]["code"]) == (False, "missing_tsv")
    assert result["path"] == "ACME/results/big/retinanet"
    assert result["olympic_mean_seconds"] == 720.0


def test_score_with_json_is_one_document(finishline, package, tree):
    both = str(tree), str(package)
    ran = finishline("score", *both, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json() == {"records": lines(finishline("score", *both).out)}
    for other in (("--table",), ("--as", "csv")):
        assert finishline("score", *both, "--json", *other).code == 2
    missing = finishline("score", str(tree / "gone"), "--json")
    assert (missing.code, "Cannot read" in missing.error()["message"]) == (1, True)


def test_records_as_csv_and_as_a_table(finishline, package, tree):
    both = str(tree), str(package)
    rows = list(csv.DictReader(io.StringIO(finishline("score", *both, "--as", "csv").out)))
    assert [row["path"] for row in rows] == [
        r["path"] for r in lines(finishline("score", *both).out)
    ]
    assert (rows[0]["tta_seconds"], rows[2]["rcp_verdict"]) == ("1800.0", "pass")
    table = finishline("score", *both, "--as", "table").out
    assert "ACME/results/big/retinanet" in table
    assert "5/5" in table


def test_summary_has_the_columns_of_mlcommons(finishline, tmp_path, tree):
    """Source: the header of a summary.csv of MLCommons' training_results_v2.1."""
    folder = tmp_path / "training_results_v5.1"
    system = {"submitter": "A", "status": "onprem", "system_name": "=B1", "number_of_nodes": "2",
              "host_processors_per_node": "2", "host_processor_model_name": "CPU",
              "accelerators_per_node": "8", "accelerator_model_name": "-GPU", "framework": "+F",
              "hw_notes": "@cold", "sw_notes": "new"}  # fmt: skip
    for name in ("ACME", "Bolt"):
        write_package(folder, name, system=system)
    broken = folder / "Bolt/results/big/retinanet/result_0.txt"
    broken.write_text(make_log(1, seed=1))
    results = folder / "ACME/results/big"
    (results / "=cmd").mkdir()
    (results / "=cmd" / "result_0.txt").write_text(make_log(1, seed=9))
    ran = finishline("score", str(tree), str(folder), "--table")
    head, acme, bolt = csv.reader(io.StringIO(ran.out))
    assert head == [
        "division", "availability", "submitter", "system", "host_processor_model_name",
        "host_processors_count", "accelerator_model_name", "accelerators_count", "framework",
        "notes", "'=cmd", "retinanet", "details_url", "code_url",
    ]  # fmt: skip
    source = "https://github.com/mlcommons/training_results_v5.1/blob"
    described = ["closed", "onprem", "A", "'=B1", "CPU", "4", "'-GPU", "16", "'+F", "'@cold;new"]
    assert acme == [
        *described, "", "12.0", f"{source}/main/ACME/systems/big.json",
        f"{source}/master/ACME/benchmarks",
    ]  # fmt: skip
    # A set that breaks a rule has no minutes.
    assert bolt[:12] == [*described, "", ""]


def test_names_from_strangers_are_no_formulas_in_csv(finishline, tree):
    train = tree / "CIFAR10" / "train"
    (train / "good.json").rename(tree / "x")
    odd = tree / "=cmd" / "CIFAR10" / "train"
    odd.mkdir(parents=True)
    (odd / "a.json").write_text(json.dumps(ENTRY))
    rows = list(csv.DictReader(io.StringIO(finishline("score", str(tree), "--as", "csv").out)))
    assert "'=cmd/CIFAR10/train/a.json" in {row["path"] for row in rows}


def test_named_definitions_go_before_shipped_ones(finishline, package, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    shipped = shipped_texts()["mlperf-v5.0-retinanet"]
    ours = shipped + b"# Ours.\n"
    (own / "mlperf-v5.0-retinanet.toml").write_bytes(ours)
    for options, text in (((), shipped), (("--benchmarks", str(own)), ours)):
        [record] = lines(finishline("score", str(package), *options).out)
        assert record["definition"]["sha256"] == sha256(text).hexdigest()
    assert finishline("score", str(package), "--benchmarks", str(tmp_path)).code == 1


def test_the_points_may_be_pruned_or_all(finishline, package):
    [pruned] = lines(finishline("score", str(package)).out)
    [full] = lines(finishline("score", str(package), "--rcp", "full").out)
    assert pruned["rcp"]["verdict"] == full["rcp"]["verdict"] == "pass"
    assert finishline("score", str(package), "--rcp", "some").code == 2


def test_a_path_inside_a_package_still_finds_its_system(finishline, package):
    inner = package / "ACME" / "results" / "big" / "retinanet"
    [record] = lines(finishline("score", str(inner)).out)
    assert (record["path"], record["organisation"], record["system"]) == (".", "ACME", "big")
    assert "missing_system" not in {problem["code"] for problem in record["problems"]}
    [single] = lines(finishline("score", str(inner / "result_3.txt")).out)
    assert single["runs"][0]["tta_seconds"] == 780.0


def test_links_pipes_and_folders_are_not_read(finishline, package):
    results = package / "ACME" / "results" / "big" / "retinanet"
    (results / "result_5.txt").symlink_to("/etc/passwd")
    os.mkfifo(results / "result_6.txt")
    (results / "result_7.txt").mkdir()
    (package / "loop").symlink_to(package)
    [record] = lines(finishline("score", str(package)).out)
    refused = {p["file"][-12:] for p in record["problems"] if p["code"] == "not_a_regular_file"}
    assert refused == {"result_5.txt", "result_6.txt"}
    assert record["n_runs"] == 7


def test_a_name_that_is_not_text_is_told_and_hinders_nothing(finishline, package):
    odd = os.fsencode(package) + b"/O\xff\n/results/big/retinanet"
    Path(os.fsdecode(odd)).mkdir(parents=True)
    (Path(os.fsdecode(odd)) / "result_0.txt").write_text(make_log(seed=1))
    ran = finishline("score", str(package))
    assert ran.code == 0
    first, second = lines(ran.out)
    assert first["olympic_mean_seconds"] == 720.0
    assert {problem["code"] for problem in second["problems"]} >= {"not_a_regular_file"}


def test_what_is_not_there_or_holds_nothing_is_one_sentence(finishline, tmp_path):
    assert "Cannot read" in finishline("score", str(tmp_path / "gone")).err
    ran = finishline("score", str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert "No submission found" in ran.err


def test_a_fault_of_ours_hides_no_other_record(finishline, tree, monkeypatch):
    whole = archive_score.score_submission

    def faulty(submission, reader):
        return whole(submission, reader) if "half" in submission.path else 1 / 0

    monkeypatch.setattr(archive_score, "score_submission", faulty)
    first, second = lines(finishline("score", str(tree)).out)
    assert first["problems"][0]["code"] == "internal_error"
    assert second["path"] == "CIFAR10/train/half.json"


def test_check_lists_every_problem_and_its_place(finishline, package, tree):
    assert finishline("check", str(package)).code == 0
    ran = finishline("check", str(tree))
    assert ran.code == 1
    assert "error: CIFAR10/train/half.json: no half.tsv beside it; expected a TSV" in ran.out
    bad = package / "ACME" / "results" / "big" / "retinanet" / "result_1.txt"
    text = bad.read_text()
    bad.write_text(':::MLLOG {"time_ms": 1, "key": "eval_accuracy", "value": NaN}\n' + text)
    ran = finishline("check", str(package), "--json")
    assert ran.code == 1
    document = ran.json()
    assert document["refused"] == ["ACME/results/big/retinanet"]
    [problem] = [p for p in document["problems"] if p["severity"] == "error"]
    assert (problem["line"], problem["code"]) == (1, "not_finite")
    assert problem["file"].endswith("retinanet/result_1.txt")


def test_check_takes_one_file_of_an_archive(finishline, package, tree):
    run = package / "ACME" / "results" / "big" / "retinanet" / "result_0.txt"
    files = [tree / "CIFAR10" / "train" / name for name in ("good.json", "good.tsv", "half.json")]
    assert [finishline("check", str(file)).code for file in (*files, run)] == [0, 0, 1, 0]
    run.write_text(run.read_text().replace("run_stop", "run_start"))
    assert finishline("check", str(run)).code == 1


def test_check_and_score_need_no_scipy(package, tree, tmp_path):
    folder = write_submission(tmp_path / "sub")
    checked = run_bare(tmp_path, "check", folder, "--json")
    entries = run_bare(tmp_path, "score", tree, "--benchmarks", BENCHMARKS)
    scored = run_bare(tmp_path, "score", package)

    codes = [each.returncode for each in (checked, entries, scored)]
    assert codes == [0, 0, 0], checked.stderr + entries.stderr + scored.stderr
    assert json.loads(checked.stdout)["result"]["tta_low_seconds"] is not None
    assert "internal_error" not in entries.stdout
    assert json.loads(scored.stdout)["rcp"]["verdict"] == "pass"


DIGITS = BENCHMARKS / "digits.toml"
SPRING = DIGITS.read_bytes().replace(b'id = "digits"', b'id = "spring"')
PATH = "GET /api/v1/benchmarks/spring.toml"
FILES = ("task.py", "reference/train.py", "reference/training.toml")


def answer_with_definition(standin):
    standin.answer(PATH, SPRING)
    for name in FILES:
        content = DIGITS.with_name("digits").joinpath(name).read_bytes()
        standin.answer(f"GET /api/v1/benchmarks/spring/files/{name}", content)


@pytest.fixture
def spring(tmp_path):
    """A submission to a benchmark that only a server has."""
    folder = write_submission(tmp_path / "mine")
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes().replace(b'"digits"', b'"spring"'))
    return folder


def test_submission_is_checked_under_fetched_definition(finishline, standin, tmp_path, spring):
    """A file that says otherwise is replaced only if that is asked for."""
    folder = tmp_path / "benchmarks"
    here = ("--benchmarks-dir", str(folder))
    fetch = ("benchmark", "fetch", "spring", *here)
    answer_with_definition(standin)

    for before in (("run", "spring"), ("check", str(spring))):
        assert "finishline benchmark fetch" in finishline(*before).err
    ran = finishline(*fetch)

    assert ran.code == 0, ran.err
    assert (folder / "spring.toml").read_bytes() == SPRING
    assert finishline("check", str(spring), *here).code == 0
    (folder / "spring.toml").write_text("title = 'mine'")
    assert finishline(*fetch).code == 1
    assert (folder / "spring.toml").read_text() == "title = 'mine'"
    assert [finishline(*fetch, *more).code for more in (["--replace"], [])] == [0, 0]
    assert (folder / "spring.toml").read_bytes() == SPRING


def test_an_answer_that_is_no_definition_writes_nothing(finishline, standin, tmp_path):
    standin.answer(PATH, b"<html>")
    ran = finishline("benchmark", "fetch", "spring", "--benchmarks-dir", str(tmp_path))
    assert ran.code == 1
    assert "spring.toml line 1: not TOML" in ran.err
    assert not list(tmp_path.iterdir())


def test_check_asks_the_server_for_a_definition_that_is_not_here(finishline, standin, spring):
    standin.answer(PATH, SPRING)
    standin.answer("GET /api/v1/benchmarks/spring", {"phases": {"sentence": "Open."}})

    ran = finishline("check", str(spring), "--url", standin.url)

    assert ran.code == 0, ran.err
    assert "Accepted by the rules: spring closed" in ran.out
    assert finishline("check", str(spring), "--url", "http://127.0.0.1:9").code == 4


def test_a_definition_is_checked_by_itself(finishline, tmp_path):
    mine = tmp_path / "spring.toml"
    mine.write_bytes(SPRING)

    assert "definition of spring, target" in finishline("check", str(mine)).out
    mine.write_bytes(SPRING.replace(b"[target]", b"[targets]"))
    refused = finishline("check", str(mine))
    assert refused.code == 1
    assert "spring.toml" in refused.err


def test_score_takes_a_definition_file_and_those_of_a_server(finishline, standin, tmp_path):
    log = write_submission(tmp_path / "mine") / "run_0.log"
    standin.answer("GET /api/v1/benchmarks", {"benchmarks": [{"id": "digits"}, {"id": "spring"}]})
    standin.answer(PATH, SPRING)
    mine = tmp_path / "spring.toml"
    mine.write_bytes(SPRING)

    for option in (("--benchmarks", str(mine)), ("--url", standin.url)):
        assert finishline("score", str(log), *option).code == 0
    asked = [each.path for each in standin.asked]
    assert asked == ["/api/v1/benchmarks", "/api/v1/benchmarks/spring.toml"]


BLOCKED = ("fcntl", "numpy", "psutil", "scipy", "server")
PROGRAM = (
    f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r})); "
    "from finishline.cli.main import main; sys.exit(main())"
)


def run_bare(folder, *arguments, program=PROGRAM):
    kept = {name: at for name, at in os.environ.items() if not name.startswith("FINISHLINE_")}
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *map(str, arguments)],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_needs_the_server_says_so_and_the_rest_explains_itself(tmp_path):
    each = PROGRAM.replace("sys.exit(main())", "print([main(a.split()) for a in sys.argv[1:]])")
    needing = ("up", "run digits", "bench digits")
    helped = ("check", "submit", "show", "board", "verify", "proof")
    ran = run_bare(tmp_path, *needing, *(f"{name} --help" for name in helped), program=each)

    assert ran.stdout.splitlines()[-1] == str([4, 4, 4, 0, 0, 0, 0, 0, 0])
    for command, said in zip(needing, ran.stderr.splitlines(), strict=True):
        name = command.partition(" ")[0]
        assert said.startswith(f"error: `finishline {name}` needs the distribution")
    assert list(tmp_path.iterdir()) == []


def test_a_server_installed_by_halves_is_missing(tmp_path):
    stale = "import importlib.metadata as m; m.entry_points = lambda **_: m.EntryPoints(()); "
    ran = run_bare(tmp_path, "up", program=stale + PROGRAM.replace(repr(BLOCKED), "()"))

    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr.startswith("error: `finishline up` needs the distribution")


def test_a_submission_is_checked_under_a_definition_file(tmp_path):
    folder = write_submission(tmp_path / "mine")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "spring.toml").write_bytes(SPRING)
    unknown = run_bare(tmp_path, "check", folder, "--benchmarks-dir", tmp_path / "others")
    ran = run_bare(tmp_path, "check", folder, "--benchmark", DIGITS)

    assert unknown.returncode == 1
    assert ("finishline benchmark fetch" in unknown.stderr, "--url" in unknown.stderr) == (
        True,
        True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Accepted by the rules: digits closed, TTA 20.0 s")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "digits.toml").write_bytes(DIGITS.read_bytes())
    assert run_bare(tmp_path, "check", folder).returncode == 0
