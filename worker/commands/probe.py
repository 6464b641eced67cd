"""`finishline worker`: start one, or say how a worker would name this machine."""

import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from finishline.cli.errors import ExitCode
from finishline.cli.options import shows
from finishline.cli.screen import Screen
from finishline.devices import (
    Accelerator,
    accelerators_of,
    choose_device,
    find_devices,
    hardware_class_of,
    processor_count,
    processor_name,
    without_platform,
)
from finishline.rules.errors import RuleError
from worker.group import Meeting
from worker.machine.probe import ask_driver
from worker.state import Limits

MIB, GIB = 2**20, 2**30
# Bits of clocks_event_reasons.active that mean a forced slow-down of a card.
SLOWED = {
    0x08: "by its hardware",
    0x20: "by heat",
    0x40: "by heat, in hardware",
    0x80: "by its power supply",
}

worker = typer.Typer(help="Start a worker, or name this machine's hardware class.")


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise typer.BadParameter(f"{text}: expected HOST:PORT, as in node-1:29400")
    return address.strip("[]"), int(port)


@worker.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    pull: Annotated[
        bool, typer.Option("--pull", help="Ask the server itself for work, without a broker.")
    ] = False,
    max_attempts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after this many attempts.")
    ] = None,
    exit_when_idle: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="End after this long without work."),
    ] = None,
    nnodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Train over N hosts, each with a worker.")
    ] = 1,
    rdzv_endpoint: Annotated[
        Any,
        typer.Option(
            metavar="HOST:PORT",
            parser=_endpoint,
            help="The first of several hosts by a name that the others reach, and a free port.",
        ),
    ] = None,
    join: Annotated[
        int,
        typer.Option(min=0, metavar="RANK", help="Train along as the host of this rank, from 1."),
    ] = 0,
) -> int:
    """Start a worker with the settings of its environment, such as FINISHLINE_URL."""
    if context.invoked_subcommand is not None:
        return 0
    if (rdzv_endpoint is not None) != (nnodes > 1) or join >= nnodes:
        raise typer.BadParameter(
            "several hosts: expected --nnodes N, N from 2, and --rdzv-endpoint HOST:PORT on all, "
            "and --join RANK, from 1 to N - 1, on each but the first"
        )
    from worker.__main__ import serve  # Loads the broker's library.

    meeting = Meeting(nnodes, join, *rdzv_endpoint) if rdzv_endpoint is not None else None
    return serve(pull=pull, limits=Limits(max_attempts, exit_when_idle), meeting=meeting)


def run(arguments: Sequence[str] | None) -> int:
    """Run `python -m worker`. Returns the exit code."""
    try:
        return int(worker(arguments, prog_name="python -m worker", standalone_mode=False) or 0)
    except typer.TyperException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        return int(ExitCode.USAGE)


@worker.command()
@shows
def probe(
    screen: Screen,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            envvar="FINISHLINE_DEVICE",
            help="cpu, cuda or cuda:NUMBER (default: all that CUDA_VISIBLE_DEVICES shows).",
        ),
    ] = None,
) -> int:
    """Say this machine's hardware class and accelerators, and what is wrong with them.

    It asks the driver's own tool and loads no training library. The exit code is 1 with a problem.
    """
    found = find_devices()
    problems = [] if found.problem is None or device == "cpu" else [found.problem]
    if device is not None and not problems:
        try:
            choose_device(device, found)
        except RuleError as error:
            problems.append(f"{error.message}; expected {error.expected}")
    accelerators = accelerators_of(device, found.accelerators)
    problems += problems_of(accelerators)
    sizes = memory_bytes(accelerators)
    names = [each.name for each in accelerators]
    view = {
        "hardware_class": hardware_class_of(processor_name(), processor_count(), names),
        "accelerators": [
            {"uuid": each.uuid, "name": each.name, "memory_bytes": sizes.get(each.uuid)}
            for each in accelerators
        ],
        "problems": problems,
    }
    lines = [f"hardware class: {view['hardware_class']}"]
    for each in accelerators:
        size = f", {sizes[each.uuid] / GIB:.0f} GiB" if each.uuid in sizes else ""
        lines.append(f"{each.name}{size} ({each.uuid})")
    if not accelerators:
        lines.append("no accelerator")
    screen.answer(view, [*lines, *(f"problem: {problem}" for problem in problems)])
    return int(ExitCode.REFUSED if problems else ExitCode.OK)


def memory_bytes(found: Sequence[Accelerator]) -> dict[str, int]:
    """Return the memory of whole cards by UUID. The driver omits slices."""
    rows = _ask("--query-gpu=uuid,memory.total") if found else []
    whole = {each.uuid for each in found}
    return {
        uuid: int(amount) * MIB for uuid, amount in rows if amount.isdecimal() and uuid in whole
    }


def problems_of(found: Sequence[Accelerator]) -> list[str]:
    """List reasons why these accelerators train slowly, a sentence each."""
    if not found:
        return []
    troubles = [
        (uuid, f"is busy: process {pid} uses it")
        for uuid, pid in _ask("--query-compute-apps=gpu_uuid,pid")
        if pid.isdecimal()
    ]
    for uuid, count in _ask("--query-gpu=uuid,ecc.errors.uncorrected.volatile.total"):
        if count.isdecimal() and int(count):
            troubles.append((uuid, f"has {count} uncorrected ECC errors since the driver's start"))
    # The second is the name of the field before driver 535.
    rows = _ask("--query-gpu=uuid,clocks_event_reasons.active") or _ask(
        "--query-gpu=uuid,clocks_throttle_reasons.active"
    )
    for uuid, mask in rows:
        bits = int(mask, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", mask) else 0
        why = [words for bit, words in SLOWED.items() if bits & bit]
        if why:
            troubles.append((uuid, f"is throttled {' and '.join(why)}"))
    boards = {each.board: each.name for each in found}
    sentences = [f"{boards[uuid]} ({uuid}) {words}" for uuid, words in troubles if uuid in boards]
    return sentences + without_platform()


def _ask(query: str) -> list[list[str]]:
    """Query the tool for two fields. Returns its pairs."""
    return [row for row in ask_driver(query, "--format=csv,noheader,nounits") if len(row) == 2]
