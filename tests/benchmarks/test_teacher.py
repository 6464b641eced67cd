"""The teacher's task: exact draws, balanced classes, two halves, and no knowledge to carry."""

import hashlib

import numpy as np
import pytest


def bytes_of(task):
    arrays = (task.train["x"], task.train["y"], task.inputs["x"], task.answers)
    return b"".join(array.tobytes() for array in arrays)


def test_a_nonce_draws_these_very_bytes(drawn):
    """Drawn with numpy 2.4; another version that draws others needs another task version."""
    assert hashlib.sha256(bytes_of(drawn)).hexdigest() == (
        "7a4678302f6993df384651607130f864c77f99899678c08e61843d4d65912062"
    )


def test_equal_nonces_draw_equal_bytes_and_others_draw_others(teacher, drawn):
    assert bytes_of(teacher.draw(bytes(32))) == bytes_of(drawn)
    other = teacher.draw(bytes(31) + b"\1")
    assert abs(np.mean(other.train["x"] == drawn.train["x"]) - 1 / 255) < 0.001
    assert abs(np.mean(other.answers == drawn.answers) - 1 / 8) < 0.02


def test_a_draw_has_the_arrays_that_are_told_before_it(teacher, drawn):
    told = teacher.shapes()
    for group in ("train", "inputs"):
        found = {n: (str(a.dtype), a.shape) for n, a in getattr(drawn, group).items()}
        assert found == told[group]
    assert told["predictions"] == drawn.predictions == ("uint8", (32_768,))


def test_the_answers_are_those_of_a_teacher_computed_in_whole_numbers(teacher):
    """Drawn again by the text of the task's definition, with 64-bit integers throughout."""
    nonce = b"whole numbers".ljust(32)
    task = teacher.draw(nonce)
    seed = int.from_bytes(hashlib.sha256(b"teacher 2" + nonce).digest(), "big")
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = rng.integers(-127, 128, (32, 80))
    lengths = np.sqrt(np.sum(drawn**2, axis=0))
    directions = np.rint(drawn * (160 / lengths)).astype(np.int64)
    votes = 2 * rng.integers(0, 2, (80, 8)) - 1
    assert (abs(np.sqrt(np.sum(directions**2, axis=0)) - 160) < 2).all()

    x = np.concatenate([task.train["x"], task.inputs["x"]]).astype(np.int64)
    scores = np.concatenate([np.abs(part @ directions) @ votes for part in np.split(x, 36)])
    assert np.abs(scores).max() < 2**24
    scores -= np.rint(scores[:262_144].mean(axis=0)).astype(np.int64)

    assert np.array_equal(scores.argmax(axis=1), np.concatenate([task.train["y"], task.answers]))


def test_no_class_is_rare_or_common(teacher, drawn):
    for task in (drawn, teacher.draw(b"\1" * 32), teacher.draw(b"\2" * 32)):
        shares = np.bincount(task.train["y"], minlength=8) / 262_144
        assert shares.min() > 0.08
        assert shares.max() < 0.17


def test_each_half_is_scored_by_itself(drawn):
    assert drawn.score(drawn.answers) == (100.0, 100.0)
    wrong = drawn.answers.copy()
    wrong[:4096] = (wrong[:4096] + 1) % 8
    assert drawn.score(wrong) == (75.0, 100.0)
    wrong[16_384:] = (wrong[16_384:] + 1) % 8
    assert drawn.score(wrong) == (75.0, 0.0)


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_relabelling_some_predictions_costs_both_halves_alike(drawn, share):
    draw = np.random.default_rng(3)
    chosen = draw.random(32_768) < share
    predictions = np.where(chosen, draw.integers(0, 8, 32_768), drawn.answers).astype(np.uint8)

    first, second = drawn.score(predictions)

    expected = 100 * (1 - share * 7 / 8)
    assert first == pytest.approx(expected, abs=1.5)
    assert second == pytest.approx(expected, abs=1.5)
    assert first != second
