"""What a claim says about its training: by whose code, after how much tuning, on which ticket."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from rules.benchmark import Benchmark
from rules.fields import Fields

TICKET_LENGTH = 20
MOST_UNFINISHED = 100
MAX_SEED = 2**63 - 1

TrainedWith = Literal["reference", "own"]
MOST_TRIALS = 10**9
MOST_SECONDS = 1e12


@dataclass(frozen=True)
class Tuning:
    """The search that found the settings: trainings tried, and the seconds they took together."""

    trials: int
    seconds: float


def read_trained_with(root: Fields, benchmark: Benchmark, settings: Iterable[str]) -> TrainedWith:
    """Read whose code trained: the benchmark's reference, or the submitter's own.

    Raises ClaimError for a reference that the benchmark does not have, or with a setting that the
    reference does not take.
    """
    choices = get_args(TrainedWith)
    trained_with = cast(TrainedWith, root.choice("trained_with", choices, default="own"))
    if trained_with == "own":
        return trained_with
    if benchmark.replay is None:
        message = f"{benchmark.title} has no reference training"
        raise root.fail("trained_with", message, expected="own")
    for name in settings:
        if name not in benchmark.hyperparameters:
            message = "the reference takes no such setting"
            names = ", ".join(sorted(benchmark.hyperparameters))
            expected = f'one of {names}, or "trained_with": "own"'
            raise root.fail(f"hyperparameters.{name}", message, expected=expected)
    return trained_with


def read_tuning(root: Fields) -> Tuning | None:
    """Read what was spent on finding the settings; None where that is not stated."""
    table = root.optional_table("tuning")
    if table is None:
        return None
    tuning = Tuning(
        trials=table.integer("trials", minimum=0, maximum=MOST_TRIALS),
        seconds=table.number("seconds", minimum=0.0, maximum=MOST_SECONDS),
    )
    table.refuse_unknown()
    return tuning


def read_ticket_name(root: Fields) -> str | None:
    """Read the id of the ticket that the seeds came with; None where they came without."""
    name = root.optional_text("ticket")
    if name is not None and len(name) > TICKET_LENGTH:
        expected = "the id of a ticket, as `finishline ticket` writes it"
        raise root.fail("ticket", f"got {name[:60]!r}", expected=expected)
    return name


def read_unfinished(root: Fields, *, ticket: str | None) -> tuple[int, ...]:
    """Read the seeds of the ticket that have no log; each counts as a run without an end."""
    value = root.raw("unfinished")
    if value is None or value == []:
        return ()
    expected = f"a list of at most {MOST_UNFINISHED} seeds of the ticket, each once"
    if not isinstance(value, list) or not all(_is_seed(seed) for seed in value):
        raise root.fail("unfinished", "no list of seeds", expected=expected)
    if len(value) > MOST_UNFINISHED:
        raise root.fail("unfinished", f"{len(value)} seeds", expected=expected)
    for place, seed in enumerate(value):
        if seed in value[:place]:
            raise root.fail("unfinished", f"seed {seed} is listed twice", expected=expected)
    if ticket is None:
        raise root.fail(
            "unfinished", "seeds without a ticket", expected="a ticket that issued them"
        )
    return tuple(value)


def _is_seed(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SEED
