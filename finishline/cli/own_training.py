"""A training program of the user's own, run once for each seed, and the logs that it wrote."""

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode, refusal
from finishline.log.folder import (
    CLAIM_NAME,
    UNSTATED,
    Submission,
    logs_in,
    renew_submission,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import MAX_SEED
from finishline.rules.text import count_text

STDERR = 2  # The file descriptor.
SEED_LIMIT = 2**31


@dataclass(frozen=True)
class OwnTraining:
    """A command, the seeds that it is run with, and the folder for its logs."""

    command: Sequence[str]
    benchmark: Benchmark
    out: Path
    seeds: Sequence[int]
    division: str
    settings: Mapping[str, float]
    surroundings: Mapping[str, str] | None = None

    def environment(self, run: int) -> dict[str, str]:
        """The variables of a run, beside those of this process."""
        return {
            **os.environ,
            **(self.surroundings or {}),
            "FINISHLINE_BENCHMARK": self.benchmark.benchmark_id,
            "FINISHLINE_OUT": str(self.out.resolve()),
            "FINISHLINE_RUN": str(run),
            "FINISHLINE_SEED": str(self.seeds[run]),
        }


def require_seeds(first: int | None, runs: int, *, most: int) -> None:
    """Raise CliError if the last of the seeds that count up from the first is beyond `most`."""
    if first is not None and first + runs - 1 > most:
        limit = "32 bits, as torch and numpy use" if most < MAX_SEED else "63 bits, as a log holds"
        raise CliError(
            f"--seed {first}: the seeds of {count_text(runs, 'run')} end at {first + runs - 1}; "
            f"expected at most {most} ({limit}).",
            exit_code=ExitCode.USAGE,
        )


def seeds_from(first: int | None, runs: int) -> list[int]:
    """As many seeds, counted from the first one or from one that is drawn."""
    start = secrets.randbelow(SEED_LIMIT) if first is None else first
    return [start + run for run in range(runs)]


def run_command(training: OwnTraining, *, as_json: bool) -> Iterator[int]:
    """Run the command for each seed, and yield the number of each run that wrote its log.

    With `as_json` its standard output goes to standard error. Raises CliError at the first run that
    fails or writes no log.
    """
    training.out.mkdir(parents=True, exist_ok=True)
    for run in range(len(training.seeds)):
        before = len(logs_in(training.out))
        code = _run(training, run, as_json=as_json)
        where = f"Run {run + 1} of {len(training.seeds)} (seed {training.seeds[run]})"
        if code != 0:
            ended = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise CliError(
                f"{where} failed: {training.command[0]} ended with {ended}. "
                f"Its logs are in {training.out}.",
                exit_code=ExitCode.REFUSED,
            )
        if len(logs_in(training.out)) == before:
            raise CliError(
                f"{where} wrote no log. Log with finishline.log, or write "
                f"run_{run}.log into the folder that FINISHLINE_OUT names.",
                exit_code=ExitCode.REFUSED,
            )
        yield run
    if not (training.out / CLAIM_NAME).is_file():
        _write_submission(training)


def _run(training: OwnTraining, run: int, *, as_json: bool) -> int:
    try:
        child = subprocess.Popen(
            list(training.command),
            env=training.environment(run),
            stdout=STDERR if as_json else None,
        )
    except OSError as error:
        raise CliError(
            f"Cannot start {training.command[0]} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise


def _write_submission(training: OwnTraining) -> None:
    """Describe logs that the program wrote by other means."""
    scripts = [Path(word).name for word in training.command if word.endswith(".py")]
    submission = Submission(
        benchmark=training.benchmark,
        division=training.division,
        hyperparameters=training.settings,
        model=scripts[0] if scripts else Path(training.command[0]).name,
        framework=UNSTATED,
    )
    try:
        renew_submission(training.out, submission)
    except RuleError as error:
        raise refusal(error) from error
