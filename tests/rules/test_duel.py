"""Duels: the order of the runs, and who is faster."""

import math
import random
from dataclasses import replace

import pytest
from scipy import stats

from finishline.rules.errors import RuleError
from finishline.rules.verification.duel import (
    SIDES,
    DuelRun,
    Pair,
    duel_reasons,
    duel_sentence,
    judge_duel,
    pair_runs,
    why_no_duel,
)
from finishline.rules.verification.job import in_turn
from finishline.rules.verification.messages import Failure, ReplayEvaluation, ReplayReport
from tests.support.verdicts import CLAIM, WORKER, trained

LETTERS = {"challenger": "A", "holder": "B"}
BY_HAND = [(1.00, 1.20), (1.10, 1.30), (0.90, 1.20), (1.00, 1.25)]


def run_of(seconds, *, epochs=8.0, ending="reached"):
    if seconds is None:
        return DuelRun(0, 1, "missed" if ending == "reached" else "void", None, None)
    return DuelRun(0, 1, "reached", seconds, epochs)


def fight(*times):
    """The duel of these seconds (challenger, holder), None for a run that missed the target."""
    return judge_duel(
        [Pair(number, run_of(a), run_of(b)) for number, (a, b) in enumerate(times, start=1)]
    )


def replayed(index, *, seconds=1.0, quality=98.0):
    return trained([(seconds / 2, 60.0), (seconds, quality)], index=index)


def test_runs_alternate_a_b_b_a():
    assert "".join(LETTERS[side] for side in in_turn(SIDES, 4)) == "ABBAABBA"
    assert "".join(LETTERS[side] for side in in_turn(SIDES, 3)) == "ABBAAB"


@pytest.mark.parametrize("pairs", [2, 4, 20])
def test_a_linear_drift_leaves_an_even_number_of_pairs_alone(pairs):
    order = in_turn(SIDES, pairs)
    places = {side: [i for i, each in enumerate(order) if each == side] for side in LETTERS}
    assert sum(places["challenger"]) == sum(places["holder"])
    assert len(places["challenger"]) == pairs


def test_four_pairs_worked_by_hand():
    """Log ratios -0.18232, -0.16705, -0.28768, -0.22314: mean -0.21505, s 0.05390, t -7.98."""
    duel = fight(*BY_HAND)

    assert (duel.outcome, duel.test) == ("challenger_faster", "paired_t")
    assert duel.time.ratio == pytest.approx(math.exp(-0.215050), abs=1e-5)
    half = 3.182446 * 0.053900 / 2
    assert duel.time.low == pytest.approx(math.exp(-0.215050 - half), abs=1e-4)
    assert duel.time.high == pytest.approx(math.exp(-0.215050 + half), abs=1e-4)
    assert duel.p_value == pytest.approx(0.0041 / 2, abs=3e-5)
    assert "one-sided p = 0.0021 for the challenger" in duel_sentence(duel)
    assert duel.pairs_needed is None
    assert [pair.winner for pair in duel.pairs] == ["challenger"] * 4
    # The other way round the holder is faster.
    other = fight(*((holder, challenger) for challenger, holder in BY_HAND))
    assert (other.outcome, other.p_value) == ("holder_faster", pytest.approx(duel.p_value))
    assert [pair.winner for pair in other.pairs] == ["holder"] * 4


def test_what_drifts_alike_on_both_sides_does_not_hide_a_difference():
    """Twice as slow at the end as at the start, and 5 % apart: pairing sees it, Welch does not."""
    drift = [1.0, 1.2, 1.5, 1.7, 2.0]
    noise = [0.01, -0.01, 0.0, 0.005, -0.005]
    times = [(0.95 * d * (1 + e), d) for d, e in zip(drift, noise, strict=True)]
    unpaired = stats.ttest_ind(
        *([math.log(pair[side]) for pair in times] for side in (0, 1)), equal_var=False
    )

    assert fight(*times).outcome == "challenger_faster"
    assert unpaired.pvalue > 0.5


def test_noise_is_told_apart_from_nothing_and_says_how_many_pairs_it_would_take():
    """Log ratios +-0.1 about -0.05: s = 0.11547; ((1.95996 + 0.84162) s / 0.05)^2 + 1.92 = 43.8."""
    duel = fight(*((math.exp(x), 1.0) for x in (0.05, -0.15, 0.05, -0.15)))

    assert duel.outcome == "not_separable"
    assert duel.pairs_needed == 44
    assert "about 44 pairs" in duel_sentence(duel)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_separated_needs_more_pairs_than_there_were(seed):
    draw = random.Random(seed)
    times = [(draw.lognormvariate(0.03, 0.05), 1.0) for _ in range(draw.choice([2, 3, 5]))]
    duel = fight(*times)
    if duel.outcome == "not_separable" and duel.pairs_needed is not None:
        assert duel.pairs_needed > len(times)
    assert duel.outcome in ("not_separable", "challenger_faster", "holder_faster")


@pytest.mark.parametrize(
    ("pairs", "outcome", "test", "p_value", "needed"),
    [
        # Four times far faster and once not at all: to drop that run would reward a gamble.
        # One-sided for the challenger: 4 or 5 wins of 5.
        ([(None, 1.0), *[(0.5 + i / 100, 1.0) for i in range(4)]],
         "not_separable", "count", 6 / 32, ...),
        # A missed run of the slower side takes nothing from the faster.
        ([(1.0, None), *BY_HAND], "challenger_faster", "paired_t", ..., None),
        # A side that never reaches loses once there are six pairs: 2 (1/2)^5 = 0.0625 is not yet
        # proof, 2 (1/2)^6 = 0.03125 is.
        ([(1.0, None)] * 5, "not_separable", "count", 0.03125, 6),
        ([(1.0, None)] * 6, "challenger_faster", "count", 0.015625, None),
        # Two noisy pairs with both times say nothing, ten won pairs of ten say enough.
        ([(0.7, 1.0), (0.99, 1.0), *[(1.0, None)] * 8],
         "challenger_faster", "count", 1 / 2**10, None),
        # Two of three pairs have both times and tell nothing apart; a side that misses is counted.
        ([(1.0, 2.0), (2.0, 1.0), (1.0, None)], "not_separable", "paired_t", ..., 6),
        ([(None, None), (None, None)], "inconclusive", ..., None, None),
        ([(1.0, 2.0)], "inconclusive", ..., None, None),
    ],
)  # fmt: skip
def test_runs_that_missed_are_counted(pairs, outcome, test, p_value, needed):
    duel = fight(*pairs)
    assert duel.outcome == outcome
    assert test in (..., duel.test)
    assert p_value in (..., None) or duel.p_value == pytest.approx(p_value)
    assert p_value is not None or duel.p_value is None
    assert needed in (..., duel.pairs_needed)


def test_a_duel_tells_who_missed_and_who_won():
    gamble = fight((None, 1.0), *[(0.5 + i / 100, 1.0) for i in range(4)])
    assert (gamble.missed_by("challenger"), gamble.won_by("holder")) == (1, 1)
    assert gamble.ahead == "challenger"
    assert fight((1.0, None), *BY_HAND).time.pairs == 4
    six = fight(*[(1.0, None)] * 6)
    assert six.time is None
    assert "the challenger won 6 and the holder 0" in duel_sentence(six)
    assert "too few decided pairs" in duel_sentence(fight((None, None), (None, None)))


def test_a_void_run_takes_its_pair_out():
    void = Pair(5, DuelRun(8, 1, "void", None, None), run_of(9.0))
    duel = judge_duel([*fight(*BY_HAND).pairs, void])

    assert (duel.time.pairs, duel.outcome) == (4, "challenger_faster")
    assert void.winner is None


def test_the_ratio_of_times_is_that_of_epochs_times_that_of_paces():
    pairs = [
        Pair(1, run_of(1.0, epochs=8.0), run_of(1.5, epochs=9.0)),
        Pair(2, run_of(1.1, epochs=7.0), run_of(1.4, epochs=10.0)),
        Pair(3, run_of(0.9, epochs=8.0), run_of(1.6, epochs=11.0)),
    ]
    duel = judge_duel(pairs)

    assert duel.epochs.ratio == pytest.approx(stats.gmean([8 / 9, 7 / 10, 8 / 11]))
    assert duel.time.ratio == pytest.approx(duel.epochs.ratio * duel.pace.ratio)


def test_equal_readings_scatter_as_much_as_they_are_rounded():
    """Times to a millisecond, epochs to one; paces to a millisecond over the fewest epochs, 4."""
    duel = judge_duel([Pair(n, run_of(2.0, epochs=8.0), run_of(2.0, epochs=4.0)) for n in (1, 2)])

    a_step = math.sqrt(12)  # An even spread's width over its standard deviation.
    assert duel.time.log_stdev == pytest.approx(math.hypot(0.001 / 2, 0.001 / 2) / a_step)
    assert duel.epochs.log_stdev == pytest.approx(math.hypot(1 / 8, 1 / 4) / a_step)
    assert duel.pace.log_stdev == pytest.approx(math.hypot(0.00025 / 0.25, 0.00025 / 0.5) / a_step)


def test_a_pair_is_won_by_the_shorter_time_and_by_nobody_at_equal_ones():
    winners = [pair.winner for pair in fight((1.0, 1.1), (1.1, 1.0), (1.0, 1.0)).pairs]

    assert winners == ["challenger", "holder", None]


def test_equal_sides_are_separated_at_most_one_time_in_twenty():
    draw = random.Random(17)
    wrong = 0
    for _ in range(2000):
        times = [
            tuple(None if draw.random() < 0.05 else draw.lognormvariate(0, 0.05) for _ in "AB")
            for _ in range(8)
        ]
        wrong += fight(*times).outcome in ("challenger_faster", "holder_faster")
    # 5 % of 2000, and three standard deviations of such a count.
    assert wrong <= 100 + 3 * math.sqrt(2000 * 0.05 * 0.95)
    assert wrong > 20


def pairs_of(digits, *runs):
    return pair_runs(digits, ReplayReport(list(runs), WORKER))


def test_a_report_is_read_in_the_order_the_sides_were_trained(digits):
    pairs = pairs_of(digits, *(replayed(i, seconds=float(i + 1)) for i in range(4)))

    assert [(p.challenger.seconds, p.holder.seconds) for p in pairs] == [(1.0, 2.0), (4.0, 3.0)]
    assert [(p.challenger.seed, p.holder.run) for p in pairs] == [(100, 1), (103, 2)]
    assert pairs[0].challenger.epochs == 2.0
    with pytest.raises(RuleError, match="two runs for each pair"):
        pairs_of(digits, replayed(0))


def test_a_time_of_zero_counts_as_the_shortest_that_is_measured(digits):
    (pair,) = pairs_of(digits, replayed(0, seconds=0.0), replayed(1, seconds=1.0))
    assert pair.ratio == pytest.approx(0.001)


@pytest.mark.parametrize(("epoch", "known"), [(0.5, 0.5), (0.0, None)])
def test_epochs_are_compared_where_the_log_counts_them(digits, epoch, known):
    at_target = ReplayEvaluation(epoch, 576, 1.0, 98.0, {"train": 1.0})
    (pair,) = pairs_of(digits, *(replace(replayed(i), evaluations=[at_target]) for i in (0, 1)))
    assert (pair.challenger.seconds, pair.challenger.epochs) == (1.0, known)


def test_a_run_that_says_it_reached_and_did_not_is_missed(digits):
    diverged = Failure("submitter", "training_diverged", "no", "mend it")
    lost = Failure("infrastructure", "child_died", "no", "wait")
    runs = [
        replayed(0, quality=97.4),
        replayed(1, quality=97.5),
        replace(replayed(2), status="failed", failure=diverged, tta_seconds=None),
        replace(replayed(3), status="failed", failure=lost, tta_seconds=None),
    ]
    first, second = pair_runs(digits, ReplayReport(runs, WORKER))

    assert (first.challenger.ending, first.holder.ending) == ("missed", "reached")
    assert (second.challenger.ending, second.holder.ending) == ("void", "missed")
    assert (first.winner, second.winner) == ("holder", None)


def test_the_reasons_tell_time_pace_epochs_and_who_missed():
    duel = fight((1.0, None), *BY_HAND)
    reasons = duel_reasons(duel, claimed_on=CLAIM.system, trained_on=WORKER)
    by_code = {reason.code: reason for reason in reasons}

    assert list(by_code) == ["duel_time", "duel_missed", "duel_pace", "duel_epochs"]
    assert by_code["duel_time"].message.startswith(
        "the challenger is faster: the challenger took 0.807 times the holder's time (95 % 0.740"
    )
    assert by_code["duel_time"].numbers["challenger_won"] == 5.0
    assert by_code["duel_missed"].message.startswith("1 of the holder's 5 runs did not reach")
    elsewhere = replace(CLAIM.system, hardware_class="h200-8")
    codes = [r.code for r in duel_reasons(duel, claimed_on=elsewhere, trained_on=WORKER)]
    assert codes[-1] == "hardware_differs"


def test_a_duel_takes_two_replayable_claims_of_one_division_and_hardware_class(digits):
    fixed = replace(digits, reach=replace(digits.reach, name="fixed_stop"))
    system = replace(CLAIM.system, hardware_class="h200-8")

    assert why_no_duel(digits, CLAIM, CLAIM) is None
    for benchmark, changes, why in (
        (digits, {"division": "open"}, "one division"),
        (digits, {"system": system}, "h200-8"),
        (digits, {"hyperparameters": {"dropout": 0.1}}, "the holder cannot be replayed"),
        (fixed, {}, "same step"),
    ):
        assert why in why_no_duel(benchmark, CLAIM, replace(CLAIM, **changes))
