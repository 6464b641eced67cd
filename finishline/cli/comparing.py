"""Two packages trained in turn on this machine: runs on equal seeds and data, and their ratio."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from finishline.cli.screen import as_it_is
from finishline.rules.statistics.gaps import gap_of_all
from finishline.rules.statistics.significance import SHORTEST_SECONDS
from finishline.rules.text import count_text
from finishline.rules.trainings.package import Package

Run = Mapping[str, Any]


def comparison(runs: Sequence[Run], compared: Package) -> dict[str, Any]:
    """The runs of the compared package, and the speed-up over it; None where one missed."""
    own, others = (_of_side(runs, compared=side) for side in (False, True))
    seconds = ([_seconds(run) for run in side] for side in (others, own))
    gap = gap_of_all(*seconds, quantum=SHORTEST_SECONDS)
    return {
        "compared_with": {
            "package_sha256": compared.sha256,
            "title": compared.manifest.title,
            "runs": others,
        },
        "speed_up": None if gap is None else gap.numbers | {"pairs": gap.pairs},
    }


def comparison_lines(document: Mapping[str, Any]) -> Iterator[Text]:
    """Lines for people on a comparison."""
    title, found = document["compared_with"]["title"], document["speed_up"]
    if found is None:
        runs = [*document["runs"], *document["compared_with"]["runs"]]
        missed = sum(_seconds(run) is None for run in runs)
        yield as_it_is(f"No speed-up over {title}: {count_text(missed, 'run')} missed the target.")
        return
    yield as_it_is(speed_up_text(found, title))


def speed_up_text(found: Mapping[str, Any], title: str) -> str:
    """One sentence on a speed-up."""
    interval = f"95 %: {found['low']:.3f} to {found['high']:.3f}"
    told = f"Speed-up over {title}: {found['ratio']:.3f} ({interval}) in {found['pairs']} pairs."
    if found["low"] <= 1 <= found["high"]:
        return f"{told} These runs do not tell the two apart."
    return told


def _of_side(runs: Sequence[Run], *, compared: bool) -> list[Run]:
    return sorted((run for run in runs if run["compared"] == compared), key=lambda run: run["run"])


def _seconds(run: Run) -> float | None:
    return run["seconds"] if run["status"] == "reached" else None
