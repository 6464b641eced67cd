"""Cheats of luck and many tries, of names and imports, and of workers."""

from dataclasses import replace
from functools import partial

from tests.server.cheats.scene import Met, listed
from tests.server.test_archives import archive_entry
from tests.support.boards import rows_of
from tests.support.build import build_report

OTHERS = {}
cheat = partial(listed, OTHERS)


def at_our_time(scene, *trained, **claimed):
    sent = scene.stored(scene.parts(**claimed))
    seconds = [scene.trained(sent, seconds_per_epoch=pace)[1] for pace in trained]
    return scene.ranked_at_our_time(sent, [each for runs in seconds for each in runs])


@cheat("C36")
def two_accounts_with_the_same_settings(scene):
    scene.trained(scene.stored(scene.parts()))
    other = scene.make_person("carol", "submitter")
    lucky = scene.stored(scene.parts(first_seed=201), by=other)
    path = f"/api/v1/submissions/{lucky}/verifications"
    refused = scene.olivia.post(path, {})
    met = scene.unranked(lucky)
    return replace(met, said=met.said + refused.text)


@cheat("C38")
def withdrawn_while_it_is_unlucky(scene):
    first = scene.stored(scene.parts())
    replay = scene.replay(first)
    grant = replay.claim().json()
    body = {"reason": "an unlucky replay"}
    gone = scene.alice.post(f"/api/v1/submissions/{first}/withdrawal", body)
    assert gone.status_code == 200, gone.text
    slow = build_report(replay.seeds(), seconds_per_epoch=0.13)
    assert replay.report(grant, slow).status_code == 200
    unlucky = [float(run.tta_seconds or 0.0) for run in slow.runs]
    again = scene.stored(scene.parts(first_seed=201))
    _, lucky = scene.trained(again, seconds_per_epoch=0.1)
    return scene.ranked_at_our_time(again, unlucky + lucky)


@cheat("C40")
def one_configuration_under_many_names(scene):
    scene.trained(scene.stored(scene.parts()))
    named = {"model": "a faster net", "framework": "jax 0.8.0"}
    settings = dict(scene.digits.defaults())  # What the first leaves out.
    other = scene.make_person("carol", "submitter")
    parts = scene.claims(scene.parts(first_seed=201), **named, hyperparameters=settings)
    return scene.unranked(scene.stored(parts, by=other))


@cheat("C45")
def a_name_that_looks_like_another(scene):
    said = [_named(scene, name) for name in ("alісе", "ALICE", "a1ice")]
    assert {met.outcome for met in said} == {"refused (409)"}
    return Met("refused (409)", "".join(met.said for met in said))


@cheat("C46")
def a_name_with_bidi_controls(scene):
    assert _named(scene, " carol").outcome == _named(scene, "carol ").outcome
    return _named(scene, "carol\u202e")


def _named(scene, name):
    body = {"name": name, "role": "submitter"}
    return scene.refused(partial(scene.ada.post, "/api/v1/users", body), 409, 422)


@cheat("C48")
def an_import_of_ones_own_times(scene):
    sent = archive_entry(scene.client, scene.olivia)
    assert sent.status_code == 201, sent.text
    found = rows_of(scene.client.get("/api/v1/leaderboards/cifar10").json())
    (row,) = found
    assert (row["evidence"], row["rank"]) == ("published", None)
    return Met("unranked", str(row))


@cheat("C49")
def an_import_dated_years_ago(scene):
    sent = archive_entry(scene.client, scene.olivia)
    assert sent.json()["submitted_on"] == "2018-04-20"
    records = scene.client.get("/api/v1/benchmarks/cifar10/records")
    assert records.status_code == 200
    assert sent.json()["id"] not in records.text
    return Met("unranked", sent.text)


@cheat("C63")
def a_workers_token_that_submits(scene):
    submits = scene.at_the_door(scene.parts(), 403, by=scene.walter)
    post = scene.walter.post
    makes = scene.refused(partial(post, "/api/v1/me/tokens", {}), 403)
    sent = scene.stored(scene.parts())
    asks = scene.refused(partial(post, f"/api/v1/submissions/{sent}/verifications", {}), 403)
    return Met("refused (403)", submits.said + makes.said + asks.said)


@cheat("C64")
def an_attempt_of_another_worker(scene):
    replay = scene.replay(scene.stored(scene.parts()))
    assert replay.claim().status_code == 200
    mallory = scene.make_person("mallory", "worker")
    stolen = replace(replay, worker=mallory)
    return scene.refused(partial(stolen.claim, worker="mallory-1"), 403, 409)


@cheat("C75")
def code_of_ones_own_that_is_fast(scene):
    parts = scene.claims(scene.parts(seconds_per_epoch=0.01), trained_with="own")
    sent = scene.stored(parts)
    replay, _ = scene.trained(sent)
    assert replay.status() == "verified"
    return scene.unranked(sent)


OTHERS |= {
    # The best of many runs, a claim asked for until it is lucky, and a slow worker.
    "C13": lambda scene: at_our_time(scene, 0.11, seconds_per_epoch=0.09),
    "C37": lambda scene: at_our_time(scene, 0.13, 0.1),
    "C58": lambda scene: at_our_time(scene, 0.33),
}
