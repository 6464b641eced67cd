"""Workers that lie about what they trained: none of it is published, and organisers hear of it."""

from copy import copy
from dataclasses import replace

import pytest
from sqlalchemy import select

from server.base.database import Database
from server.base.models import AuditRecord
from tests.support.run_logs import REFERENCE, curve_of
from tests.support.streams import stream_report, streamed


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


def late_in_one_burst(honest, replay):
    events = streamed(honest)
    return honest, at(lambda _: events[-1][0], events)


def shaved(honest, replay):
    """Each run a fifth of a second shorter than it was, which one late post may explain."""
    factor = 1 - 0.2 / honest.runs[0].evaluations[-1].seconds
    lie = scaled(honest, factor)
    runs = zip(streamed(honest), streamed(lie), strict=True)
    return lie, [(moment, event) for (moment, _), (_, event) in runs]


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


def early(honest, replay):
    runs = [_ended(replace(run, evaluations=run.evaluations[:5])) for run in honest.runs]
    lie = replace(honest, runs=runs)
    return lie, streamed(lie)


LIES = {
    "the claim's own": (the_claims_own, "those of the claim's run_"),
    "9 points under what was posted": (nine_points_under, "evaluations[0].quality"),
    "posted late in one burst": (late_in_one_burst, "s that passed"),
    "0.2 s off each run": (shaved, "of all runs so far"),
    "a quality of 2e300": (impossible, "a percent from 0 to 100"),
    "a quality of 100.5 %": (beyond_all, "a percent from 0 to 100"),
    "a second half of 101 %": (second_half_beyond, "evaluations[0].second_half"),
    "reached at no evaluation": (early, "reached without an evaluation"),
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
