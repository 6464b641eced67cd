"""`finishline probe`: this machine as a worker names it, and what is wrong with its devices."""

from typing import Annotated, Any

import typer

from finishline.cli.errors import ExitCode
from finishline.cli.options import Json
from finishline.cli.screen import open_screen
from finishline.device_health import memory_bytes, problems_of
from finishline.devices import accelerators_of, choose_device, find_devices
from finishline.machine import hardware_class_of, processor_count, processor_name
from finishline.rules.errors import RuleError

GIB = 2**30


def probe(
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            envvar="FINISHLINE_DEVICE",
            help="cpu, cuda or cuda:NUMBER (default: all that CUDA_VISIBLE_DEVICES shows).",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say this machine's hardware class and accelerators, and what is wrong with them.

    Asks the driver's own tool; no training library is loaded. The exit code is 1 with a problem.
    """
    view = _view(device)
    lines = [f"hardware class: {view['hardware_class']}"]
    for each in view["accelerators"]:
        size = "" if each["memory_bytes"] is None else f", {each['memory_bytes'] / GIB:.0f} GiB"
        lines.append(f"{each['name']}{size} ({each['uuid']})")
    if not view["accelerators"]:
        lines.append("no accelerator")
    lines += [f"problem: {problem}" for problem in view["problems"]]
    open_screen(as_json=as_json).answer(view, lines)
    return int(ExitCode.REFUSED if view["problems"] else ExitCode.OK)


def _view(device: str | None) -> dict[str, Any]:
    found = find_devices()
    problems = [] if found.problem is None or device == "cpu" else [found.problem]
    if device is not None and not problems:
        try:
            choose_device(device, found)
        except RuleError as error:
            problems.append(f"{error.message}; expected {error.expected}")
    accelerators = accelerators_of(device, found.accelerators)
    sizes = memory_bytes(accelerators) if accelerators else {}
    names = [each.name for each in accelerators]
    return {
        "hardware_class": hardware_class_of(processor_name(), processor_count(), names),
        "accelerators": [
            {"uuid": each.uuid, "name": each.name, "memory_bytes": sizes.get(each.uuid)}
            for each in accelerators
        ],
        "problems": [*problems, *problems_of(accelerators)],
    }
