"""`finishline compare`: two code submissions here, or two results on the server."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from finishline.cli.answers import comparison_lines
from finishline.cli.client import connect
from finishline.cli.commands.code import Nonce, Plain, run_code
from finishline.cli.errors import ExitCode, UsageError
from finishline.cli.options import BenchmarksDir, shows
from finishline.cli.screen import Screen
from finishline.client.errors import NotFound
from finishline.rules.verification.messages import PACKAGE_PREFIX


@shows
def compare(
    screen: Screen,
    first: Annotated[str, Argument(metavar="A", help="Folder or sha256: of code, or an id.")],
    second: Annotated[str, Argument(metavar="B", help="Folder of code, or an id.")],
    runs: Annotated[
        int | None, Option(min=2, max=100, help="Trainings of each folder (default: 5).")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="Seed of the first runs of folders.")] = None,
    nonce: Nonce = None,
    plain: Plain = False,
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Train two folders of code in turn here, or compare two ids on the server.

    Folders are trained on equal seeds and data. The speed-up is of B over A. Ids are of two
    submissions to one benchmark, or of two verifications of one submission.
    """
    if Path(first).is_dir() or Path(second).is_dir() or first.startswith(PACKAGE_PREFIX):
        if not Path(second).is_dir():
            raise UsageError(f"{second} is not a folder; expected one of code, or two ids.")
        return run_code(
            screen,
            Path(second),
            runs=runs,
            seed=seed,
            nonce=nonce,
            plain=plain,
            benchmarks_dir=benchmarks_dir,
            compare=first,
        )
    with connect() as server:
        try:
            view = server.get("/compare", submissions=f"{first},{second}")
        except NotFound:
            view = server.get("/verifications/compare", first=first, second=second)
            screen.answer(view, comparison_lines(view, {}))
        else:
            screen.answer(view, (pair["sentence"] for pair in view["pairs"]))
    return ExitCode.OK
