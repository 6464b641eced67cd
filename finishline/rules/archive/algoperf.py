"""Score an AlgoPerf leaderboard from its logs: times to target, performance profiles, scores.

Source: mlcommons/submissions_algorithms, README.md and scoring/, and the section "Scoring" of
mlcommons/algorithmic-efficiency, docs/DOCUMENTATION.md.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from finishline.rules.archive.files import Problems, shown
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.source import Source, read_csv
from finishline.rules.text import count_text, did_you_mean, names_text

Record = dict[str, Any]
Times = Mapping[str, float]
MEASUREMENTS = "eval_measurements.csv"
TIME = "accumulated_submission_time"
MAX_BYTES = 32 * 1024 * 1024
# The quality of each workload, a column below validation/, and its target.
BASE = {
    "criteo1tb": ("loss", 0.123735),
    "fastmri": ("ssim", 0.723653),
    "imagenet_resnet": ("accuracy", 0.77431),
    "imagenet_vit": ("accuracy", 0.77309),
    "librispeech_conformer": ("wer", 0.085884),
    "librispeech_deepspeech": ("wer", 0.119936),
    "ogbg": ("mean_average_precision", 0.28098),
    "wmt": ("bleu", 30.8491),
}
# Version 0.5 also drew a variant of some workloads after the submissions had closed.
HELD_OUT = {
    "criteo1tb_embed_init": ("loss", 0.129657),
    "fastmri_tanh": ("ssim", 0.71784),
    "imagenet_resnet_large_bn_init": ("accuracy", 0.76526),
    "librispeech_conformer_layernorm": ("wer", 0.09731),
    "ogbg_model_size": ("mean_average_precision", 0.269446),
    "wmt_glu_tanh": ("bleu", 29.5779),
}
# Added after version 0.5.
ADDED = {"finewebedu_lm": ("ppl", 22.2995)}
TARGETS = BASE | HELD_OUT | ADDED
LOWER_IS_BETTER = ("loss", "ppl", "wer")
TRIALS = {"external_tuning": 5, "self_tuning": 1}
SLOWEST = 4  # A workload counts up to this multiple of the fastest time.
POINTS = 100  # Of a performance profile, from 1 to SLOWEST.
_WORKLOAD = re.compile(r"(.+)_(?:jax|pytorch)")


@dataclass
class Submission:
    """The tables of one submission by workload, study and trial, and their times.

    A trial without a table has None. `studies` has the seconds to the target in each study.
    """

    id: str
    folder: Path
    trials: dict[str, dict[str, dict[str, Path | None]]] = field(default_factory=dict)
    studies: dict[str, list[float]] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)

    @property
    def study_names(self) -> list[str]:
        return sorted({study for studies in self.trials.values() for study in studies})

    @property
    def times(self) -> dict[str, float]:
        """Return the seconds to the target for each workload, the median of its studies."""
        return {workload: median(seconds) for workload, seconds in self.studies.items()}


def score_algoperf(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the record of every submission, best first. One folder is one leaderboard."""
    for path in paths:
        boards: dict[Path, list[Submission]] = defaultdict(list)
        for submission in _find(path.resolve()):
            boards[submission.folder.parent].append(submission)
        if not boards:
            expected = f"a folder with SUBMISSION/STUDY/WORKLOAD_FRAMEWORK/trial_N/{MEASUREMENTS}"
            raise LogFormatError("no AlgoPerf trial", file=str(path), expected=expected)
        for board in boards.values():
            for submission in board:
                _read(submission)
            yield from sorted(_score(board), key=lambda record: -record["score"])


def _find(root: Path) -> list[Submission]:
    """Find submissions by SUBMISSION/STUDY/WORKLOAD/trial_N/eval_measurements.csv in a folder."""
    found: dict[Path, Submission] = {}
    for trial in sorted(root.rglob("trial_*")):
        named, folder = _WORKLOAD.fullmatch(trial.parent.name), trial.parents[2]
        if named is None:
            continue
        if folder not in found:
            inside = folder.is_relative_to(root) and folder != root
            name = folder.relative_to(root).as_posix() if inside else folder.name
            found[folder] = Submission(shown(name), folder)
        trials = found[folder].trials.setdefault(named[1], {}).setdefault(trial.parents[1].name, {})
        table = trial / MEASUREMENTS
        trials[trial.name] = table if table.is_file() and not table.is_symlink() else None
    return list(found.values())


def _read(submission: Submission) -> None:
    problems, path = submission.problems, submission.id
    least = TRIALS.get(submission.folder.parent.name, 0)
    for workload, studies in sorted(submission.trials.items()):
        if workload not in TARGETS:
            message = f"{workload!r} does not count{did_you_mean(workload, TARGETS)}"
            expected = f"one of {', '.join(TARGETS)}"
            problems.warn("unknown_workload", message, path, workload, expected)
            continue
        for study in submission.study_names:
            trials = studies.get(study, {})
            tables = [table for table in trials.values() if table is not None]
            wanted = max(len(trials), least)
            if not tables:
                message = f"no table in {study}: the median of the other studies counts"
                expected = f"{study}/{workload}_FRAMEWORK/trial_N/{MEASUREMENTS}"
                problems.warn("missing_study", message, path, workload, expected)
                continue
            if len(tables) < wanted:
                found = f"{len(tables)} of {count_text(wanted, 'trial')} in {study} with a table"
                message, expected = (
                    f"{found}: the best of these counts",
                    f"an {MEASUREMENTS} of each",
                )
                problems.warn("missing_trial", message, path, workload, expected)
            _, seconds = min(_first_at_target(table, workload, submission) for table in tables)
            submission.studies.setdefault(workload, []).append(seconds)


def _first_at_target(table: Path, workload: str, submission: Submission) -> tuple[float, float]:
    """Return number and seconds of a trial's first evaluation at the target, infinite without one.

    The published scores take the trial with the fewest evaluations, and we the fastest of those.
    """
    metric, target = TARGETS[workload]
    quality, problems = f"validation/{metric}", submission.problems
    file = f"{submission.id}/{shown(table.relative_to(submission.folder).as_posix())}"
    with problems.reported():
        source = _read_table(table, file, (quality, TIME))
        if not source.rows:
            message, expected = "no evaluation: the trial missed its target", "a row for each"
            problems.warn("no_evaluation", message, file, quality, expected)
        for number, row in enumerate(source.rows):
            value = source.number(row, quality)
            if value is None or not math.isfinite(value):
                message = f"got {row.cells.get(quality, 'an empty cell')}: not at the target"
                expected = "a finite number for each evaluation"
                problems.warn("not_finite", message, file, quality, expected, line=row.line)
            elif value <= target if metric in LOWER_IS_BETTER else value >= target:
                return number, source.checked(row, TIME, 0, math.inf)
    return math.inf, math.inf


def _read_table(table: Path, file: str, columns: Sequence[str]) -> Source:
    try:
        if (size := table.stat().st_size) > MAX_BYTES:
            expected = f"at most {MAX_BYTES:,} bytes"
            raise LogFormatError(f"{size:,} bytes", file=file, expected=expected)
        source = read_csv(table.read_bytes(), file=file)
    except OSError as error:
        message, expected = f"cannot be read ({error.strerror})", "a readable file"
        raise LogFormatError(message, file=file, expected=expected) from error
    for name in columns:
        if name not in source.names or name in source.repeated:
            fault = "a column twice" if name in source.repeated else "no such column"
            expected = f"one column {name} in the header"
            raise LogFormatError(fault, file=file, line=1, field=name, expected=expected)
    return source


def _score(board: Sequence[Submission]) -> Iterator[Record]:
    seen = {workload for submission in board for workload in submission.studies}
    base = [*BASE, *(workload for workload in ADDED if workload in seen)]
    variants = HELD_OUT if seen & {*HELD_OUT} else ()
    held_out = {variant: next(filter(variant.startswith, BASE)) for variant in variants}
    most = max(board, key=lambda submission: len(submission.study_names))
    for submission in board:
        missing = [name for name in most.study_names if name not in submission.study_names]
        if len(submission.study_names) < len(most.study_names):
            message = f"no {names_text(missing)}: the median of the other studies counts"
            expected = f"{count_text(len(most.study_names), 'study', 'studies')}, as {most.id} has"
            submission.problems.warn("missing_study", message, submission.id, "study", expected)
        for name in (*base, *held_out):
            if name not in submission.trials:
                message, expected = "no trial: the target was missed", f"STUDY/{name}_FRAMEWORK"
                submission.problems.warn("missing_workload", message, submission.id, name, expected)
    missed = _missed([submission.times for submission in board], base, held_out)
    counted = [
        {name: submission.times[name] for name in base if name not in why}
        for submission, why in zip(board, missed, strict=True)
    ]
    fastest = _fastest(counted)
    for submission, why, seconds in zip(board, missed, counted, strict=True):
        ratios = {name: each / fastest[name] for name, each in seconds.items()}
        slowness = (1 + (SLOWEST - 1) * i / (POINTS - 1) for i in range(POINTS))
        profile = [
            (most, sum(ratio <= most for ratio in ratios.values()) / len(base)) for most in slowness
        ]
        yield {
            "id": submission.id,
            "suite": "AlgoPerf",
            "version": "0.5" if held_out else "0.6",
            "score": fmean((low + high) / 2 for (_, low), (_, high) in pairwise(profile)),
            "workloads": {
                name: {
                    "seconds": _finite(submission.times.get(name, math.inf)),
                    "studies": [_finite(each) for each in submission.studies.get(name, ())],
                    "ratio": ratios.get(name),
                    "missed": why.get(name),
                }
                for name in (*base, *held_out)
            },
            "profile": profile,
            "problems": submission.problems.records,
        }


def _missed(
    board: Sequence[Times], base: Sequence[str], held_out: Mapping[str, str]
) -> list[dict[str, str]]:
    """Say why workloads are left out. A workload counts together with its held-out variant."""
    missed: list[dict[str, str]] = []
    for times in board:
        unreached = {
            name: "the target was not reached"
            for name in (*base, *held_out)
            if math.isinf(times.get(name, math.inf))
        }
        of_variants = {v: f"{of}: {unreached[of]}" for v, of in held_out.items() if of in unreached}
        missed.append(of_variants | unreached)
    fastest = _fastest(
        {name: seconds for name, seconds in times.items() if name not in why}
        for times, why in zip(board, missed, strict=True)
    )
    for times, why in zip(board, missed, strict=True):
        for name, least in fastest.items():
            if name not in why and times[name] > SLOWEST * least:
                why[name] = f"{times[name] / least:.3g} times the fastest, at most {SLOWEST} count"
        for variant, of in held_out.items():
            if variant in why and of not in why:
                why[of] = f"{variant}: {why[variant]}"
    return missed


def _fastest(board: Iterable[Times]) -> dict[str, float]:
    fastest: dict[str, float] = {}
    for times in board:
        for name, seconds in times.items():
            fastest[name] = min(seconds, fastest.get(name, math.inf))
    return fastest


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
