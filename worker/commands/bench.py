"""`finishline bench`: measure this machine, and references, models or kernels on it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from finishline.cli.errors import CliError
from finishline.cli.options import shows
from finishline.rules.errors import RuleError
from worker.commands.generate import generate
from worker.commands.kernels import kernels
from worker.commands.scale import profile, scale
from worker.commands.train import machine, train

bench = typer.Typer(no_args_is_help=True, help="Measure this machine, and training on it.")


def _in_one_sentence(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def run(*given: Any, **named: Any) -> None:
        try:
            function(*given, **named)
        except RuleError as error:
            raise CliError(str(error)) from error

    return run


for command in (train, kernels, generate, machine, scale, profile):
    bench.command()(shows(_in_one_sentence(command)))
