"""Workers that lie about what they trained: none of it is published, and organisers hear of it."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from finishline.rules.measurements import RunTelemetry
from finishline.rules.verification.messages import ReplayReport
from server.base.database import Database
from server.base.models import AuditRecord
from tests.support.run_logs import REFERENCE, curve_of
from tests.support.streams import Streamed, stream_report, streamed
from tests.support.workers import say_hello

Lie = Callable[[ReplayReport, Any], tuple[ReplayReport, Streamed]]


def with_curves(report, curves):
    """The report with other qualities, as far as its runs go."""
    runs = [
        replace(
            run,
            evaluations=[
                replace(item, quality=quality)
                for item, quality in zip(run.evaluations, curve, strict=False)
            ],
        )
        for run, curve in zip(report.runs, curves, strict=False)
    ]
    return replace(report, runs=[_ended(run) for run in runs])


def _ended(run):
    """A run that ends with its last evaluation."""
    last = run.evaluations[-1]
    seconds = {"parent_seconds": last.seconds, "child_seconds": last.seconds}
    return replace(run, ledger=last.ledger, tta_seconds=last.seconds, **seconds)


def scaled(report, factor):
    """The report with every second multiplied."""
    runs = [
        replace(
            run,
            evaluations=[
                replace(
                    item,
                    seconds=item.seconds * factor,
                    ledger={name: amount * factor for name, amount in item.ledger.items()},
                )
                for item in run.evaluations
            ],
        )
        for run in report.runs
    ]
    return replace(report, runs=[_ended(run) for run in runs])


def at(moments, events):
    """The events as they came at other moments."""
    return [(moments(moment), event) for moment, event in events]


def calibrated_curves(honest, replay):
    curves = [list(run.quality) for run in replay.digits.reference_runs_at(64)]
    lie = with_curves(honest, curves)
    return lie, streamed(lie)


def one_curve_for_all(honest, replay):
    curve = [item.quality for item in honest.runs[0].evaluations]
    lie = with_curves(honest, [curve] * len(honest.runs))
    return lie, streamed(lie)


def the_claims_own(honest, replay):
    path = f"/api/v1/submissions/{replay.submission_id}"
    files = [run["file"] for run in replay.client.get(path).json()["runs"]]
    curves = replay.claimed_curves(files)
    others = [[item.quality for item in run.evaluations] for run in honest.runs[len(curves) :]]
    lie = with_curves(honest, [*curves[: len(honest.runs)], *others])
    return lie, streamed(lie)


def nine_points_under(honest, replay):
    under = [[item.quality - 9 for item in run.evaluations] for run in honest.runs]
    return with_curves(honest, under), streamed(honest)


def twice_the_seconds(honest, replay):
    lie = scaled(honest, 2.0)
    return lie, at(lambda moment: moment / 2, streamed(lie))


def in_28_ms(honest, replay):
    events = streamed(honest)
    return honest, at(lambda moment: moment * 0.028 / events[-1][0], events)


def late_in_one_burst(honest, replay):
    events = streamed(honest)
    return honest, at(lambda _: events[-1][0], events)


def shaved(honest, replay):
    """Each run a fifth of a second shorter than it was, which one late post may explain."""
    factor = 1 - 0.2 / honest.runs[0].evaluations[-1].seconds
    lie = scaled(honest, factor)
    runs = zip(streamed(honest), streamed(lie), strict=True)
    return lie, [(moment, event) for (moment, _), (_, event) in runs]


def warped(honest, replay):
    lie = scaled(honest, 0.08)
    return lie, at(lambda moment: moment / 0.08, streamed(lie))


def not_posted(honest, replay):
    return honest, [(0.0, {"run": 0, "kind": "run_started"})]


def impossible(honest, replay):
    huge = [[*(item.quality for item in run.evaluations[:-1]), 2e300] for run in honest.runs]
    lie = with_curves(honest, huge)
    return lie, streamed(lie)


def beyond_all(honest, replay):
    beyond = [[*(item.quality for item in run.evaluations[:3]), 100.5] for run in honest.runs]
    lie = with_curves(honest, beyond)
    return lie, streamed(lie)


def second_half_beyond(honest, replay):
    runs = [
        replace(run, evaluations=[replace(each, second_half=101.0) for each in run.evaluations])
        for run in honest.runs
    ]
    lie = replace(honest, runs=runs)
    return lie, streamed(lie)


def less_than_no_energy(honest, replay):
    sensors = RunTelemetry(energy_joules=-1.0, temperature_max_celsius=-5.0)
    runs = [replace(run, telemetry=sensors) for run in honest.runs]
    return replace(honest, runs=runs), streamed(honest)


def early(honest, replay):
    runs = [_ended(replace(run, evaluations=run.evaluations[:5])) for run in honest.runs]
    lie = replace(honest, runs=runs)
    return lie, streamed(lie)


LIES: dict[str, tuple[Lie, str]] = {
    "calibrated curves": (calibrated_curves, "those of the calibrated run"),
    "one curve for all runs": (one_curve_for_all, "those of run 0 of the report"),
    "the claim's own": (the_claims_own, "those of the claim's run_"),
    "9 points under what was posted": (nine_points_under, "evaluations[0].quality"),
    "a ledger of twice the seconds": (twice_the_seconds, "s that passed"),
    "28 ms for all trainings": (in_28_ms, "s that passed"),
    "posted late in one burst": (late_in_one_burst, "s that passed"),
    "0.2 s off each run": (shaved, "of all runs so far"),
    "seconds warped by 0.08": (warped, "s that passed"),
    "a quality of 2e300": (impossible, "a percent from 0 to 100"),
    "a quality of 100.5 %": (beyond_all, "a percent from 0 to 100"),
    "a second half of 101 %": (second_half_beyond, "evaluations[0].second_half"),
    "less than no energy": (less_than_no_energy, "runs[0].telemetry.energy_joules: -1"),
    "reached at no evaluation": (early, "reached without an evaluation"),
    "nothing posted": (not_posted, "8 reported; expected 0, as posted"),
}


@pytest.fixture
def lied_to(replay, digits, make_log):
    """The fixture `replay`, which knows the benchmark and the curves of its claim."""
    replay.digits = digits
    replay.claimed_curves = lambda files: [
        curve_of(100 + index, REFERENCE) for index, _ in enumerate(files)
    ]
    return replay


def refused(replay, report, events):
    """Why a report is refused; what follows for its attempt is what follows for every lie."""
    grant = replay.claim().json()
    stream_report(replay.database, grant["attempt_id"], report, events=events)
    answer = replay.post_report(grant, report)
    assert answer.status_code == 422, answer.text
    again = replay.post_report(grant, report)
    assert (again.status_code, again.json()["detail"]) == (422, answer.json()["detail"])
    view = replay.view()
    assert (view["state"], view["outcome"], view["report"]) == ("queued", None, None)
    states = [attempt["state"] for attempt in view["attempts"]]
    assert states[-2:] == ["failed", "queued"]
    failure = view["attempts"][-2]["failure"]
    assert (failure["kind"], failure["code"]) == ("infrastructure", "report_refused")
    assert replay.status() == "verifying"
    return str(answer.json()["detail"])


@pytest.mark.parametrize("lie", LIES)
def test_a_report_that_is_a_lie_is_refused(lie, lied_to, make_report, database):
    tell, wanted = LIES[lie]
    report, events = tell(make_report(lied_to.seeds()), lied_to)
    why = refused(lied_to, report, events)

    assert wanted in why
    with database.read() as session:
        noted = session.scalars(
            select(AuditRecord).where(AuditRecord.action == "report.refuse")
        ).one()
    assert (noted.actor, noted.subject_id) == ("report check", "walter-1")
    assert wanted in str(noted.reason)
    honest = lied_to.report(lied_to.claim().json(), make_report(lied_to.seeds()))
    assert honest.json()["outcome"] == "verified"


def test_the_replays_of_another_verification_are_refused(replay, olivia, make_report):
    first = make_report(replay.seeds())
    assert replay.report(replay.claim().json(), first).json()["outcome"] == "verified"
    verified = replay.ask_again(olivia)
    curves = [[item.quality for item in run.evaluations] for run in first.runs]
    honest = make_report(replay.seeds())
    lie = with_curves(honest, [curves[i % len(curves)] for i in range(len(honest.runs))])
    grant = replay.claim().json()
    answer = replay.report(grant, lie)

    assert answer.status_code == 422
    told = answer.json()["detail"]
    assert "those of run" in told
    assert verified in told or "of the report" in told


@pytest.fixture
def meanwhile(monkeypatch):
    """Lets something happen after the next report has come and before it is stored."""
    write = Database.write

    def happens(act):
        def late(database):
            monkeypatch.setattr(Database, "write", write)
            act()
            return write(database)

        monkeypatch.setattr(Database, "write", late)

    return happens


def test_a_report_is_judged_by_all_that_was_posted_before_it_is_stored(
    replay, make_report, meanwhile
):
    grant, report = replay.claim().json(), make_report(replay.seeds())
    stream_report(replay.database, grant["attempt_id"], report)
    _, last = streamed(report)[-1]
    meanwhile(lambda: replay.post(grant, [{"sequence": 9999, **last}]).raise_for_status())
    answer = replay.post_report(grant, report)

    assert (answer.status_code, "as posted" in answer.json()["detail"]) == (422, True)


def test_one_training_cannot_be_reported_twice_at_once(replay, ask_another, make_report, meanwhile):
    other = copy(replay)
    other.verification_id = ask_another()
    first, second = make_report(replay.seeds()), make_report(other.seeds())
    known, own = ([[e.quality for e in run.evaluations] for run in r.runs] for r in (first, second))
    lie = with_curves(second, [*known, *own[len(known) :]])
    grant, copied = replay.claim().json(), other.claim().json()
    for attempt, report in ((grant, first), (copied, lie)):
        stream_report(replay.database, attempt["attempt_id"], report)
    meanwhile(lambda: replay.post_report(grant, first).raise_for_status())
    answer = other.post_report(copied, lie)

    assert answer.status_code == 422
    assert f"of verification {replay.verification_id}" in answer.json()["detail"]


def test_the_report_of_another_worker_is_refused(replay, client, make_report):
    report = make_report(replay.seeds())
    say_hello(client, replay.worker)
    other = replace(report, system=replace(report.system, worker="another-1"))
    answer = replay.report(replay.claim().json(), other)

    assert answer.status_code == 422
    assert "system.worker" in answer.json()["detail"]
    assert replay.view()["outcome"] is None


def is_evaluation_of_first(event):
    return (event["run"], event["kind"]) == (0, "evaluation")


@pytest.mark.parametrize(("late_seconds", "status"), [(0.2, 200), (0.5, 422)])
def test_a_post_may_come_a_quarter_of_a_second_late(late_seconds, status, replay, make_report):
    report = make_report(replay.seeds())
    events = [
        (moment + (late_seconds if is_evaluation_of_first(event) else 0.0), event)
        for moment, event in streamed(report)
    ]
    grant = replay.claim().json()
    stream_report(replay.database, grant["attempt_id"], report, events=events)

    assert replay.post_report(grant, report).status_code == status
