"""Workers that lie about what they trained: none of it is published, and organisers hear of it."""

from copy import copy
from dataclasses import replace

import pytest
from sqlalchemy import select

from server.base.database import Database
from server.base.models import AuditRecord
from tests.support.build import build_report
from tests.support.run_logs import REFERENCE, curve_of
from tests.support.streams import stream_report, streamed


def told(report, change):
    """The report with other evaluations of each run, which ends with the last of them."""
    runs = []
    for run in report.runs:
        evaluations = change(run)
        last = evaluations[-1]
        spans = dict.fromkeys(("parent_seconds", "child_seconds", "tta_seconds"), last.seconds)
        runs.append(replace(run, evaluations=evaluations, ledger=last.ledger, **spans))
    return replace(report, runs=runs)


def with_curve(run, curve):
    pairs = zip(run.evaluations, curve, strict=False)
    return [replace(each, quality=quality) for each, quality in pairs]


def posted_as_told(change):
    def tell(honest):
        lie = told(honest, change)
        return lie, streamed(lie)

    return tell


def nine_points_under(honest):
    lie = told(honest, lambda run: with_curve(run, [e.quality - 9 for e in run.evaluations]))
    return lie, streamed(honest)


def late_in_one_burst(honest):
    events = streamed(honest)
    return honest, [(events[-1][0], event) for _, event in events]


def shaved(honest):
    """Each run a fifth of a second shorter than it was, which one late post may explain."""
    factor = 1 - 0.2 / honest.runs[0].evaluations[-1].seconds

    def shorter(each):
        ledger = {name: amount * factor for name, amount in each.ledger.items()}
        return replace(each, seconds=each.seconds * factor, ledger=ledger)

    lie = told(honest, lambda run: [shorter(each) for each in run.evaluations])
    runs = zip(streamed(honest), streamed(lie), strict=True)
    return lie, [(moment, event) for (moment, _), (_, event) in runs]


def ending_at(quality, *, after):
    """Each run ends with this quality after so many evaluations."""

    def change(run):
        evaluations = run.evaluations[: after + 1]
        return [*evaluations[:-1], replace(evaluations[-1], quality=quality)]

    return posted_as_told(change)


LIES = {
    "the claim's own": (
        posted_as_told(lambda run: with_curve(run, curve_of(100 + run.index, REFERENCE))),
        "those of the claim's run_",
    ),
    "9 points under what was posted": (nine_points_under, "evaluations[0].quality"),
    "posted late in one burst": (late_in_one_burst, "s that passed"),
    "0.2 s off each run": (shaved, "of all runs so far"),
    "a quality of 2e300": (ending_at(2e300, after=7), "a percent from 0 to 100"),
    "a quality of 100.5 %": (ending_at(100.5, after=3), "a percent from 0 to 100"),
    "a second half of 101 %": (
        posted_as_told(lambda run: [replace(e, second_half=101.0) for e in run.evaluations]),
        "evaluations[0].second_half",
    ),
    "reached at no evaluation": (
        posted_as_told(lambda run: run.evaluations[:5]), "reached without an evaluation"
    ),
}  # fmt: skip


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
def test_a_report_that_is_a_lie_is_refused(lie, replay, database):
    tell, wanted = LIES[lie]
    why = refused(replay, *tell(build_report(replay.seeds())))

    assert wanted in why
    query = select(AuditRecord).where(AuditRecord.action == "report.refuse")
    with database.read() as session:
        noted = session.scalars(query).one()
    assert (noted.actor, noted.subject_id) == ("report check", "walter-1")
    assert wanted in str(noted.reason)
    assert replay.train().json()["outcome"] == "verified"


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


def test_report_is_judged_by_all_that_was_posted(replay, make_report, meanwhile):
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
    curves = {
        run.index: [each.quality for each in run.evaluations] for run in (*second.runs, *first.runs)
    }
    lie = told(second, lambda run: with_curve(run, curves[run.index]))
    grant, copied = replay.claim().json(), other.claim().json()
    for attempt, report in ((grant, first), (copied, lie)):
        stream_report(replay.database, attempt["attempt_id"], report)
    meanwhile(lambda: replay.post_report(grant, first).raise_for_status())
    answer = other.post_report(copied, lie)

    assert answer.status_code == 422
    assert f"of verification {replay.verification_id}" in answer.json()["detail"]


@pytest.mark.parametrize(("late_seconds", "status"), [(0.2, 200), (0.5, 422)])
def test_a_post_may_come_a_quarter_of_a_second_late(late_seconds, status, replay, make_report):
    report = make_report(replay.seeds())
    late = {(0, "evaluation"): late_seconds}
    events = [(at + late.get((e["run"], e["kind"]), 0.0), e) for at, e in streamed(report)]
    grant = replay.claim().json()
    stream_report(replay.database, grant["attempt_id"], report, events=events)

    assert replay.post_report(grant, report).status_code == status
