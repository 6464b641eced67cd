"""`finishline admin backup`, `restore`, `export`, `rescore`, `check`: on a server's own machine."""

from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import typer

from finishline.cli.errors import ExitCode
from finishline.cli.options import shows
from finishline.cli.screen import Screen, as_it_is
from finishline.rules.text import count_text
from server.commands.service import app as service

app = typer.Typer()
app.add_typer(service, name="service")
Var = Annotated[
    Path | None,
    typer.Option(
        "--var",
        help="Folder of a server of `finishline up` (default: from the FINISHLINE_* settings).",
    ),
]
Backups = Annotated[
    Path | None, typer.Argument(help="Folder of backups (default: backups beside the database).")
]
Keep = Annotated[int | None, typer.Option("--keep", min=1, help="How many to keep (default: all).")]
KeepMissing = Annotated[
    bool, typer.Option("--keep-missing", help="List logs that the store has lost, and go on.")
]
SECRETS = (
    "This backup contains the private signing key and the hashes of all tokens: store it where "
    "only you can read it."
)


@app.command()
@shows
def backup(
    screen: Screen,
    folder: Backups = None,
    keep: Keep = None,
    keep_missing: KeepMissing = False,
    var: Var = None,
) -> None:
    """Add a backup of a server to a folder, while it runs.

    It has the database, the run logs and the private signing key: keep it as secret as the server,
    and on another disk.
    """
    own = _administered()
    with own.told("No backup was made"), own.serving(var) as services:
        root = folder or own.backups_of(services.settings)
        path, manifest = own.back_up(
            services, root, keep=keep, keep_missing=keep_missing, say=screen.say
        )
    screen.say(SECRETS)
    again = f"Restore it elsewhere: finishline admin restore {path}"
    screen.answer(own.summary(path, manifest), [f"Backed up to {path}.", as_it_is(again)])


@app.command()
@shows
def restore(
    screen: Screen,
    folder: Backups = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="NAME", help="Which backup (default: the latest).")
    ] = None,
    var: Var = None,
) -> None:
    """Restore a server from a backup that you made.

    It replaces nothing: move what is there away first. Everything in the backup is checked before
    anything is written.
    """
    own = _administered()
    with own.told("Nothing was restored"), own.stopped(var) as services:
        root = folder or own.backups_of(services.settings)
        path, manifest = own.restore(services, root, name=at, say=screen.say)
    more = f" Next: finishline up --var {var}" if var else ""
    screen.answer(own.summary(path, manifest), [f"Restored {path}.{more}"])


@app.command()
@shows
def export(
    screen: Screen,
    folder: Annotated[Path, typer.Argument(help="Folder of exports.")],
    public: Annotated[bool, typer.Option("--public", help="Public data only.")] = False,
    keep: Keep = None,
    keep_missing: KeepMissing = False,
    var: Var = None,
) -> None:
    """Add an export to a folder: everything but secrets, for others to study and to check.

    `finishline proof FOLDER` checks an export offline.
    """
    own = _administered()
    with own.told("Nothing was exported"), own.serving(var) as services:
        path, manifest = own.export(
            services, folder, public=public, keep=keep, keep_missing=keep_missing, say=screen.say
        )
    screen.answer(own.summary(path, manifest), [f"Exported to {path}."])


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
    var: Var = None,
) -> int:
    """Score the results of a server again from their raw logs. A second run changes nothing."""
    own, current = _administered(), definition == "current"
    with own.told("Nothing was rescored"), own.serving(var) as services:
        made = own.rescore_submissions(
            services, benchmark_id=benchmark, current=current, dry_run=dry_run, progress=screen.say
        )
    verb = "would change" if dry_run else "changed"
    told = (
        f"{count_text(made.submissions, 'submission')} rescored under the {definition} "
        f"definitions: {len(made.changed)} {verb}, {made.unchanged} unchanged, "
        f"{len(made.failed)} failed."
    )
    screen.answer(asdict(made), [told])
    return int(ExitCode.REFUSED if made.failed else ExitCode.OK)


@app.command()
@shows
def check(
    screen: Screen,
    no_proofs: Annotated[bool, typer.Option("--no-proofs", help="Skip the proofs.")] = False,
    no_files: Annotated[bool, typer.Option("--no-files", help="Skip the store.")] = False,
    var: Var = None,
) -> int:
    """Check a server's files, audit log and proofs against its database. 1 with a fault."""
    own = _administered()
    with own.told("Nothing was checked"), own.serving(var) as services:
        found = own.check_server(services, files=not no_files, proofs=not no_proofs)
    looked_at = ", ".join(f"{count} {name}" for name, count in found.looked_at.items())
    told = [f"fault: {each}" for each in found.faults]
    told += [f"orphan: {each}" for each in found.orphans]
    told += [f"Checked {looked_at}: {count_text(len(found.faults), 'fault')}."]
    screen.answer(asdict(found), told)
    return int(ExitCode.REFUSED if found.faults else ExitCode.OK)


def _administered() -> ModuleType:
    """The server's own code, which takes a second to import: no other command waits for it."""
    from server.commands import administer

    return administer
