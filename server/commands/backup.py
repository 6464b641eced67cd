"""`finishline admin backup`, `restore`, `export`, `rescore`: a server of `up`, by its folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import shows
from finishline.cli.processes import child_events, python_module
from finishline.cli.screen import Screen
from finishline.rules.text import count_text
from server.commands.paths import DEFAULT_VAR, Var, VarPaths, lock_var
from server.commands.service import app as service

app = typer.Typer()
app.add_typer(service, name="service")
Backups = Annotated[
    Path | None,
    typer.Argument(help="Folder of backups (default: backups in the var folder)."),
]


@app.command()
@shows
def backup(
    screen: Screen,
    folder: Backups = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Backups to keep (default: all).")
    ] = None,
    var: Var = DEFAULT_VAR,
) -> None:
    """Add a backup of a server of `finishline up`, which may go on running.

    It has the database, the run logs and the private signing key: keep it as secret as the server,
    and on another disk.
    """
    paths = _paths_of(var)
    options = [] if keep is None else ["--keep", str(keep)]
    command = ["backup", str(_folder(folder, paths)), *options]
    made = _administer(paths, command, screen, what="No backup was made")
    screen.answer(made, [f"Backed up to {made['path']}."])


@app.command()
@shows
def restore(
    screen: Screen,
    folder: Backups = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="NAME", help="Which backup (default: the latest).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace data, which is kept under another name.")
    ] = False,
    var: Var = DEFAULT_VAR,
) -> None:
    """Restore a server of `finishline up` from a backup that you made.

    Stop the server first. Everything in the backup is checked before anything is changed.
    """
    paths = VarPaths(var.absolute())
    options = [*(["--at", at] if at is not None else []), *(["--force"] if force else [])]
    command = ["restore", str(_folder(folder, paths)), *options]
    try:
        paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CliError(
            f"Cannot write in {paths.root} ({error.strerror}); choose another folder with --var.",
            exit_code=ExitCode.SERVER,
        ) from error
    with lock_var(paths, url="a restore"):
        made = _administer(paths, command, screen, what="Nothing was restored")
    screen.answer(
        made,
        [f"Restored {made['path']}. Next: finishline up --var {paths.root}"],
    )


@app.command()
@shows
def export(
    screen: Screen,
    path: Annotated[Path, typer.Argument(help="Folder to make, or NAME.tar for an archive.")],
    public: Annotated[bool, typer.Option("--public", help="Public data only.")] = False,
    var: Var = DEFAULT_VAR,
) -> None:
    """Write everything but secrets to a folder, for others to study and to check.

    `finishline proof FOLDER` checks it offline.
    """
    command = ["export", str(path.absolute()), *(["--public"] if public else [])]
    made = _administer(_paths_of(var), command, screen, what="Nothing was exported")
    screen.answer(made, [f"Exported to {made['path']}."])


@app.command()
@shows
def rescore(
    screen: Screen,
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Only submissions of this benchmark.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the changes without storing them.")
    ] = False,
    definition: Annotated[
        Literal["stored", "current"],
        typer.Option(
            "--definition", help="Score by each result's own definition, or the server's."
        ),
    ] = "stored",
    var: Var = DEFAULT_VAR,
) -> int:
    """Score the results of a server of `finishline up` again from their raw logs.

    Run it on the server's machine. A second run changes nothing.
    """
    options = [
        *(["--benchmark", benchmark] if benchmark is not None else []),
        *(["--dry-run"] if dry_run else []),
    ]
    command = ["rescore", "--definition", definition, *options]
    made = _administer(_paths_of(var), command, screen, what="Nothing was rescored")
    verb = "would change" if dry_run else "changed"
    told = (
        f"{count_text(made['submissions'], 'submission')} rescored under the {definition} "
        f"definitions: {len(made['changed'])} {verb}, {made['unchanged']} unchanged, "
        f"{len(made['failed'])} failed."
    )
    screen.answer(made, [told])
    return int(ExitCode.REFUSED if made["failed"] else ExitCode.OK)


def _paths_of(var: Path) -> VarPaths:
    paths = VarPaths(var.absolute())
    if not paths.database.is_file():
        raise CliError(
            f"There is no server in {paths.root}: name the folder that `finishline up` keeps "
            "everything in with --var.",
            exit_code=ExitCode.NOT_FOUND,
        )
    return paths


def _folder(named: Path | None, paths: VarPaths) -> Path:
    return paths.backups if named is None else named.absolute()


def _administer(
    paths: VarPaths, command: list[str], screen: Screen, *, what: str
) -> Mapping[str, Any]:
    """Run the server's administration in this folder and tell its progress; its answer.

    Raises CliError with its last sentence if it has no answer.
    """
    said: list[str] = []

    def say(line: str) -> None:
        screen.say(*said[-1:])  # The last line is the reason of a failure.
        said.append(line)

    *answers, ended = child_events(
        python_module("server.admin", *command),
        environment=dict(os.environ) | paths.settings(),
        say=say,
    )
    if not answers:
        why = ended["said"] or f"exit code {ended['code']}"
        raise CliError(f"{what}: {why}")
    screen.say(*said[-1:])
    return answers[-1]
