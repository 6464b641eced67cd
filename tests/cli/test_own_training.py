"""`finishline run BENCHMARK -- COMMAND`: a program of the user's, once for each seed."""

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly
NAMES = ("BENCHMARK", "OUT", "RUN", "SEED")
TRAIN = """
import json, os, pathlib, time
import finishline.log

with finishline.log.run(
    os.environ["FINISHLINE_BENCHMARK"],
    seed=int(os.environ["FINISHLINE_SEED"]),
    hyperparameters={"batch_size": 32},
) as run:
    run.start()
    for epoch, quality in enumerate((60.0, 90.0, 97.6 + int(os.environ["FINISHLINE_RUN"]) / 10), 1):
        time.sleep(0.001)
        run.evaluation(epoch=epoch, quality=quality)
told = {name: value for name, value in os.environ.items() if name.startswith("FINISHLINE_")}
with (pathlib.Path(os.environ["FINISHLINE_OUT"]) / "told.jsonl").open("a") as file:
    file.write(json.dumps(told) + "\\n")
print("trained")
"""


@pytest.fixture
def program(tmp_path):
    script = tmp_path / "my_train.py"
    script.write_text(TRAIN)
    return [sys.executable, str(script)]


@pytest.fixture
def command(finishline, monkeypatch):
    monkeypatch.delenv("FINISHLINE_URL")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return finishline


def told(out):
    for line in (out / "told.jsonl").read_text().splitlines():
        yield {name: json.loads(line)[f"FINISHLINE_{name}"] for name in NAMES}


def claim_in(out):
    return json.loads((out / "submission.json").read_text())


def test_program_runs_once_for_each_seed(command, program, tmp_path):
    out = tmp_path / "mine"
    ran = command("run", "digits", "--seed", "41", "--out", str(out), "--json", "--", *program)
    assert ran.code == 0, ran.err
    assert ran.json()["runs"] == [{"index": run, "seed": 41 + run} for run in range(3)]
    first = {"BENCHMARK": "digits", "OUT": str(out)}
    assert list(told(out)) == [
        {**first, "RUN": str(run), "SEED": str(41 + run)} for run in range(3)
    ]
    assert claim_in(out)["model"] == "my_train.py"
    assert command("check", str(out)).code == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(7)", "exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("pass", "wrote no log"),
    ],
)
def test_a_program_that_fails_is_told_by_its_code(command, tmp_path, body, said):
    out = str(tmp_path / "mine")
    ran = command("run", "digits", "--out", out, "--", sys.executable, "-c", body)
    assert ran.code == 1
    assert said in ran.err
    assert "Run 1 of 3" in ran.err


def test_logs_by_other_means_get_a_submission(command, program, tmp_path):
    earlier, out = tmp_path / "earlier", tmp_path / "mine"
    command("run", "digits", "--out", str(earlier), "--", *program)
    body = (
        "import os, shutil; run = os.environ['FINISHLINE_RUN']; name = f'run_{run}.log'; "
        f"shutil.copy(os.path.join({str(earlier)!r}, name), os.environ['FINISHLINE_OUT'])"
    )
    ran = command(
        "run", "digits", "--set", "batch_size=32", "--out", str(out), "--",
        sys.executable, "-c", body,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert claim_in(out)["runs"] == ["run_0.log", "run_1.log", "run_2.log"]
    assert command("check", str(out)).code == 0
