"""The workers of one machine: a device each, with a name, a token and a queue of its own."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import python_module

NAME = "local"
LIST_SECONDS = 30.0


@dataclass(frozen=True)
class LocalWorker:
    """A worker by the suffix of its names; `shown` is the UUID of its accelerator, None for none.

    CUDA shows it that one alone, so that it trains on it, reads its sensors and is of its class.
    """

    suffix: str
    words: str
    shown: str | None = None

    @property
    def name(self) -> str:
        """Its name at the server."""
        return NAME + self.suffix

    @property
    def service(self) -> str:
        """Its name among the services, and that of its token and log."""
        return "worker" + self.suffix

    def settings(self) -> dict[str, str]:
        """The worker's own settings."""
        return {
            "FINISHLINE_WORKER_NAME": self.name,
            "FINISHLINE_DEVICE": "cpu" if self.shown is None else "cuda:0",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": self.shown or "",
        }


def choose_workers(devices: str) -> list[LocalWorker]:
    """A worker for each device of a list such as "cpu" or "cuda:0,cuda:1", or for "all".

    Raises CliError for a device that is not on this machine, or is named twice.
    """
    names = [name.strip() for name in devices.split(",")]
    names = ["cuda:0" if name == "cuda" else name for name in names]
    accelerators, problem = ([], None) if set(names) == {"cpu"} else _list_accelerators()
    if names == ["all"]:
        names = [f"cuda:{number}" for number in range(len(accelerators))] or ["cpu"]
    for name, count in Counter(names).items():
        if count > 1 and name != "cpu":
            raise _refused(f"{name} is named {count} times; a device has one worker")
    return list(_workers(names, accelerators, problem))


def _workers(
    names: Sequence[str], accelerators: Sequence[Mapping[str, str]], problem: str | None
) -> Iterator[LocalWorker]:
    of_cpu = 0
    for name in names:
        if name == "cpu":
            of_cpu += 1
            why = f" ({problem})" if problem else ""
            yield LocalWorker("" if of_cpu == 1 else f"-{of_cpu}", f"the processor{why}")
            continue
        kind, _, number = name.partition(":")
        if kind != "cuda" or not number.isdecimal():
            raise _refused(f"{name!r} is no device; expected cpu, cuda:NUMBER or all")
        if int(number) >= len(accelerators):
            here = [f"cuda:{at} ({each['name']})" for at, each in enumerate(accelerators)]
            why = f"; {problem}" if problem else ""
            raise _refused(f"no {name} on this machine; it has {', '.join(['cpu', *here])}{why}")
        found = accelerators[int(number)]
        words = f"{name}, {found['name']}"
        yield LocalWorker(f"-cuda-{number}", words, found["uuid"])


def _list_accelerators() -> tuple[list[dict[str, str]], str | None]:
    """The accelerators that CUDA shows here, and why there are none where the driver fails."""
    command = python_module("finishline.devices")
    try:
        said = subprocess.run(command, capture_output=True, timeout=LIST_SECONDS, check=True)
        found = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise _refused(f"the accelerators of this machine could not be listed: {error}") from error
    return found["accelerators"], found["problem"]


def _refused(sentence: str) -> CliError:
    return CliError(f"--devices: {sentence}.", exit_code=ExitCode.USAGE)
