"""`finishline completion`: the script that lets a shell complete commands and options."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete

from finishline.cli.errors import ExitCode

PROGRAM = "finishline"
# Set by the script when the shell asks for completions.
VARIABLE = "_FINISHLINE_COMPLETE"


class Shell(StrEnum):
    """Shells that commands can be completed in."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")],
) -> int:
    """Print the script to source: `source <(finishline completion bash)`."""
    prepare()
    shell_complete(context.find_root().command, {}, PROGRAM, VARIABLE, f"source_{shell.value}")
    return int(ExitCode.OK)


def prepare() -> None:
    """Let this process answer a shell that asks for completions."""
    get_completion_inspect_parameters()
