"""Submissions and runs side by side: what differs, by how much, and in whose favour."""

from tests.web.views import (
    POINTS,
    TARGET,
    reported,
    submission,
    system,
    verification,
)
from web.compare import (
    comparison_rows,
    neighbour_names,
    pair_sentence,
    side_names,
)
from web.progress import (
    expected_evaluations,
    whole_runs,
)


def test_rows_say_whether_they_differ():
    faster = system(accelerator="H200", accelerator_count=8)
    settings = {"batch_size": 128, "warmup": 0.3}
    other = submission(id="b", system=faster, hyperparameters=settings)
    found = comparison_rows([submission(), other], TARGET, {"a": 1, "b": 2})
    rows = {row.name: row for row in found}

    assert rows["batch_size"].texts[1] == "128"
    assert rows["learning_rate"].texts == ("0.02", "–")
    different = {row.name for row in found if row.differs}
    assert {"Accelerator", "Accelerators", "warmup", "batch_size"} <= different
    assert "Processor" not in different
    assert "Before normalising" not in rows


def test_sides_are_named_by_what_tells_them_apart():
    one = submission()
    model = one | {"model": "narrow"}
    assert side_names([one, model]) == ["digits-cnn", "narrow"]
    bare, epyc = (one | {"system": system(processor=p)} for p in ("some processor", "EPYC 9654"))
    assert side_names([bare, epyc]) == ["digits-cnn, CPU", "digits-cnn, EPYC 9654"]
    assert side_names([one, one | {"hyperparameters": {"batch_size": 128}}])[1].startswith(
        "digits-cnn, batch_size 128"
    )
    assert len(set(side_names([one, model, model | {"submitter": "bob"}]))) == 3
    assert side_names([one, one]) == ["digits-cnn"] * 2


def test_neighbours_of_one_person_are_told_apart():
    def row(model, **changes):
        return submission(model=model, submitter="ada", hardware="EPYC", **changes)

    packages = [row(title, trained_with="package") for title in ("Plain SGD", "Momentum")]
    assert neighbour_names(packages) == ["Plain SGD by ada", "Momentum by ada"]
    claims = [row("net", hyperparameters={"batch_size": size}) for size in (32.0, 64.0)]
    alike = ["net by ada, batch_size 32", "net by ada, batch_size 64"]
    assert neighbour_names(claims) == alike


def pair(**changes):
    known = {"first": "a", "second": "b", "ratio": 0.8, "ratio_low": 0.75, "ratio_high": 0.9}
    tested = {"p_value": 0.001, "p_adjusted": 0.003, "p_faster": 0.9995, "runs_needed": 4}
    return known | tested | {"p_one_run_faster": 0.96, "told_apart": True} | changes


def said(of):
    compared = [{"submission_id": each, "run_seconds": [1.0] * 3} for each in "ab"]
    return pair_sentence(of, {"submissions": compared, "pairs": [of] * 3})


def test_pair_is_said_from_the_faster_side():
    faster = said(pair())
    slower = said(pair(ratio=1.25, ratio_low=1.1, ratio_high=1.4, p_one_run_faster=0.1))
    assert all(figure in faster for figure in ("1.25", "1.11", "1.33", "0.003", "96"))
    assert faster.startswith("A is significantly faster than B")
    assert slower.startswith("B is significantly faster than A")
    chance = said(pair(told_apart=False, p_adjusted=0.3, runs_needed=1200))
    assert "significantly" not in chance
    assert "1,200 runs" in chance


def test_runs_should_reach_the_target_where_the_reference_does():
    assert expected_evaluations(reported()) == 8
    assert expected_evaluations(verification(control_points=[])) is None
    falling = [POINTS[0] | {"index": i, "mean": mean} for i, mean in enumerate([3.0, 1.0], 1)]
    target = {"metric": "loss", "value": 1.5, "unit": "nats/byte", "direction": "lower"}
    assert expected_evaluations(verification(control_points=falling, target=target)) == 2


def test_a_mean_of_runs_is_told_in_whole_ones():
    assert [whole_runs(runs) for runs in (3.5, 4.0)] == ["3 to 4", "4"]
