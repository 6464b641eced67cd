"""`finishline season`: packages handed in one after another, measured by a worker."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.entry import measurement_of
from finishline.cli.commands.up import kept_token
from finishline.cli.commands.verify import request_verification
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, DEFAULT_VAR, Json, Url, Var
from finishline.cli.screen import Screen, open_screen
from finishline.cli.season import season_packages
from finishline.cli.submission_tables import duel_lines, verdict_lines
from finishline.cli.tables import seconds_text
from finishline.cli.training import require_server
from finishline.cli.watching import watch_verification
from finishline.client.packages import send_package
from finishline.places import find_folder, installed_server
from finishline.rules.text import count_text
from finishline.rules.trainings.environment import closest_environment
from finishline.rules.trainings.package import Package
from finishline.rules.verification.ablation import FEWEST_REPEATS, MOST_REPEATS, USUAL_REPEATS
from finishline.rules.verification.duel import RECORD_PAIRS
from finishline.rules.verification.purposes import ABLATION

TRAINED = ("anyone", "known")


def season(
    repeats: Annotated[
        int,
        typer.Option(
            min=FEWEST_REPEATS, max=MOST_REPEATS, help="Runs with and without each idea, in pairs."
        ),
    ] = USUAL_REPEATS,
    var: Var = DEFAULT_VAR,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> int:
    """Hand in the season of teacher: six packages, each based on the one before by one idea.

    A worker trains each in its box, then with and without its idea in pairs. In the end the last
    one fights a duel of ten pairs for the record. Uses the tokens that `finishline up` keeps in its
    var folder. The exit code is 0 if every package ends measured, else 3.
    """
    require_server("season")
    screen = open_screen(as_json=as_json)
    played: list[View] = []
    with ServerClient(url, kept_token(var, "demo")) as server:
        packages = list(_packages(server))
        for number, package in enumerate(packages, start=1):
            title = f"{number} of {len(packages)}: {package.manifest.title}"
            screen.say("", Text(title, style="bold"))
            played.append(_play(server, package, screen, repeats=repeats))
        with ServerClient(url, kept_token(var, "organiser")) as organiser:
            _duel(organiser, played[-1]["entry"], screen)
        for each in played:  # Fresh runs have counted since.
            each["entry"] = server.get(f"/submissions/{segment(str(each['entry']['id']))}")
        page = f"{server.url}/benchmarks/{segment(packages[0].manifest.benchmark)}/ideas"
    lines = [Text("The season", style="bold"), *(_line(each) for each in played)]
    screen.answer({"packages": played, "url": page}, ["", *lines, f"Its tree: {page}"])
    is_measured = all(each["entry"]["measured_seconds"] is not None for each in played)
    return int(ExitCode.OK if is_measured else ExitCode.NOT_VERIFIED)


def _packages(server: ServerClient) -> Iterator[Package]:
    """The season, for an environment of the server's workers. Raises CliError without a box."""
    package = installed_server()
    assert package is not None  # noqa: S101  (it was required)
    folder = find_folder(package, "examples") / "season"
    first = next(season_packages(folder))
    boxes = [each["box"] for each in server.get("/workers")["workers"] if each.get("box")]
    offered = [name for box in boxes if box["entries"] in TRAINED for name in box["environments"]]
    environment = closest_environment(first.manifest.environment, offered)
    if environment is None:
        raise CliError(
            "The season was not played, because no worker of this server trains its packages: "
            f"{_why(boxes)}. Claims and replays work without a box.",
            exit_code=ExitCode.SERVER,
        )
    return season_packages(folder, environment=environment)


def _why(boxes: list[Mapping[str, Any]]) -> str:
    told = [str(box["why"]) for box in boxes if box["entries"] not in TRAINED and box.get("why")]
    return told[0] if told else "none reports a box with the environment that they name"


def _play(server: ServerClient, package: Package, screen: Screen, *, repeats: int) -> View:
    """Measure a package, then its factors; the entry and the measurement of its factors."""
    handed_in, repeated = send_package(server, package.files)
    path = f"/submissions/{segment(str(handed_in['id']))}"
    measured = server.get(f"/verifications/{segment(measurement_of(handed_in))}")
    _follow(server, measured, screen)
    entry = server.get(path)
    known = [each for each in entry["verifications"] if each["kind"] == ABLATION.name]
    ablation: View | None = None
    if repeated and known:
        ablation = server.get(f"/verifications/{segment(str(known[-1]['id']))}")
    elif package.manifest.factors and entry["measured_seconds"] is not None:
        ablation = request_verification(
            server, str(entry["id"]), kind=ABLATION.name, reason=None, repeats=repeats
        )
    if ablation is not None:
        screen.say("With and without its idea, on equal seeds and data:")
        ablation = _follow(server, ablation, screen)
    return {"entry": entry, "factors": ablation}


def _duel(server: ServerClient, entry: View, screen: Screen) -> None:
    """Have the last package fight for the record; both are one submitter's, so organisers ask."""
    path = f"/benchmarks/{segment(str(entry['benchmark']))}/records"
    lists = [each for each in server.get(path)["divisions"] if each["evidence"] == "measured"]
    holder = next((str(each["records"][-1]["submission_id"]) for each in lists), None)
    if holder in (None, entry["id"]) or entry["measured_seconds"] is None:
        return
    screen.say("", Text("The last package against the holder of the record", style="bold"))
    body = {
        "challenger": entry["id"],
        "holder": holder,
        "pairs": RECORD_PAIRS,
        "reason": "the season's record",
    }
    screen.say(*duel_lines(watch_verification(server, server.post("/duels", body), screen)))


def _follow(server: ServerClient, view: View, screen: Screen) -> View:
    view = watch_verification(server, view, screen)
    screen.say(*verdict_lines(view))
    return view


def _line(played: View) -> Text:
    entry, ablation = played["entry"], played["factors"]
    title = f"{entry['package']['title']}: "
    if entry["measured_seconds"] is None:
        return Text(f"{title}not measured", "yellow")
    low, high = entry["measured_low_seconds"], entry["measured_high_seconds"]
    interval = "" if low is None else f" ({seconds_text(low)} to {seconds_text(high)})"
    return Text(
        f"{title}{seconds_text(entry['measured_seconds'])}{interval}, "
        f"{count_text(entry['measured_runs'], 'run')}{_effect(ablation)}"
    )


def _effect(ablation: View | None) -> str:
    effects = (ablation or {}).get("factors") or []
    if not effects or effects[0]["ratio"] is None:
        return ""
    found = effects[0]
    pairs = count_text(found["pairs"], "pair")
    ratio, low, high = (f"{found[name]:.3g}" for name in ("ratio", "low", "high"))
    return f"; without its idea {ratio} × ({low} to {high}), {pairs}"
