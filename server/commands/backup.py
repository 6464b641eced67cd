"""`finishline admin backup`, `restore`, `export`, `rescore`: a server of `up`, by its folder."""

from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import typer

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import shows
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
    own = _administered()
    with own.told("No backup was made"):
        choice = own.Choice(keep=keep)
        made = own.back_up(own.settings_of(paths), _folder(folder, paths), choice, screen.say)
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
    try:
        paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CliError(
            f"Cannot write in {paths.root} ({error.strerror}); choose another folder with --var.",
            exit_code=ExitCode.SERVER,
        ) from error
    own, backups = _administered(), _folder(folder, paths)
    with lock_var(paths, url="a restore"), own.told("Nothing was restored"):
        settings = own.settings_of(paths)
        made = own.restore(settings, backups, screen.say, name=at, force=force)
    told = f"Restored {made['path']}. Next: finishline up --var {paths.root}"
    screen.answer(made, [told])


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
    own, wanted = _administered(), path.absolute()
    with own.told("Nothing was exported"):
        settings = own.settings_of(_paths_of(var))
        made = own.export(settings, wanted, own.Wanted(public, keep_missing=False), screen.say)
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
    own, is_current = _administered(), definition == "current"
    with own.told("Nothing was rescored"):
        settings = own.settings_of(_paths_of(var))
        made = own.rescore(settings, benchmark, screen.say, current=is_current, dry_run=dry_run)
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


def _administered() -> ModuleType:
    """The server's own code, which takes a second to import: no other command waits for it."""
    from server.commands import administer

    return administer
