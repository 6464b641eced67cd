"""`finishline bench`: measure this machine, and references, models or kernels on it."""

import json
import os
from collections.abc import Callable, Mapping
from errno import EISDIR
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import BenchmarksDir, Data, shows
from finishline.cli.processes import require_training_packages
from finishline.cli.screen import Screen
from finishline.devices import choose_device
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import check_precision, check_settings, reference_of
from worker.bench.generation import GenerationBench, run_generation
from worker.bench.kernel_list import ON_PROCESSORS, Kernel, read_kernels, run_kernels
from worker.bench.model import ModelBench, PrecisionName, run_model
from worker.bench.runs import BenchError, ReferenceBench, Say, require, run_machine, run_reference
from worker.bench.scaling import Scaling, run_scaling
from worker.child_process import measure_apart
from worker.commands.tables import (
    bench_table,
    generation_lines,
    generation_table,
    kernel_table,
    model_lines,
    model_table,
    parts_table,
    points_table,
    results_csv,
)
from worker.local import hyperparameters, read_setting

BENCH_SECONDS, KERNEL_SECONDS, PROFILE_SECONDS = 5.0, 1.0, 3600.0
LEAST = 1e-6
Phase = Literal["inference", "training"]
Scenario = Literal["single-stream", "offline", "server"]
Result = Mapping[str, Any]
Run = Callable[[Say], Result]

bench = typer.Typer(no_args_is_help=True, help="Measure this machine, and training on it.")
Target = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK|SPEC",
        help="Id or TOML of a benchmark, torchvision:NAME, hf:roberta or FILE.py:FUNCTION.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0.1, max=600.0, help="Seconds of each measurement.")]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Processor threads to use.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda. The default is cuda where there is one.")
]
Steps = Annotated[int, typer.Option("--steps", min=1, max=1000, help="Training steps to time.")]
Name = Annotated[str, typer.Argument(help="A benchmark's id, or the path of its file.")]
Out = Annotated[Path | None, typer.Option(help="Also write the result to this file (JSON).")]
Precision = Annotated[PrecisionName | None, typer.Option(help="Of a model (default: fp32).")]
BatchSizes = Annotated[str | None, typer.Option(help="Of a model, such as 1,8 (default).")]


@bench.command()
@shows
def train(
    screen: Screen,
    target: Target,
    precision: Precision = None,
    batch_sizes: BatchSizes = None,
    phase: Annotated[
        Phase | None, typer.Option(help="One phase of a model. The default is both.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sample of hf:roberta (default: 128).")
    ] = None,
    usd_per_hour: Annotated[
        float | None,
        typer.Option(min=LEAST, help="Price of this machine, for a model's samples per dollar."),
    ] = None,
    seconds: Seconds = BENCH_SECONDS,
    device: Device = None,
    threads: Threads = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter. Repeat it for more."),
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
    how: dict[str, Any] = {"seconds": seconds, "threads": threads}
    if ":" in target and not Path(target).is_file():
        _refuse(_given(set=settings), "a model")

        def run(say: Say) -> Result:
            more = _given(
                precision=precision, tokens=tokens, usd_per_hour=usd_per_hour,
                batch_sizes=_read_batch_sizes(batch_sizes), phases=phase and (phase,),
            )  # fmt: skip
            asked = ModelBench(target, choose_device(device), **how, **more)
            return run_model(asked, measure_apart, say)

    else:
        _refuse(of_model, "a benchmark")
        _, definition = find_benchmark(target, benchmarks_dir)

        def run(say: Say) -> Result:
            values = dict(read_setting(each) for each in settings or ())
            reference_of(definition)
            check_settings(definition, definition.divisions[-1], values)
            whole = hyperparameters(definition, values)
            asked = ReferenceBench(definition, whole, choose_device(device), **how)
            return run_reference(asked, measure_apart, say)

    _measure(screen, run, out, csv)


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
    chosen, listed = check_kernels(file, device)
    how: dict[str, Any] = {"device": chosen, "threads": threads, "seconds": seconds}
    _measure(screen, lambda say: run_kernels(listed, measure=measure_apart, say=say, **how), out)


@bench.command()
@shows
def generate(
    screen: Screen,
    target: Annotated[
        str, typer.Argument(metavar="grammar|SPEC", help="The benchmark grammar, or a model.")
    ],
    scenario: Annotated[
        Scenario, typer.Option(help="How requests arrive, as MLPerf names it.")
    ] = "offline",
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 32,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens made for each.")] = 32,
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 64,
    no_kv_cache: Annotated[
        bool, typer.Option("--no-kv-cache", help="Gives the whole text again for each token.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(min=LEAST, help="Requests per second that arrive at a server (Poisson)."),
    ] = None,
    p99_seconds: Annotated[
        float | None,
        typer.Option(min=LEAST, help="Bound of the latency's 99th percentile, for p99_met."),
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

    def run(say: Say) -> Result:
        asked = GenerationBench(
            target,
            scenario,
            choose_device(device),
            precision=precision or "fp32",
            batch_sizes=_read_batch_sizes(batch_sizes) or (),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            requests=requests,
            kv_cache=not no_kv_cache,
            rate=rate,
            p99_seconds=p99_seconds,
            threads=threads,
        )
        return run_generation(asked, measure_apart, say)

    _measure(screen, run, out)


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

    def run(say: Say) -> Result:
        chosen = choose_device(device)
        how: dict[str, Any] = {"threads": threads, "seconds": seconds}
        return run_machine(chosen, measure=measure_apart, say=say, **how)

    _measure(screen, run, out)


@bench.command()
@shows
def scale(
    screen: Screen,
    benchmark: Name,
    processes: Annotated[
        str, typer.Option("--processes", help="Numbers of processes, as 1,2,4.")
    ] = "1,2",
    strong: Annotated[
        bool, typer.Option("--strong", help="One batch, shared by all processes.")
    ] = False,
    weak: Annotated[bool, typer.Option("--weak", help="One batch for each process.")] = False,
    steps: Steps = 20,
    device: Device = None,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Time a reference's training steps in several processes, and their all-reduce."""
    require_training_packages("bench scale")
    counts = _read_numbers(processes, "--processes", most=max(2, os.cpu_count() or 1))
    if strong == weak:
        raise UsageError("Choose one of --strong and --weak.")
    definition = _trainable(benchmark, benchmarks_dir)

    def run(say: Say) -> Result:
        chosen = choose_device(device)
        asked = Scaling(definition, counts, strong=strong, steps=steps, device=chosen, data=data)
        return run_scaling(asked, say)

    screen.answer(result := _run(screen, run), [points_table(result)])


@bench.command()
@shows
def profile(
    screen: Screen,
    benchmark: Name,
    out: Annotated[Path, typer.Option("--out", help="Folder for trace.json.")],
    steps: Steps = 20,
    device: Device = None,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Time the parts of a reference's training step, and trace some steps."""
    require_training_packages("bench profile")
    definition = _trainable(benchmark, benchmarks_dir)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "trace.json").write_text("")
    except OSError as error:
        raise CliError(
            f"Cannot write in {out} ({error.strerror}); choose another folder."
        ) from error

    def run(say: Say) -> Result:
        say("timing and tracing training steps")
        orders = {
            "reference": reference_of(definition).reference,
            "hyperparameters": hyperparameters(definition, {}),
            "device": choose_device(device),
            "data_dir": str(data),
            "steps": steps,
            "out": str(out),
        }
        answer = measure_apart("worker.bench.steps", orders, PROFILE_SECONDS)
        return require(answer, definition.benchmark_id)

    result = _run(screen, run)
    screen.answer(result, [parts_table(result), f"Wrote {out / 'trace.json'}."])


def _trainable(benchmark: str, benchmarks_dir: Path | None) -> Benchmark:
    """A benchmark whose reference trains with its own settings. Raises CliError or RuleError."""
    _, definition = find_benchmark(benchmark, benchmarks_dir)
    check_precision(definition, None)
    check_settings(definition, definition.divisions[0], {})
    return definition


def _measure(screen: Screen, run: Run, out: Path | None, csv: Path | None = None) -> None:
    require_training_packages("bench")
    for path in filter(None, (out, csv)):  # Before anything is measured.
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder", str(path))
    result = _run(screen, run)
    if out is not None:
        out.write_text(json.dumps(result, indent=2) + "\n")
    if csv is not None:
        csv.write_text(results_csv(result))
    screen.answer(result, _shown(result))


def _run(screen: Screen, run: Run) -> Result:
    try:
        return run(lambda doing: screen.say(f"{doing} ..."))
    except (RuleError, BenchError) as error:
        raise CliError(str(error)) from error


def _given(**options: Any) -> dict[str, Any]:
    """Options by name, without those that were left out."""
    return {name: value for name, value in options.items() if value not in (None, [])}


def check_kernels(file: Path, device: str | None) -> tuple[str, tuple[Kernel, ...]]:
    """The device, and the kernels of this list, which it can time. Raises CliError."""
    try:
        chosen = choose_device(device)
        kernels = read_kernels(file.read_bytes(), file=file.name)
        for kernel in kernels:
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
    return chosen, kernels


def _read_numbers(text: str, option: str, *, most: int) -> list[int]:
    """The whole numbers of a list such as 1,8. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:9]) <= most for part in parts):
        raise UsageError(
            f"{option} is {text!r}; expected whole numbers from 1 to {most}, with commas between "
            "them."
        )
    return list(dict.fromkeys(map(int, parts)))


def _read_batch_sizes(text: str | None) -> list[int] | None:
    return (text and _read_numbers(text, "--batch-sizes", most=10**6)) or None


def _refuse(given: Mapping[str, Any], target: str) -> None:
    for name in given:
        raise UsageError(f"--{name.replace('_', '-')} does not go with {target}. Leave it out.")


def _shown(result: Result) -> list[RenderableType]:
    some = "absent in some rows" if "kernels" in result else "absent"
    absences = [f"{name}: {some}, {why}" for name, why in result.get("absent", {}).items()]
    if "generation" in result:
        return [generation_table(result), *generation_lines(result), *absences]
    if "kernels" in result:
        return [kernel_table(result), *absences]
    if "model" in result:
        return [model_table(result), *model_lines(result), *absences]
    return [bench_table(result)]
