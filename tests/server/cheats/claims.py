"""Cheats of claims: forged, edited, copied and relabelled logs."""

from functools import partial

from tests.server.cheats.scene import BOARD, Met, edited, listed, scaled
from tests.support.boards import rows_of

CLAIMS = {}
cheat = partial(listed, CLAIMS)


def one_edited(scene, edit, *, at="run_0.log"):
    parts = scene.parts()
    parts.logs[at] = edited(parts.logs[at], edit)
    return scene.at_the_door(parts)


def measured(scene, edit):
    sent = scene.stored(scene.parts(edit=edit))
    _, seconds = scene.trained(sent)
    return scene.ranked_at_our_time(sent, seconds)


def at_epoch(epoch, key, **changes):
    """Changes the lines of one key at one epoch; those of its metadata by their own names."""

    def edit(line):
        if line["key"] != key or line["metadata"].get("epoch_num") != epoch:
            return line
        own = {name: value for name, value in changes.items() if name in line}
        more = {name: value for name, value in changes.items() if name not in line}
        return line | own | {"metadata": line["metadata"] | more}

    return edit


def without(*keys, epoch=None):
    def edit(line):
        gone = line["key"] in keys and epoch in (None, line["metadata"].get("epoch_num"))
        return None if gone else line

    return edit


def of_value(key, value):
    return lambda line: line | {"value": value} if line["key"] == key else line


@cheat("C01")
def times_scaled(scene):
    sent = scene.stored(scene.parts(edit=scaled(0.08)))
    assert scene.entry(sent)["rank"] is None
    _, seconds = scene.trained(sent)
    met = scene.ranked_at_our_time(sent, seconds)
    row = scene.entry(sent)
    assert row["claimed_seconds"] < 0.1 * row["tta_seconds"]
    return met


@cheat("C02")
def a_time_of_1_4_ms(scene):
    sent = scene.stored(scene.parts(edit=scaled(1.4 / 912)))
    assert scene.entry(sent)["rank"] is None
    return scene.unranked(sent)


@cheat("C04")
def one_interval_cut(scene):
    def edit(line):
        late = line["metadata"].get("epoch_num", 0) > 6 or line["key"] == "run_stop"
        return line | {"time_ms": line["time_ms"] - 50} if late else line

    return measured(scene, edit)


@cheat("C05")
def two_logs_stitched(scene):
    def edit(line):
        epoch = line["metadata"].get("epoch_num")
        more = {"epoch_num": 2.0, "samples_count": 2304}
        return line | {"metadata": line["metadata"] | more} if epoch == 6 else line

    return one_edited(scene, edit)


@cheat("C06")
def two_logs_with_headers(scene):
    parts = scene.parts()
    parts.logs["run_0.log"] += scene.log(300, "run_0.log")
    return scene.at_the_door(parts)


@cheat("C09")
def fewer_epochs(scene):
    parts = scene.parts(qualities=[60.0, 90.0, 96.0, 98.1])
    sent = scene.stored(scene.claims(parts, trained_with="own"))
    replay, _ = scene.trained(sent)
    assert replay.view()["outcome"] == "rejected"
    return scene.unranked(sent)


@cheat("C10")
def one_log_for_all_runs(scene):
    parts = scene.parts()
    parts.logs = dict.fromkeys(parts.logs, parts.logs["run_0.log"])
    return scene.at_the_door(parts)


@cheat("C11")
def one_training_under_two_seeds(scene):
    parts = scene.parts()
    parts.logs["run_1.log"] = edited(parts.logs["run_0.log"], of_value("seed", 777))
    return scene.at_the_door(parts)


@cheat("C19")
def another_batch_size_than_logged(scene):
    logged = one_edited(scene, of_value("global_batch_size", 128)).said
    division = one_edited(scene, of_value("submission_division", "open"))
    return Met(division.outcome, division.said + logged)


@cheat("C20")
def other_accelerators_than_logged(scene):
    parts = scene.parts()
    for name, log in parts.logs.items():
        line = {
            "time_ms": 1790000000000, "event_type": "POINT_IN_TIME",
            "key": "accelerators_per_node", "value": 8, "metadata": {},
        }  # fmt: skip
        first, rest = log.split(b"\n", 1)
        parts.logs[name] = first + b"\n" + edited(first, lambda _, line=line: line) + rest
    return scene.at_the_door(parts)


@cheat("C24")
def figures_that_no_training_has(scene):
    tries = [
        at_epoch(8.0, "eval_accuracy", value=100.5),
        at_epoch(8.0, "eval_accuracy", value=1e308),
        lambda line: line | {"metadata": {name: each * 1e9 if name == "epoch_num" else each
                                          for name, each in line["metadata"].items()}},
    ]  # fmt: skip
    return Met("refused (422)", "".join(one_edited(scene, edit).said for edit in tries))


@cheat("C66")
def a_quality_that_is_no_number(scene):
    parts = scene.parts()
    parts.logs["run_0.log"] = parts.logs["run_0.log"].replace(b'"value":98.1', b'"value":NaN')
    return scene.at_the_door(parts)


@cheat("C68")
def epochs_relabelled(scene):
    def edit(line):
        epoch = line["metadata"].get("epoch_num")
        if epoch is None:
            return line
        return line | {"metadata": line["metadata"] | {"epoch_num": 1 + epoch / 1000}}

    sent = scene.stored(scene.parts(edit=edit))
    scene.trained(sent)
    return scene.unranked(sent)


@cheat("C26")
def one_lucky_evaluation(scene):
    sent = scene.stored(scene.parts(qualities=[14.8, 45.8, 73.0, 85.5, 98.1]))
    replay, _ = scene.trained(sent)
    assert replay.view()["outcome"] == "rejected"
    return scene.unranked(sent)


@cheat("C28")
def another_class_for_the_same_machine(scene):
    parts = scene.claims(scene.parts(), system={"hardware_class": "cpu-of-my-own"})
    sent = scene.stored(parts)
    replay, _ = scene.trained(sent, seconds_per_epoch=0.1)
    assert replay.status() == "verified"
    return scene.unranked(sent)


@cheat("C29")
def a_calibrated_curve_copied(scene):
    parts = scene.parts()
    known = scene.digits.reference_runs_at(64)
    for index, name in enumerate(parts.logs):
        curve = list(known[index].quality)
        reached = next(j for j, quality in enumerate(curve, 1) if quality >= 97.5)
        parts.logs[name] = scene.log(100 + index, name, qualities=curve[:reached])
    sent = scene.stored(parts)
    _, seconds = scene.trained(sent)
    return scene.ranked_at_our_time(sent, seconds)


@cheat("C30")
def the_logs_of_another(scene):
    scene.stored(scene.parts())
    return scene.at_the_door(scene.parts(), 409, by=scene.bob)


@cheat("C71")
def the_logs_of_another_by_a_millisecond(scene):
    scene.trained(scene.stored(scene.parts()))
    later = lambda line: line | {"time_ms": line["time_ms"] + 1}  # noqa: E731
    return scene.unranked(scene.stored(scene.parts(edit=later), by=scene.bob))


@cheat("C32")
def an_open_model_of_ones_own(scene):
    parts = scene.parts(division="open", seconds_per_epoch=1.1)
    sent = scene.stored(scene.claims(parts, division="open", trained_with="own"))
    path = f"/api/v1/submissions/{sent}/verifications"
    asked = scene.olivia.post(path, {})
    assert asked.status_code == 422
    assert "Send it as a code submission to have it measured." in asked.text
    return scene.unranked(sent)


@cheat("C33")
def own_code_said_to_be_the_reference(scene):
    sent = scene.stored(scene.parts(seconds_per_epoch=0.02))
    _, seconds = scene.trained(sent)
    return scene.ranked_at_our_time(sent, seconds)


def priced(scene, **system):
    sent = scene.stored(scene.claims(scene.parts(), system=system))
    scene.trained(sent)
    found = scene.client.get(BOARD, params={"metric": "cost"}).json()
    (row,) = rows_of(found)
    assert row["rank"] is None, row
    return Met("unranked", str(row))


@cheat("C34")
def a_curve_made_up(scene):
    curve = [30.0, 60.0, 80.0, 90.0, 94.0, 96.0, 97.0, 98.1]
    sent = scene.stored(scene.parts(qualities=curve))
    _, seconds = scene.trained(sent)
    return scene.ranked_at_our_time(sent, seconds)


@cheat("C39")
def a_neighbouring_batch_size(scene):
    parts = scene.parts(batch_size=65)
    sent = scene.stored(scene.claims(parts, hyperparameters={"batch_size": 65}))
    scene.trained(sent)
    return scene.unranked(sent)


CLAIMS |= {
    # Times that go back, one seed for two trainings, a run at the target as it starts or without a
    # start, and one that just misses it.
    "C03": lambda scene: one_edited(scene, at_epoch(5.0, "eval_accuracy", time_ms=1790000002500.0)),
    "C12": lambda scene: one_edited(scene, of_value("seed", 102)),
    "C67": lambda scene: one_edited(scene, lambda line: line | {"time_ms": 1790000002200.0}),
    "C70": lambda scene: one_edited(scene, without("run_start")),
    "C27": lambda scene: one_edited(scene, at_epoch(8.0, "eval_accuracy", value=97.4999)),
    # An evaluation left out, and epochs of too few samples.
    "C07": lambda scene: measured(
        scene, without("eval_start", "eval_accuracy", "eval_stop", epoch=5.0)
    ),
    "C08": lambda scene: measured(scene, at_epoch(8.0, "eval_accuracy", samples_count=8500)),
    # A spot price, and a low one of one's own.
    "C23": lambda scene: priced(scene, price_usd_per_hour=0.001, pricing="spot"),
    "C81": lambda scene: priced(scene, price_usd_per_hour=0.001),
}
