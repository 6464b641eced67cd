import json
from pathlib import Path
from typing import Any

import pytest

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.submission_tables import find_submission_files
from finishline.client.errors import Refused
from finishline.client.files import find_submission_files as find_files_of_a_program
from finishline.client.files import idempotency_key


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_submission(tmp_path / "sub", runs=["run_0.log", "run_1.log"])


def write_submission(folder: Path, **claim: Any) -> Path:
    folder.mkdir()
    (folder / "submission.json").write_text(json.dumps({"benchmark": "digits"} | claim))
    for number in range(2):
        (folder / f"run_{number}.log").write_text(f"log {number}")
    return folder


def test_a_folder_and_its_json_name_the_same_files(folder: Path) -> None:
    files = find_submission_files(folder)
    assert files == find_submission_files(folder / "submission.json")
    assert list(files.logs.items()) == [
        ("run_0.log", folder / "run_0.log"),
        ("run_1.log", folder / "run_1.log"),
    ]


def test_a_dawnbench_entry_has_the_tsv_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "entry.json").write_text("\ufeff" + json.dumps({"author": "A", "version": "v1.0"}))
    (tmp_path / "entry.tsv").write_text("epoch\thours\ttop1Accuracy\n")
    logs = find_submission_files(tmp_path / "entry.json").logs
    assert logs == {"entry.tsv": tmp_path / "entry.tsv"}


@pytest.mark.parametrize(
    "name", ["../run_0.log", "/etc/passwd", "..", ".", "", "a\\b", "nul\0byte", "run_9.log"]
)
def test_a_listed_log_that_is_not_a_file_beside_the_json_is_refused(
    tmp_path: Path, name: str
) -> None:
    folder = write_submission(tmp_path / "sub", runs=[name])
    (tmp_path / "run_0.log").write_text("outside")
    with pytest.raises(CliError) as caught:
        find_submission_files(folder)
    assert caught.value.exit_code is ExitCode.REFUSED
    assert caught.value.problems


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"benchmark": "x"}', '{"runs": [1]}'])
def test_a_json_that_describes_no_submission_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "submission.json").write_text(content)
    with pytest.raises(CliError) as caught:
        find_submission_files(tmp_path)
    assert caught.value.exit_code is ExitCode.REFUSED


def test_what_is_missing_is_named_once_with_its_path(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(CliError) as caught:
        find_submission_files(gone)
    whole = f"{gone}: not there; expected a submission's JSON, or its folder"
    assert caught.value.message == f"{whole}."
    assert [str(problem) for problem in caught.value.problems] == [whole]

    folder = write_submission(tmp_path / "sub", runs=["run_9.log"])
    with pytest.raises(Refused) as refused:
        find_files_of_a_program(folder)
    missing = f"{folder}/run_9.log: not there; expected every run log listed in submission.json."
    assert str(refused.value) == missing, "a program is told once too"


def test_a_misspelt_list_of_logs_is_named_with_the_field_that_was_meant(tmp_path: Path) -> None:
    folder = write_submission(tmp_path / "sub", rusn=["run_0.log"])
    with pytest.raises(CliError, match=r"field runs: missing \(did you mean 'runs' where"):
        find_submission_files(folder)


def test_the_key_is_the_same_for_the_same_files_wherever_they_are(tmp_path: Path) -> None:
    runs = ["run_0.log", "run_1.log"]
    first = find_submission_files(write_submission(tmp_path / "a", runs=runs))
    second = find_submission_files(write_submission(tmp_path / "b", runs=runs))
    assert idempotency_key(first.upload) == idempotency_key(second.upload)


def test_the_key_differs_for_other_contents_names_and_fields(folder: Path) -> None:
    files = find_submission_files(folder)
    keys = [idempotency_key(files.upload), idempotency_key(files.upload, benchmark="cifar10")]
    (folder / "run_0.log").write_text("log 1")
    (folder / "run_1.log").write_text("log 0")
    keys.append(idempotency_key(files.upload))
    assert len(set(keys)) == 3
