"""Calibrations as tables and lines for people, and as a benchmark file would hold them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from finishline.cli.formats import ABSENT, number_text
from finishline.cli.tables import make_table
from finishline.rules.benchmarks.benchmark import ReferenceRun
from finishline.rules.benchmarks.calibration import reference_run_toml
from finishline.rules.text import count_text

View = Mapping[str, Any]


def calibration_table(calibrations: Sequence[View]) -> RenderableType:
    """The calibrations of a server."""
    if not calibrations:
        return Text("No calibration yet; start one with `finishline calibrate`.", style="dim")
    table = make_table("calibration", "benchmark", "version", "state", "runs", "sizes", "adopted")
    for item in calibrations:
        table.add_row(
            str(item["id"]),
            str(item["benchmark"]),
            str(item["version"]),
            str(item["state"]),
            f"{item['runs_finished']}/{item['runs_planned']}",
            ", ".join(str(size) for size in item["batch_sizes"]),
            str(item["adopted_at"] or ABSENT),
        )
    return table


def calibration_lines(view: View) -> list[RenderableType]:
    """One calibration: its state, and epochs to converge by batch size."""
    if view.get("outdated"):
        judges = ", of an earlier definition: judges nothing that is planned now"
    else:
        judges = ", judges what is planned now" if view["judges"] else ""
    header = (
        f"Calibration {view['id']}: number {view['version']} of {view['benchmark']}, "
        f"{view['state']}, {view['runs_finished']} of {count_text(view['runs_planned'], 'run')}"
        f"{judges}"
    )
    return [Text(header, style="bold"), size_table(view["sizes"])]


def size_table(sizes: Sequence[View]) -> Table:
    """Epochs to the target by batch size."""
    right = ("batch size", "runs", "reached", "epochs", "stdev", "band")
    table = make_table(*right, right=right)
    for size in sizes:
        table.add_row(
            str(size["batch_size"]),
            f"{size['finished']}/{size['planned']}",
            str(size["reached"]),
            number_text(size["mean"], digits=2),
            number_text(size["stdev"], digits=2),
            count_text(len(size["band"]), "point") if size["band"] else ABSENT,
        )
    return table


def comparison_table(view: View) -> RenderableType:
    """Two calibrations by batch size: means, difference, and whether it is more than noise."""
    if not view["sizes"]:
        return Text("They have no batch size in common.", style="dim")
    right = ("batch size", "first", "second", "difference", "p", "band apart")
    table = make_table(*right, right=right)
    for size in view["sizes"]:
        gaps = [abs(point["mean_difference"]) for point in size["band"]]
        table.add_row(
            str(size["batch_size"]),
            number_text(size["first"]["mean"], digits=2),
            number_text(size["second"]["mean"], digits=2),
            number_text(size["difference"], digits=2),
            number_text(size["p_value"], digits=4),
            number_text(max(gaps) if gaps else None, digits=2),
        )
    return table


def calibration_toml(view: View) -> Iterable[str]:
    """The runs that went to their end as the `[[reference_runs]]` of a benchmark file."""
    yield (
        f"# Calibration {view['id']} of {view['benchmark']}, version {view['version']},\n"
        f"# asked for on {str(view['created_at'])[:10]}; runs {view['runs_sha256']}."
    )
    for made_on in sorted({_made_on(run["system"]) for run in view["runs"]}):
        yield f"# Made on {made_on}."
    for run in view["runs"]:
        if run["status"] in ("reached", "not_reached"):
            quality = tuple(float(value) for value in run["quality"])
            yield "\n" + reference_run_toml(
                ReferenceRun(batch_size=run["batch_size"], seed=run["seed"], quality=quality)
            )


def _made_on(system: View) -> str:
    software = ", ".join(f"{name} {found}" for name, found in sorted(system["software"].items()))
    return " ".join(f"{system['processor']}, {software}".split())
