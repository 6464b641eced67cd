"""`finishline bench`: measure a reference, any model or single kernels on this machine."""

import json
from collections.abc import Mapping, Sequence
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
from worker.kernel_rules import ON_PROCESSORS, read_kernels

BENCH_SECONDS, KERNEL_SECONDS = 5.0, 1.0
Given = Mapping[str, Any]

Model = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="torchvision:NAME, hf:roberta or FILE.py:FUNCTION."),
]
Kernels = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="Times the kernels of this list.")
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0.1, max=600.0, help="Seconds of each measurement (default: 5; a kernel 1)."),
]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Processor threads to use.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter; repeat for several."),
]
Out = Annotated[Path | None, typer.Option(help="Also write the result to this file (JSON).")]
Csv = Annotated[
    Path | None, typer.Option("--csv", help="Also write a model's results to this file (CSV).")
]
Scenario = Annotated[
    str | None,
    typer.Option(help="Generates tokens: single-stream, offline or server, as MLPerf names them."),
]
PromptTokens = Annotated[int | None, typer.Option(help="Tokens of a prompt (default: 32).")]
OutputTokens = Annotated[int | None, typer.Option(help="Tokens made for each (default: 32).")]
Requests = Annotated[int | None, typer.Option(help="Requests in all (default: 64).")]
NoKvCache = Annotated[
    bool, typer.Option("--no-kv-cache", help="Gives the whole text again for each token.")
]
Rate = Annotated[
    float | None, typer.Option(help="Requests per second that arrive at a server (Poisson).")
]
P99Seconds = Annotated[
    float | None, typer.Option(help="Bound of the latency's 99th percentile, for p99_met.")
]

OF_GENERATION = ("--prompt-tokens", "--output-tokens", "--requests", "--no-kv-cache", "--rate",
                 "--p99-seconds", "--precision", "--batch-sizes")  # fmt: skip
OF_A_MODEL = ("--precision", "--batch-sizes", "--phase", "--tokens", "--usd-per-hour", "--csv")


@shows
def bench(
    screen: Screen,
    benchmark: Annotated[
        str | None, typer.Argument(help="A benchmark's id, or the path of its file.")
    ] = None,
    model: Model = None,
    kernels: Kernels = None,
    precision: Annotated[
        str | None, typer.Option(help="Of a model: fp32 (default), tf32, bf16, fp16 or fp8.")
    ] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(help="Of a model, such as 1,8 (default).")
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="Of a model: inference,training (default) or one of them.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Tokens of a sample of hf:roberta (default: 128).")
    ] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(help="Price of this machine, for a model's samples per dollar.")
    ] = None,
    scenario: Scenario = None,
    prompt_tokens: PromptTokens = None,
    output_tokens: OutputTokens = None,
    requests: Requests = None,
    no_kv_cache: NoKvCache = False,
    rate: Rate = None,
    p99_seconds: P99Seconds = None,
    seconds: Seconds = None,
    device: Device = None,
    threads: Threads = 1,
    settings: Settings = None,
    out: Out = None,
    csv: Csv = None,
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Measure training and inference on made-up data, and the roofs of this machine.

    With --model any model is measured, with random weights; nothing is downloaded. With --kernels
    single kernels are timed. With --scenario a model, or that of grammar, answers requests by
    tokens.
    """
    given: Given = {
        "--precision": precision,
        "--batch-sizes": batch_sizes,
        "--phase": phase,
        "--tokens": tokens,
        "--usd-per-hour": usd_per_hour,
        "--prompt-tokens": prompt_tokens,
        "--output-tokens": output_tokens,
        "--requests": requests,
        "--no-kv-cache": no_kv_cache or None,
        "--rate": rate,
        "--p99-seconds": p99_seconds,
        "--csv": csv,
        "--set": settings or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    chosen = given | {"--threads": threads} | ({} if device is None else {"--device": device})
    if kernels is not None and benchmark is None and model is None:
        _refuse(given, "a list of kernels", takes=())
        chosen["--device"] = check_kernels(kernels, device)
        chosen["--seconds"] = seconds or KERNEL_SECONDS
        command = _command("worker.kernel_bench", chosen, "--", str(kernels))
    elif kernels is not None or (benchmark is None) == (model is None):
        raise _usage(
            "Name one of a benchmark, a model and a list of kernels: bench BENCHMARK, "
            "bench --model SPEC, or bench --kernels FILE.toml."
        )
    elif scenario is not None:
        _refuse(given, "a scenario", takes=OF_GENERATION)
        if model is None and benchmark != "grammar":
            raise _usage(f"{benchmark} generates nothing. Name grammar, or a model with --model.")
        if seconds is not None:
            raise _usage("--seconds does not go with a scenario. Choose --requests.")
        chosen["--scenario"] = scenario
        command = _command("worker.generation_bench", chosen, "--", model or "grammar")
    elif model is None:
        _refuse(given, "a benchmark", takes=("--set",))
        file, _ = find_benchmark(str(benchmark), benchmarks_dir)
        chosen["--seconds"] = seconds or BENCH_SECONDS
        command = _command("worker.bench", chosen, str(file))
    else:
        _refuse(given, "a model", takes=OF_A_MODEL)
        chosen["--seconds"] = seconds or BENCH_SECONDS
        command = _command("worker.model_bench", chosen, "--", model)
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


def _refuse(given: Given, form: str, *, takes: Sequence[str]) -> None:
    """Raise CliError for an option that does not go with this form of the command."""
    for name in given:
        if name not in takes:
            raise _usage(f"{name} does not go with {form}. Leave it out.")


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


def _usage(message: str) -> CliError:
    return UsageError(message)
