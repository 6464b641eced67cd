"""Head-to-heads: the order of the runs, and whether the challenger takes first place."""

import math
import random
from dataclasses import replace

import pytest
from scipy import stats

from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import Spread
from finishline.rules.verification.head_to_head import (
    HEAD_TO_HEAD,
    SIDES,
    Pair,
    PairRun,
    head_to_head_reasons,
    head_to_head_sentence,
    judge_head_to_head,
    looks_of,
    pair_runs,
    threshold,
)
from finishline.rules.verification.job import Case, Contest, in_turn
from finishline.rules.verification.messages import Failure, ReplayEvaluation, ReplayReport
from tests.support.verdicts import CLAIM, WORKER, trained

LETTERS = {"challenger": "A", "holder": "B"}
SLOWER = [(1.01, 1.0)] * 5
MISSED = (None, 1.0)


def run_of(seconds, *, epochs=8.0):
    if seconds is None:
        return PairRun(0, 1, "missed", None, None)
    return PairRun(0, 1, "reached", seconds, epochs)


def fight(*times, rule=None):
    pairs = [Pair(number, run_of(a), run_of(b)) for number, (a, b) in enumerate(times, start=1)]
    return judge_head_to_head(pairs, rule)


def ahead(pairs, *, gain=0.05, noise=0.03):
    """Times of pairs whose log ratios are -gain + noise and -gain - noise in turn."""
    signs = [(-1) ** number for number in range(pairs)]
    return [(math.exp(-gain + noise * sign), 1.0) for sign in signs]


def found(head_to_head):
    return (head_to_head.outcome, head_to_head.next_pairs)


def test_runs_alternate_a_b_b_a():
    assert "".join(LETTERS[side] for side in in_turn(SIDES, 4)) == "ABBAABBA"
    assert "".join(LETTERS[side] for side in in_turn(SIDES, 3)) == "ABBAAB"


@pytest.mark.parametrize(
    ("place", "tries", "expected"),
    [(1, 1, 0.00083), (3, 1, 0.00014), (1, 2, 0.00028), (2, 3, 0.000046)],
)
def test_threshold_falls_with_tries_and_submitters(place, tries, expected):
    assert threshold(place=place, tries=tries) == pytest.approx(expected, rel=0.01)


def test_all_tries_of_all_submitters_share_one_percent():
    three_tests = 3 * sum(
        threshold(place=place, tries=tries) for place in range(1, 200) for tries in range(1, 200)
    )
    assert three_tests == pytest.approx(0.01 * (199 / 200) ** 2)


def test_ten_pairs_worked_by_hand():
    """Mean -0.05, s 0.03162, t -5.00 with 9 degrees of freedom: p = 0.00037."""
    head_to_head = fight(*ahead(10))

    assert head_to_head.outcome == "challenger_faster"
    assert head_to_head.time.ratio == pytest.approx(math.exp(-0.05))
    half = 2.262157 * 0.031623 / math.sqrt(10)
    assert head_to_head.time.low == pytest.approx(math.exp(-0.05 - half), abs=1e-5)
    assert head_to_head.time.high == pytest.approx(math.exp(-0.05 + half), abs=1e-5)
    assert head_to_head.p_value == pytest.approx(0.00037, abs=5e-6)
    sides = ([math.log(seconds) for seconds, _ in ahead(10)], [0.0] * 10)
    assert head_to_head.p_value == pytest.approx(stats.ttest_rel(*sides, alternative="less").pvalue)
    sentence = "over 10 pairs, one-sided p = 0.00037, first place needs p < 0.00083"
    assert head_to_head_sentence(head_to_head).endswith(sentence)
    # The first try of a third submitter needs p < 0.00014: ten more pairs.
    third = Contest(threshold=threshold(place=3, tries=1))
    assert found(fight(*ahead(10), rule=third)) == ("continues", 10)
    assert found(fight(*ahead(20), rule=third)) == ("challenger_faster", 0)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (ahead(4), ("continues", 1)),
        (SLOWER, ("not_proven", 0)),
        ([(1.0, 1.0)] * 5, ("not_proven", 0)),
        # Five pairs prove nothing, however far ahead.
        (ahead(5, gain=1.0, noise=0.001), ("continues", 5)),
        # Between two looks nobody wins or loses.
        ([*ahead(5, gain=0.001), *SLOWER[:4]], ("continues", 1)),
        (ahead(9, gain=1.0, noise=0.001), ("continues", 1)),
        (ahead(15, gain=1.0, noise=0.001), ("continues", 5)),
        ([*ahead(5, gain=0.001), *SLOWER], ("not_proven", 0)),
        (ahead(10, noise=0.04), ("continues", 10)),
        (ahead(20, noise=0.07), ("continues", 10)),
        (ahead(30, noise=0.07), ("challenger_faster", 0)),
        (ahead(30, noise=0.1), ("not_proven", 0)),
    ],
)
def test_looks_after_5_10_20_and_30_pairs(times, expected):
    head_to_head = fight(*times)
    assert found(head_to_head) == expected
    words = {"challenger_faster": "the challenger is faster: ", "not_proven": "not proven, the "}
    assert head_to_head_sentence(head_to_head).startswith(
        words.get(head_to_head.outcome, "more pairs are needed: ")
    )


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([MISSED, *ahead(3)], ("continues", 1)),
        ([MISSED, MISSED], ("not_proven", 0)),
        ([MISSED, *ahead(8, gain=1.0), MISSED], ("not_proven", 0)),
        # One miss in ten counts as the slowest run of all, here the holder's 1.0.
        ([MISSED, *ahead(9, gain=0.5, noise=0.01)], ("challenger_faster", 0)),
        ([MISSED, *ahead(9, gain=0.05)], ("continues", 10)),
        ([*ahead(10, noise=0.04), MISSED, MISSED], ("continues", 8)),
        ([MISSED, *ahead(18, gain=0.5), MISSED], ("challenger_faster", 0)),
        ([*ahead(12, gain=0.5), MISSED, MISSED, MISSED], ("not_proven", 0)),
        ([MISSED, *ahead(18), MISSED, MISSED], ("continues", 9)),
        ([MISSED, *ahead(18), MISSED, MISSED, MISSED], ("not_proven", 0)),
        ([*ahead(27, gain=0.5), MISSED, MISSED, MISSED], ("challenger_faster", 0)),
        ([*ahead(26, gain=0.5), *[MISSED] * 4], ("not_proven", 0)),
        # A holder that misses does not lose here, and its runs are the slowest.
        ([(1.0, None)] * 10, ("not_proven", 0)),
        ([*ahead(8, gain=0.5), (1.0, None), (1.0, None)], ("challenger_faster", 0)),
        ([(None, None), (1.0, 2.0)], ("continues", 3)),
    ],
)
def test_missed_run_is_the_slowest_of_all(times, expected):
    assert found(fight(*times, rule=Contest(threshold=0.001))) == expected


@pytest.mark.parametrize("pairs", [3, 6])
def test_few_pairs_take_the_larger_spread(pairs):
    """The class's 0.05 of one run: error 0.05 sqrt(2 / pairs), with its 40 degrees of freedom."""
    times = ahead(pairs, gain=0.2, noise=0.001)
    rule = Contest(pairs, 0.00083, spread=Spread(0.05, 40))
    head_to_head = fight(*times, rule=rule)
    gain = -math.log(head_to_head.time.ratio)

    assert looks_of(pairs)[-1] == pairs
    assert head_to_head.time.pairs == head_to_head.time.numbers["pairs"] == pairs
    assert head_to_head.p_value == pytest.approx(
        stats.t.sf(gain / (0.05 * math.sqrt(2 / pairs)), 40)
    )
    assert head_to_head.outcome == "challenger_faster"
    assert fight(*times, rule=replace(rule, spread=Spread(0.2, 40))).outcome == "not_proven"
    own = fight(*times, rule=replace(rule, spread=Spread(0.0001, 40)))
    assert own.p_value == fight(*times, rule=replace(rule, spread=None)).p_value
    many = fight(*ahead(10), rule=replace(rule, most_pairs=10, spread=Spread(1.0, 40)))
    assert many.outcome == "challenger_faster", "many pairs have a spread of their own"


def test_drift_of_both_sides_hides_no_difference():
    """Twice as slow at the end as at the start, and 5 % apart: pairing sees it, Welch does not."""
    drift = [1.0 + number / 9 for number in range(10)]
    times = [(0.95 * d * (1 + 0.01 * (-1) ** n), d) for n, d in enumerate(drift)]
    unpaired = stats.ttest_ind(
        *([math.log(pair[side]) for pair in times] for side in (0, 1)), equal_var=False
    )

    assert fight(*times).outcome == "challenger_faster"
    assert unpaired.pvalue > 0.5


def test_equal_program_rarely_wins():
    """At 5 % for three tests together, and with runs that miss now and then."""
    draw = random.Random(17)
    rule = Contest(threshold=0.05 / 3)
    won, each = 0, 600
    for _ in range(each):
        times = [
            tuple(None if draw.random() < 0.01 else draw.lognormvariate(0, 0.05) for _ in "AB")
            for _ in range(30)
        ]
        looks = (fight(*times[:look], rule=rule).outcome for look in looks_of(30))
        won += next(outcome for outcome in looks if outcome != "continues") == "challenger_faster"
    assert 3 < won <= 0.05 * each + 3 * math.sqrt(each * 0.05 * 0.95)


def test_ratio_of_times_is_that_of_epochs_and_paces():
    pairs = [
        Pair(1, run_of(1.0, epochs=8.0), run_of(1.5, epochs=9.0)),
        Pair(2, run_of(1.1, epochs=7.0), run_of(1.4, epochs=10.0)),
        Pair(3, run_of(0.9, epochs=8.0), run_of(1.6, epochs=11.0)),
    ]
    head_to_head = judge_head_to_head(pairs)

    assert head_to_head.epochs.ratio == pytest.approx(stats.gmean([8 / 9, 7 / 10, 8 / 11]))
    assert head_to_head.time.ratio == pytest.approx(
        head_to_head.epochs.ratio * head_to_head.pace.ratio
    )
    missed = judge_head_to_head([*pairs, Pair(4, run_of(None), run_of(1.0))])
    assert (missed.epochs, missed.time.pairs) == (head_to_head.epochs, 4)


def test_equal_readings_scatter_as_much_as_they_are_rounded():
    """Times to a millisecond, epochs to one; paces to a millisecond over the fewest epochs, 4."""
    head_to_head = judge_head_to_head(
        [Pair(n, run_of(2.0, epochs=8.0), run_of(2.0, epochs=4.0)) for n in (1, 2)]
    )

    a_step = math.sqrt(12) * math.sqrt(2)  # Of an even spread, over two pairs.
    assert head_to_head.time.error == pytest.approx(math.hypot(0.001 / 2, 0.001 / 2) / a_step)
    assert head_to_head.epochs.error == pytest.approx(math.hypot(1 / 8, 1 / 4) / a_step)
    assert head_to_head.pace.error == pytest.approx(
        math.hypot(0.00025 / 0.25, 0.00025 / 0.5) / a_step
    )


def test_pair_is_won_by_the_shorter_time():
    pairs = fight((1.0, 1.1), (1.1, 1.0), (1.0, 1.0), (1.0, None), (None, 1.0), (None, None)).pairs
    winners = ["challenger", "holder", None, "challenger", "holder", None]
    assert [pair.winner for pair in pairs] == winners


def replayed(index, *, seconds=1.0, quality=98.0, **others):
    return trained([(seconds / 2, 60.0), (seconds, quality)], index=index, **others)


def pairs_of(digits, *runs):
    return pair_runs(digits, ReplayReport(list(runs), WORKER))


def test_reports_are_read_in_the_order_of_training(digits):
    reports = [
        ReplayReport([replayed(i, seconds=seconds + i) for i in range(4)], WORKER)
        for seconds in (1.0, 5.0)
    ]
    pairs = pair_runs(digits, *reports)

    times = [(pair.challenger.seconds, pair.holder.seconds) for pair in pairs]
    assert times == [(1.0, 2.0), (4.0, 3.0), (5.0, 6.0), (8.0, 7.0)]
    assert [pair.number for pair in pairs] == [1, 2, 3, 4]
    assert [(p.challenger.seed, p.holder.run) for p in pairs[:2]] == [(100, 1), (103, 2)]
    assert pairs[0].challenger.epochs == 2.0
    with pytest.raises(RuleError, match="two runs for each pair"):
        pairs_of(digits, replayed(0))


def test_first_five_disturbed_pairs_are_trained_again(digits):
    """Other programs had over a fifth of the processor in one run of each of six pairs."""
    seconds = [0.9 + index % 2 * 0.1 for index in range(12)]
    busy = [{"processor_share": 0.79 if index % 2 else 0.95} for index in range(12)]
    runs = [replayed(i, seconds=seconds[i], **busy[i]) for i in range(12)]
    pairs = pairs_of(digits, *runs)

    assert [pair.is_void for pair in pairs] == [True] * 5 + [False]
    assert {(pair.challenger.seconds, pair.holder.epochs) for pair in pairs[:5]} == {(None, None)}
    head_to_head = judge_head_to_head(pairs)
    assert (head_to_head.outcome, head_to_head.next_pairs, head_to_head.time) == (
        "continues",
        4,
        None,
    )
    assert head_to_head_sentence(head_to_head) == "1 pair so far"
    (quiet,) = pairs_of(digits, *(replace(run, processor_share=0.81) for run in runs[:2]))
    assert not quiet.is_void
    waits = [replace(run, processor_share=None, cpu_seconds=0.7) for run in runs[:2]]
    assert pairs_of(digits, *waits)[0].is_void
    on_gpu = ReplayReport(waits, replace(WORKER, accelerator_count=1))
    assert not pair_runs(digits, on_gpu)[0].is_void, "a processor waits for its accelerator"


def test_infrastructure_may_void_five_pairs():
    void = [Pair(number, PairRun(0, 1, "void", None, None), run_of(9.0)) for number in range(6)]
    good = list(fight(*ahead(9, gain=0.5)).pairs)

    assert found(judge_head_to_head(void[:5] + good)) == ("continues", 1)
    assert judge_head_to_head(void[:1] + good).time.pairs == 9
    assert void[0].winner is None
    ended = judge_head_to_head(void + good)
    assert (ended.outcome, ended.why) == ("inconclusive", "6 pairs could not be compared")


@pytest.mark.parametrize(("epoch", "known"), [(0.5, 0.5), (0.0, None)])
def test_epochs_are_compared_where_the_log_counts_them(digits, epoch, known):
    at_target = ReplayEvaluation(epoch, 576, 0.0, 98.0, {"train": 0.0})
    first = replace(replayed(0), evaluations=[at_target], tta_seconds=0.0)
    (pair,) = pairs_of(digits, first, replayed(1))
    assert (pair.challenger.seconds, pair.challenger.epochs) == (0.001, known), "the shortest time"


def test_run_that_says_it_reached_and_did_not_is_missed(digits):
    diverged = Failure("submitter", "training_diverged", "no", "mend it")
    lost = Failure("infrastructure", "child_died", "no", "wait")
    runs = [
        replayed(0, quality=97.4),
        replayed(1, quality=97.5),
        replace(replayed(2), status="failed", failure=diverged, tta_seconds=None),
        replace(replayed(3), status="failed", failure=lost, tta_seconds=None),
    ]
    first, second = pairs_of(digits, *runs)

    assert (first.challenger.ending, first.holder.ending) == ("missed", "reached")
    assert (second.challenger.ending, second.holder.ending) == ("void", "missed")
    assert (first.winner, second.winner) == ("holder", None)


def test_reasons_tell_time_misses_pace_and_epochs():
    head_to_head = fight((1.0, None), *ahead(9, gain=0.5, noise=0.01))
    reasons = head_to_head_reasons(head_to_head, claimed_on=CLAIM.system, trained_on=WORKER)
    by_code = {reason.code: reason for reason in reasons}

    assert list(by_code) == [
        "head_to_head_time",
        "head_to_head_missed",
        "head_to_head_pace",
        "head_to_head_epochs",
    ]
    assert (by_code["head_to_head_time"].weight, by_code["head_to_head_pace"].weight) == (
        "supports",
        "note",
    )
    numbers = by_code["head_to_head_time"].numbers
    assert (numbers["challenger_won"], numbers["holder_won"]) == (10.0, 0.0)
    assert (numbers["p_value"], numbers["threshold"]) == (head_to_head.p_value, 0.01 / 12)
    assert by_code["head_to_head_missed"].message.startswith(
        "1 of the holder's 10 runs did not reach"
    )
    elsewhere = replace(CLAIM.system, hardware_class="h200-8")
    lost, *_, last = head_to_head_reasons(fight(*SLOWER), claimed_on=elsewhere, trained_on=WORKER)
    assert (lost.weight, last.code) == ("leaves_open", "hardware_differs")


def judged(benchmark, qualities, *, second_halves=None, hardware_class="cpu-x86_64"):
    """The verdict on ten pairs that the challenger wins by 10 %, with these last qualities of it.

    The holder's are at the target.
    """
    runs = []
    for index, side in enumerate(in_turn(SIDES, 10)):
        pair, is_challenger = index // 2, side == "challenger"
        seconds = (0.9 if is_challenger else 1.0) * (1 + 0.002 * (index * 7 % 5))
        quality = qualities[pair] if is_challenger else 98.0
        run = replayed(index, seconds=seconds, quality=quality)
        if second_halves is not None:
            half = second_halves[pair] if is_challenger else 97.5
            last = replace(run.evaluations[-1], second_half=half)
            run = replace(run, evaluations=[*run.evaluations[:-1], last])
        runs.append(run)
    report = ReplayReport(runs, replace(WORKER, hardware_class=hardware_class))
    return HEAD_TO_HEAD.judge(Case(benchmark, (), report, CLAIM, contest=Contest()))


NEAR = [97.3, 97.8] * 5  # Mean 97.55, s 0.264, t 0.60 with 9 degrees of freedom: p = 0.28.
BEYOND = [97.7, 98.1] * 5  # Mean 97.9, s 0.211, t 6.0: p = 0.0001.


@pytest.mark.parametrize(
    ("qualities", "outcome"), [(BEYOND, "challenger_faster"), (NEAR, "continues")]
)
def test_mean_quality_at_a_fixed_stop_is_beyond_the_target(digits, qualities, outcome):
    """The time of a run is the time to its stop, also of one below 97.5 there."""
    fixed = replace(digits, reach=replace(digits.reach, name="fixed_stop"))
    verdict = judged(fixed, qualities)
    assert (verdict.outcome, verdict.reasons[0].numbers["pairs"]) == (outcome, 10.0)


@pytest.mark.parametrize(
    ("halves", "outcome"),
    [([97.4, 97.7] * 5, "challenger_faster"), ([97.3, 97.6] * 5, "continues")],
)
def test_mean_on_the_second_half_is_at_the_target(digits, halves, outcome):
    assert judged(digits, [98.0] * 10, second_halves=halves).outcome == outcome


def test_runs_below_the_target_prove_nothing_after_the_last_pair(digits):
    fixed = replace(digits, reach=replace(digits.reach, name="fixed_stop"))
    times = ahead(10)
    pairs = [
        Pair(number, replace(run_of(a), quality=quality), run_of(b))
        for number, ((a, b), quality) in enumerate(zip(times, NEAR, strict=True), start=1)
    ]
    head_to_head = judge_head_to_head(pairs, Contest(10), fixed)
    assert (head_to_head.outcome, head_to_head.next_pairs) == ("not_proven", 0)
    sentence = (
        "not proven, the challenger's mean top-1 accuracy at its stop is not proven to be beyond"
    )
    assert head_to_head_sentence(head_to_head).startswith(sentence)


def test_on_another_class_than_the_boards_nothing_is_decided(digits):
    verdict = judged(digits, [98.0] * 10, hardware_class="h200-8")
    found = [(reason.code, reason.weight) for reason in verdict.reasons]
    assert verdict.outcome == "inconclusive"
    assert (found[0], found[-1]) == (
        ("head_to_head_time", "leaves_open"), ("hardware_differs", "leaves_open"),
    )  # fmt: skip
    assert verdict.reasons[0].message.startswith("no result, trained on h200-8: ")
