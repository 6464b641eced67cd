"""`finishline service`: keep `finishline up` running with systemd."""

from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_VAR, BehindProxy, Var
from finishline.cli.processes import python_module
from finishline.cli.screen import open_screen

app = typer.Typer(help="A service of systemd: install, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--name", help="Name of the service.")]
User = Annotated[
    str | None, typer.Option("--user", help="User that the server runs as (for root).")
]


@app.command()
def install(
    var: Var = DEFAULT_VAR,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")
    ] = 8000,
    devices: Annotated[
        str, typer.Option("--devices", help="Devices that train, as of `finishline up`.")
    ] = "cpu",
    behind_proxy: BehindProxy = False,
    name: Name = "finishline",
    user: User = None,
    printed: Annotated[
        bool, typer.Option("--print", help="Print the unit and install nothing.")
    ] = False,
) -> int:
    """Write a unit that runs `finishline up`, and start it, now and after each start of the host.

    Of an ordinary user it is a service of their own. Root names with --user who runs it.
    """
    from server.commands.unit import install as install_unit
    from server.commands.unit import unit_of

    unit, folder = unit_of(name, user), var.absolute()
    options = ["--var", str(folder), "--host", host, "--port", str(port), "--devices", devices]
    options += ["--behind-proxy"] if behind_proxy else []
    text = unit.text(python_module("finishline.cli.main", "up", *options), folder)
    screen = open_screen(as_json=False)
    if printed:
        screen.say_as_is(text)
        return int(ExitCode.OK)
    _make_folder(folder, user)
    install_unit(unit, text)
    manage = " ".join(unit.systemctl)
    screen.say_as_is(
        f"{unit.file} runs it. State: {manage} status {name}; log: journalctl"
        f"{'' if unit.user else ' --user'} -u {name}",
    )
    if unit.user is None:
        screen.say_as_is("To keep it running after you sign out: loginctl enable-linger")
    return int(ExitCode.OK)


def _make_folder(folder: Path, user: str | None) -> None:
    """Make the folder, which the service could not make where another user owns its parent."""
    import shutil

    if folder.exists():
        return
    folder.mkdir(parents=True, mode=0o700)
    if user is not None:
        shutil.chown(folder, user)


@app.command()
def remove(name: Name = "finishline", user: User = None) -> int:
    """Stop the service and remove its unit. Data in the var folder stay."""
    from server.commands.unit import remove as remove_unit
    from server.commands.unit import unit_of

    unit = unit_of(name, user)
    remove_unit(unit)
    open_screen(as_json=False).say_as_is(f"{unit.file} is removed; its data stay.")
    return int(ExitCode.OK)
