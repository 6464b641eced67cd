"""Ask a server for a benchmark's phase, and the definition it scores under."""

from typing import Annotated, Any

import typer
from rich.text import Text

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError
from finishline.rules.submissions.submission import ScoredSubmission

ServerToAsk = Annotated[
    str | None, typer.Option("--url", help="Server to ask for the definition and the phase.")
]


def ask_phase(url: str, scored: ScoredSubmission) -> tuple[View, list[Text]]:
    """Phase of a checked submission's benchmark on a server, as JSON and in sentences.

    A server that does not answer is no fault of the submission's.
    """
    benchmark_id = scored.claim.benchmark_id
    try:
        with ServerClient(url) as server:
            found: dict[str, Any] = server.get(f"/benchmarks/{segment(benchmark_id)}")
    except CliError as error:
        told = f"The phase of {benchmark_id} is not known: {error.message}"
        return {"error": error.message}, [Text(told, "yellow")]
    phases = found.get("phases") or {}
    style = "" if phases.get("takes_submissions", True) else "bold red"
    lines = [Text(f"{benchmark_id} at {url}: {phases.get('sentence', 'no dates')}", style)]
    if found.get("sha256") != scored.result.benchmark_sha256:
        lines.append(
            Text(
                f"The server scores by another definition, {str(found.get('sha256'))[:12]}; "
                f"this check used {scored.result.benchmark_sha256[:12]}.",
                "yellow",
            )
        )
    return {"phases": phases, "benchmark_sha256": found.get("sha256")}, lines
