"""`finishline bench`: measure this machine, and references, models or kernels on it."""

import json
from collections.abc import Mapping
from errno import EISDIR
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import BenchmarksDir, shows
from finishline.cli.processes import python_module, require_training_packages
from finishline.cli.screen import Screen
from finishline.devices import choose_device
from finishline.rules.errors import RuleError
from worker.commands.measuring import (
    bench_table,
    generation_lines,
    generation_table,
    kernel_table,
    model_lines,
    model_table,
    results_csv,
    run_measurement,
)
from worker.commands.steps import Device, profile, scale
from worker.kernel_rules import ON_PROCESSORS, read_kernels

BENCH_SECONDS, KERNEL_SECONDS = 5.0, 1.0
Given = Mapping[str, Any]

bench = typer.Typer(no_args_is_help=True, help="Measure this machine, and training on it.")
bench.command("scale")(scale)
bench.command("profile")(profile)
Target = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK|SPEC",
        help="Id or TOML of a benchmark; or torchvision:NAME, hf:roberta or FILE.py:FUNCTION.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0.1, max=600.0, help="Seconds of each measurement.")]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Processor threads to use.")]
Out = Annotated[Path | None, typer.Option(help="Also write the result to this file (JSON).")]
Precision = Annotated[
    str | None, typer.Option(help="Of a model: fp32 (default), tf32, bf16, fp16 or fp8.")
]
BatchSizes = Annotated[str | None, typer.Option(help="Of a model, such as 1,8 (default).")]


@bench.command()
@shows
def train(
    screen: Screen,
    target: Target,
    precision: Precision = None,
    batch_sizes: BatchSizes = None,
    phase: Annotated[
        str | None, typer.Option(help="Of a model: inference,training (default) or one of them.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Tokens of a sample of hf:roberta (default: 128).")
    ] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(help="Price of this machine, for a model's samples per dollar.")
    ] = None,
    seconds: Seconds = BENCH_SECONDS,
    device: Device = None,
    threads: Threads = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A benchmark's hyperparameter; repeat."),
    ] = None,
    out: Out = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write a model's results to this file (CSV).")
    ] = None,
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Measure training and inference of a benchmark's reference, or of any model.

    Data are made up and weights random: nothing is downloaded. A benchmark is measured with the
    peak throughput of this machine.
    """
    of_model = _given(
        precision=precision, batch_sizes=batch_sizes, phase=phase, tokens=tokens,
        usd_per_hour=usd_per_hour, csv=csv,
    )  # fmt: skip
    chosen = {"--threads": threads, "--seconds": seconds, **_given(device=device)}
    if ":" in target and not Path(target).is_file():
        _refuse(_given(set=settings), "a model")
        command = _command("worker.model_bench", chosen | of_model, "--", target)
    else:
        _refuse(of_model, "a benchmark")
        file, _ = find_benchmark(target, benchmarks_dir)
        command = _command("worker.bench", chosen | _given(set=settings), str(file))
    _measure(screen, command, out, csv)


@bench.command()
@shows
def kernels(
    screen: Screen,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="List of kernels.")],
    seconds: Seconds = KERNEL_SECONDS,
    device: Device = None,
    threads: Threads = 1,
    out: Out = None,
) -> None:
    """Time single kernels of the shapes in a list: matmul, convolution, attention and others."""
    chosen = {"--threads": threads, "--seconds": seconds, "--device": check_kernels(file, device)}
    _measure(screen, _command("worker.kernel_bench", chosen, "--", str(file)), out)


@bench.command()
@shows
def generate(
    screen: Screen,
    target: Annotated[
        str, typer.Argument(metavar="grammar|SPEC", help="The benchmark grammar, or a model.")
    ],
    scenario: Annotated[
        str, typer.Option(help="single-stream, offline or server, as MLPerf names them.")
    ] = "offline",
    prompt_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a prompt (default: 32).")
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option(help="Tokens made for each (default: 32).")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Requests in all (default: 64).")] = None,
    no_kv_cache: Annotated[
        bool, typer.Option("--no-kv-cache", help="Gives the whole text again for each token.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second that arrive at a server (Poisson).")
    ] = None,
    p99_seconds: Annotated[
        float | None, typer.Option(help="Bound of the latency's 99th percentile, for p99_met.")
    ] = None,
    precision: Precision = None,
    batch_sizes: BatchSizes = None,
    device: Device = None,
    threads: Threads = 1,
    out: Out = None,
) -> None:
    """Answer requests token by token: time to first token, time per token, tokens per second."""
    if target != "grammar" and ":" not in target:
        raise UsageError(
            f"{target} generates nothing. Name grammar, or a model such as hf:roberta."
        )
    chosen = {"--threads": threads, "--scenario": scenario} | _given(
        prompt_tokens=prompt_tokens, output_tokens=output_tokens, requests=requests,
        no_kv_cache=no_kv_cache or None, rate=rate, p99_seconds=p99_seconds, precision=precision,
        batch_sizes=batch_sizes, device=device,
    )  # fmt: skip
    _measure(screen, _command("worker.generation_bench", chosen, "--", target), out)


@bench.command()
@shows
def machine(
    screen: Screen,
    seconds: Seconds = BENCH_SECONDS,
    device: Device = None,
    threads: Threads = 1,
    out: Out = None,
) -> None:
    """Measure the peak throughput of this machine: arithmetic by precision, memory and copies."""
    chosen = {"--threads": threads, "--seconds": seconds, **_given(device=device)}
    _measure(screen, _command("worker.bench", chosen), out)


def _measure(screen: Screen, command: list[str], out: Path | None, csv: Path | None = None) -> None:
    require_training_packages("bench")
    for path in filter(None, (out, csv)):  # Before anything is measured.
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder", str(path))
    result = run_measurement(command, told=lambda doing: screen.say(f"{doing} ..."))
    if out is not None:
        out.write_text(json.dumps(result, indent=2) + "\n")
    if csv is not None:
        csv.write_text(results_csv(result))
    screen.answer(result, _shown(result))


def _given(**options: Any) -> dict[str, Any]:
    """Flags with their values, without those that were left out."""
    named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return {flag: value for flag, value in named.items() if value not in (None, [])}


def _command(module: str, chosen: Given, *names: str) -> list[str]:
    """The command line of a measurement by one of the worker's modules."""
    options = []
    for name, value in chosen.items():
        if name == "--set":
            options += [f"--set={setting}" for setting in value]
        elif name != "--csv":
            options.append(name if value is True else f"{name}={value}")
    return python_module(module, *options, *names)


def check_kernels(file: Path, device: str | None) -> str:
    """The device, if it can time the kernels of this list. Raises CliError."""
    try:
        chosen = choose_device(device)
        for kernel in read_kernels(file.read_bytes(), file=file.name):
            if chosen == "cpu" and kernel.precision not in ON_PROCESSORS:
                raise RuleError(
                    f"a processor has no arithmetic in {kernel.precision}",
                    file=file.name,
                    field="precisions",
                    expected=" or ".join(ON_PROCESSORS),
                )
    except RuleError as error:
        raise CliError(f"{error}.") from error
    except OSError as error:
        raise UsageError(
            f"Cannot read {file} ({error.strerror}); name a TOML file of kernels."
        ) from error
    return chosen


def _refuse(given: Given, target: str) -> None:
    for flag in given:
        raise UsageError(f"{flag} does not go with {target}. Leave it out.")


def _shown(result: Mapping[str, Any]) -> list[RenderableType]:
    some = "absent in some rows" if "kernels" in result else "absent"
    absences = [f"{name}: {some}, {why}" for name, why in result.get("absent", {}).items()]
    if "generation" in result:
        return [generation_table(result), *generation_lines(result), *absences]
    if "kernels" in result:
        return [kernel_table(result), *absences]
    if "model" in result:
        return [model_table(result), *model_lines(result), *absences]
    return [bench_table(result)]
