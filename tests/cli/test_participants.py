"""The command without finishline-server, SciPy and POSIX, as on a participant's machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_check import BENCHMARKS, write_submission

ROOT = Path(__file__).parents[2]
BLOCKED = ("fcntl", "numpy", "psutil", "scipy", "server")
PROGRAM = (
    f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r})); "
    "from finishline.cli.main import main; sys.exit(main())"
)


def run_bare(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder without the blocked modules and without settings."""
    kept = {name: at for name, at in os.environ.items() if not name.startswith("FINISHLINE_")}
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *map(str, arguments)],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [("up",), ("run", "digits"), ("bench", "digits"), ("demo",)],
    ids=lambda each: each[0],
)
def test_what_needs_the_server_says_so_in_one_sentence(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    ran = run_bare(tmp_path, *command)

    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr == (
        f"error: `finishline {command[0]}` needs the distribution finishline-server, which is not "
        "installed here; install it with `pip install 'finishline-server[worker]'`.\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", ["check", "submit", "show", "leaderboard", "verify", "check-proof", "ticket"]
)
def test_a_participants_command_explains_itself(command: str, tmp_path: Path) -> None:
    assert run_bare(tmp_path, command, "--help").returncode == 0


def test_a_submission_is_checked_under_a_definition_file(tmp_path: Path) -> None:
    folder = write_submission(tmp_path / "mine")

    unknown = run_bare(tmp_path, "check", folder)
    ran = run_bare(tmp_path, "check", folder, "--benchmark", BENCHMARKS / "digits.toml")

    assert unknown.returncode == 1
    assert "finishline benchmark fetch" in unknown.stderr
    assert "--url" in unknown.stderr
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Accepted by the rules: digits closed, TTA 0:00:20")
    assert "warning: Tests and intervals by Student's t need SciPy" in ran.stdout


def test_a_fetched_definition_is_found_in_benchmarks_here(tmp_path: Path) -> None:
    folder = write_submission(tmp_path / "mine")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "digits.toml").write_bytes((BENCHMARKS / "digits.toml").read_bytes())

    assert run_bare(tmp_path, "check", folder).returncode == 0
