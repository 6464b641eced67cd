"""`finishline compare`: two code submissions here, or two results on the server."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from finishline.cli.answers import comparison_lines
from finishline.cli.client import connect, segment
from finishline.cli.commands.code import (
    Nonce,
    Plain,
    event_lines,
    fetch_code,
    in_box,
    open_code,
    open_trainable,
)
from finishline.cli.errors import CliError, ExitCode, UsageError, require_server
from finishline.cli.options import BenchmarksDir, shows
from finishline.cli.own_benchmarks import read_task
from finishline.cli.processes import TRAIN, box_events
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.tables import View, seconds_text
from finishline.client.errors import NotFound
from finishline.package_folder import package_folder
from finishline.rules.statistics.gaps import ALPHA, Score
from finishline.rules.statistics.paired import (
    FEWEST_PAIRS,
    MOST_PAIRS,
    Comparison,
    compare_pairs,
    compare_schedule,
)
from finishline.rules.text import count_text
from finishline.rules.trainings.package import Package
from finishline.rules.verification.messages import PACKAGE_PREFIX

Event = Mapping[str, Any]
Runs = tuple[list[Event], list[Event]]  # Of A and of B.
EXIT_CODES = {"b": ExitCode.OK, "a": ExitCode.A_FASTER, None: ExitCode.NOT_SEPARABLE}


@shows
def compare(
    screen: Screen,
    first: Annotated[str, Argument(metavar="A", help="Folder or sha256: of code, or an id.")],
    second: Annotated[str, Argument(metavar="B", help="Folder of code, or an id.")],
    pairs: Annotated[
        int, Option(min=FEWEST_PAIRS, max=MOST_PAIRS, help="Pairs of trainings at most.")
    ] = 10,
    seed: Annotated[int | None, Option(min=0, help="Seed of the first pair of folders.")] = None,
    nonce: Nonce = None,
    plain: Plain = False,
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Train two folders of code in turn here, or compare two ids on the server.

    Folders are trained A B B A, each pair on one seed and the same data, until the answer is clear.

    Ids are of two submissions to one benchmark, or of two verifications of one submission.

    The exit code is 0 if B is faster, 10 if A is faster, and 11 if the answer is open.
    """
    if Path(first).is_dir() or Path(second).is_dir() or first.startswith(PACKAGE_PREFIX):
        if not Path(second).is_dir():
            raise UsageError(f"{second} is not a folder; expected one of code, or two ids.")
        require_server("compare")
        if plain and first.startswith(PACKAGE_PREFIX):
            expected = "a folder of yours: code of others runs in a sandbox alone"
            raise UsageError(f"--plain with {first[:20]}...: expected {expected}.")
        b, tasks = open_trainable(Path(second), benchmarks_dir)
        score = read_task(tasks[b.manifest.benchmark])[0].score
        a = _open_first(first, b.manifest.benchmark)
        boxed = in_box(b, tasks, runs=pairs, seed=seed, nonce=nonce, plain=plain)
        with package_folder(a.files) as folder, boxed as (arguments, _unit):
            arguments = [*arguments, "--compare", str(folder)]
            found, runs, drawn = _train(screen, arguments, pairs, score)
        gap = found.gap
        document: dict[str, Any] = {
            "ratio": None if gap is None or gap.sign else gap.ratio,
            "difference": gap.difference if gap is not None and gap.sign else None,
            "low": None if gap is None else gap.low,
            "high": None if gap is None else gap.high,
            "p": found.p,
            "pairs": found.pairs,
            "faster": found.faster,
            "pairs_missing": found.pairs_missing,
            "missed": dict(zip("ab", found.missed, strict=True)),
            "nonce": drawn,
        }
        for name, code, own in zip("ab", (a, b), runs, strict=True):
            named = {"package_sha256": code.sha256, "title": code.manifest.title}
            document[name] = named | {"runs": own}
        again = f"finishline compare {first} {second} --pairs {pairs} --nonce {drawn}"
        screen.answer(
            document, [*_sentences(found, score), as_it_is(f"Repeat these pairs: {again}")]
        )
        return EXIT_CODES[found.faster]
    with connect() as server:
        try:
            server.get(f"/verifications/{segment(first)}")
        except NotFound:
            view = server.get("/compare", submissions=f"{first},{second}")
            pair = view["pairs"][0]
            is_clear, ratio = pair["told_apart"], pair["ratio"]
            lines: Iterable[RenderableType] = [pair["sentence"]]
        else:
            view = server.get("/verifications/compare", first=first, second=second)
            times: View = next(iter(view["differences"]), {})  # Epochs come second.
            is_clear, ratio = (times.get("p_value") or 1.0) <= ALPHA, times.get("ratio")
            lines = comparison_lines(view, {})
    faster = None if not is_clear or ratio is None else "a" if ratio < 1 else "b"
    screen.answer(view | {"faster": faster}, lines)
    return EXIT_CODES[faster]


def _open_first(name: str, benchmark: str) -> Package:
    if name.startswith(PACKAGE_PREFIX):
        with connect() as server:
            found = fetch_code(server, name)
    else:
        found = open_code(Path(name), benchmarks=None)
    if found.manifest.benchmark != benchmark:
        raise UsageError(f"{name} is for {found.manifest.benchmark}; expected {benchmark}.")
    return found


def _train(
    screen: Screen, arguments: list[str], most_pairs: int, score: Score
) -> tuple[Comparison, Runs, str]:
    schedule, drawn = compare_schedule(most_pairs), ""
    found = compare_pairs([], schedule, score)
    runs: Runs = ([], [])
    for event in box_events(TRAIN, arguments):
        if event["kind"] == "box":
            screen.say(*event_lines(event, unit=""))
            gap_name = "B / A" if score.by == "time" else "B - A"
            screen.say(Text(f"{'pair':>4}{'A':>12}{'B':>12}{gap_name:>9}   so far", style="bold"))
        elif event["kind"] == "run_started" and not drawn:
            drawn = event["nonce"]
            screen.say(f"Repeat these pairs, also after Ctrl-C, with --nonce {drawn}")
        if event["kind"] != "run_finished":
            continue
        side = "A" if event["compared"] else "B"
        if event["status"] not in ("reached", "not_reached"):
            screen.say(*list(event_lines(event, unit=""))[1:])
            raise CliError(
                f"{side} failed in pair {event['run'] + 1}: {event['code']}: {event['message']}",
                exit_code=ExitCode.NOT_VERIFIED,
            )
        runs[side == "B"].append(event)
        if len(runs[0]) == len(runs[1]):
            both = zip(*runs, strict=True)
            figures = [(_figure(one, score), _figure(other, score)) for one, other in both]
            found = compare_pairs(figures, schedule, score)
            screen.say(_row(*figures[-1], found, score))
            if found.is_over:
                break
    return found, runs, drawn


def _figure(run: Event, score: Score) -> float | None:
    name = "seconds" if score.by == "time" else "quality"
    return float(run[name]) if run["status"] == "reached" else None


def _row(a: float | None, b: float | None, found: Comparison, score: Score) -> str:
    by_time, words = score.by == "time", ["missed", "missed"]
    for place, figure in enumerate((a, b)):
        if figure is not None:
            words[place] = seconds_text(figure) if by_time else f"{figure:.5g}"
    gap = "" if a is None or b is None else f"{b / a:.3f}" if by_time else f"{b - a:+.3g}"
    so_far = ""
    if found.gap is not None:
        size = f"{found.gap.ratio:.3f}" if by_time else f"{found.gap.difference:+.3g}"
        so_far = f"{size}, p = {found.p:.2g}"
    return f"{found.pairs:>4}{words[0]:>12}{words[1]:>12}{gap:>9}   {so_far}"


def _sentences(found: Comparison, score: Score) -> Iterator[str]:
    pairs = count_text(found.pairs, "pair")
    for name, missed in zip("AB", found.missed, strict=True):
        if missed:
            yield f"{name} {score.missed} in {missed} of {count_text(found.pairs, 'run')}."
    if found.gap is None:
        told = (
            "Nothing tells them apart"
            if found.faster is None
            else f"{found.faster.upper()} is {score.better}"
        )
        figures = "times" if score.by == "time" else "qualities"
        yield f"{told}: their {figures} can't be compared after {pairs}."
        return
    interval = f"95 % {found.gap.low:.2f} to {found.gap.high:.2f}"
    ratio = f"B takes {found.gap.ratio:.2f} times the time of A"
    if found.gap.sign:
        ratio = f"B reaches {score.more(found.gap.difference)} than A"
    yield f"{ratio} ({interval}, p = {found.p:.2g}, {pairs})."
    if found.faster is not None:
        yield f"{found.faster.upper()} is {score.better}."
    elif found.pairs_missing is not None:
        missing = count_text(found.pairs_missing, "more pair")
        yield f"These pairs don't tell them apart. If the difference stays, it takes {missing}."
    else:
        yield "These pairs don't tell them apart."
