"""The pages: the same views as the API's, handed to web's templates and charts."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from server.benchmarks.convergence import convergence_view
from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions, find_benchmark
from server.benchmarks.schemas import benchmark_view
from server.dependencies import PartsDep
from server.leaderboard.schemas import BoardQueryDep
from server.pages.queries import (
    board_context,
    submission_context,
    submission_with_curves,
    verification_context,
)
from server.records.queries import standing_record
from server.verifications.queries import list_verifications, view
from server.workers.queries import list_workers
from web.assets import static_asset
from web.charts import curves_figure, pareto_figure, replay_figure
from web.convergence_chart import convergence_figure
from web.duel_chart import duel_figure
from web.render import render

router = APIRouter(include_in_schema=False)
LATEST = 8


@router.get("/", response_class=HTMLResponse)
def home(parts: PartsDep) -> str:
    """Every benchmark with its record, and the latest verifications."""
    alive = parts.settings.worker_alive_seconds
    cards = []
    with parts.database.read() as session:
        counts = count_submissions(session)
        for benchmark_id, benchmark in parts.benchmarks.items():
            card = benchmark_view(benchmark, counts.get(benchmark_id, NO_SUBMISSIONS))
            # Looked for only where something stands: most of the archives' boards are empty.
            record = standing_record(session, benchmark) if card.submissions else None
            shown = record.model_dump(mode="json") if record is not None else None
            cards.append(card.model_dump(mode="json") | {"record": shown})
        verifications = [
            view(session, verification, alive_seconds=alive, with_report=False).model_dump(
                mode="json"
            )
            for verification in list_verifications(session, state=None, limit=LATEST)
        ]
    return render("home.html", benchmarks=cards, verifications=verifications)


@router.get("/benchmarks/{benchmark_id}", response_class=HTMLResponse)
def benchmark_page(benchmark_id: str, query: BoardQueryDep, parts: PartsDep) -> str:
    """A leaderboard."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        context = board_context(session, benchmark, query)
    return render("benchmark.html", **context)


@router.get("/benchmarks/{benchmark_id}/charts/pareto.json")
def pareto_chart(benchmark_id: str, query: BoardQueryDep, parts: PartsDep) -> dict[str, Any]:
    """TTA against cost."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        return pareto_figure(board_context(session, benchmark, query)["board"])


@router.get("/benchmarks/{benchmark_id}/convergence", response_class=HTMLResponse)
def convergence_page(benchmark_id: str, parts: PartsDep) -> str:
    """The reference's convergence, and the submissions on it."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        convergence = convergence_view(session, benchmark)
    shown = benchmark_view(benchmark)
    return render(
        "convergence.html",
        benchmark=shown.model_dump(mode="json"),
        convergence=convergence.model_dump(mode="json"),
    )


@router.get("/benchmarks/{benchmark_id}/charts/convergence.json")
def convergence_chart(benchmark_id: str, parts: PartsDep) -> dict[str, Any]:
    """Convergence against batch size."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        return convergence_figure(convergence_view(session, benchmark).model_dump(mode="json"))


@router.get("/submissions/{submission_id}", response_class=HTMLResponse)
def submission_page(submission_id: str, parts: PartsDep) -> str:
    """A submission and its score, step by step."""
    with parts.database.read() as session:
        context = submission_context(session, parts, submission_id)
        if context["submission"]["kind"] == "inference":
            return render("inference.html", **context)
        context["curves"] = submission_with_curves(session, submission_id)
    return render("submission.html", **context)


@router.get("/submissions/{submission_id}/charts/curves.json")
def curves_chart(submission_id: str, parts: PartsDep) -> dict[str, Any]:
    """Quality against time, run by run."""
    with parts.database.read() as session:
        context = submission_context(session, parts, submission_id)
        runs = submission_with_curves(session, submission_id)
    return curves_figure(runs, context["benchmark"]["target"], context["control_points"])


@router.get("/verifications/{verification_id}", response_class=HTMLResponse)
def verification_page(verification_id: str, parts: PartsDep) -> str:
    """A replay, live while it runs, with its verdict when it has ended."""
    with parts.database.read() as session:
        context = verification_context(session, parts, verification_id)
    return render("verification.html", **context)


@router.get("/verifications/{verification_id}/charts/replay.json")
def replay_chart(verification_id: str, parts: PartsDep) -> dict[str, Any]:
    """A replay's curves against the band."""
    with parts.database.read() as session:
        context = verification_context(session, parts, verification_id)
    return replay_figure(context["verification"])


@router.get("/verifications/{verification_id}/charts/duel.json")
def duel_chart(verification_id: str, parts: PartsDep) -> dict[str, Any]:
    """The times of a duel, pair by pair."""
    with parts.database.read() as session:
        context = verification_context(session, parts, verification_id)
    if context["verification"]["duel"] is None:
        raise HTTPException(404, f"Verification {verification_id} is no duel.")
    return duel_figure(context["verification"]["duel"])


@router.get("/workers", response_class=HTMLResponse)
def workers_page(parts: PartsDep) -> str:
    """Who replays."""
    with parts.database.read() as session:
        workers = list_workers(session, alive_seconds=parts.settings.worker_alive_seconds)
    return render("workers.html", workers=[w.model_dump(mode="json") for w in workers])


@router.get("/static/{path:path}")
def static_file(path: str, request: Request) -> Response:
    """A static file: compressed once, kept for ever under its fingerprinted address."""
    asset = static_asset(path)
    if asset is None:
        raise HTTPException(404, "Not found")
    keep = "public, max-age=31536000, immutable" if asset.immutable else "no-cache"
    headers = {"ETag": asset.etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    content = asset.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = asset.gzip_content
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)
