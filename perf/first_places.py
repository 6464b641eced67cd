"""Simulate head-to-heads and comparisons: wrong answers, gains that are found, and pairs.

`python -m perf.statistics` prints these figures. Times are lognormal with a variation of 5 %, and
the runs of a head-to-head follow each other as A B B A. `judge_all` is `judge_head_to_head` for
many head-to-heads at once, and a test compares the two.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.statistics.paired import (
    Comparison,
    compare_pairs,
    compare_schedule,
    most_missed,
)
from finishline.rules.verification.head_to_head import (
    FEWEST_FOR_OWN_SPREAD,
    FEWEST_TESTED,
    SIDES,
    looks_of,
    threshold,
)
from finishline.rules.verification.job import in_turn
from perf.harness import Bars

SEED = 20_270
VARIATION = 0.05
SIGMA = math.sqrt(math.log(1 + VARIATION**2))
PAIRS = 30
BURST, BURST_RUNS, BURST_CHANCE = 1.3, 5, 0.04  # A burst begins at one run in 25.
STEPS = 8
FEW_PAIRS = (3, 6)
SLOW_SHARE, SLOW, FAST = 0.1, 1.45, 0.95  # On average as long as the holder's.
QUALITY, QUALITY_SPREAD = 91.3, 0.3  # Of one run, in points. Its steps are 100 / items.
CLASS_FREEDOM = 60  # Many runs of a class: its spread is known well.
FALSE_BAR = 1.1
DIFFERENT_BAR, FOUND_BAR = 2.0, 90.0
COMPARED_PAIRS = 10

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Noise:
    """How times are disturbed: by bursts, evaluations once per epoch, or the challenger.

    With an `item` there are qualities in such steps, which scatter by QUALITY_SPREAD.
    """

    name: str = ""
    is_bursty: bool = False
    scatter: float = 1.0  # The challenger's log times, over the log times of its class.
    rounds: Callable[[Numbers], Numbers] | None = None
    item: float | None = None


PLAIN = Noise()
NOISES = (
    PLAIN,
    Noise(", bursts", is_bursty=True),
    Noise(", 8 steps", rounds=np.rint),
    Noise(", 8 or 9 steps", rounds=np.ceil),
    Noise(", scatters twice as much", scatter=2.0),
)
QUALITIES = (
    Noise(", qualities of 10,000 items", item=0.01),
    Noise(", qualities, an item as wide as the spread", item=QUALITY_SPREAD),
    Noise(", qualities, an item ten times as wide", item=10 * QUALITY_SPREAD),
)


def hold_first_places(bars: Bars, trials: int) -> None:
    """Print the figures of head-to-heads, and compare them with their bars."""
    for noise in (*NOISES, *QUALITIES):
        for name, percent in false_first_places(trials=trials, noise=noise).items():
            bars.hold(f"{name}{noise.name}: wrong first", percent, " %", at_most=FALSE_BAR)
    for what, place, nth in (("first", 1, 1), ("after a rival's 20", 2, 1), ("third try", 1, 3)):
        for gain, bar in ((5, None), (10, 99.0), (20, 99.0)):
            tried = try_once(gain / 100, trials=trials, limit=threshold(place=place, tries=nth))
            _say(bars, f"{gain} % faster, {what}", *tried, at_least=bar)
    for share in (0.5, 1.0, 2.0):
        tried = try_once(share * QUALITY_SPREAD, trials=trials, noise=QUALITIES[0])
        _say(bars, f"quality better by {share:g} of its spread", *tried)
    for gain in (0, -5):
        _say(bars, f"{gain} % faster", *try_once(gain / 100, trials=trials))
    for missed in (5, 10, 20):
        tried = try_once(0.1, trials=trials, misses=missed / 100)
        _say(bars, f"10 % faster, misses {missed} %", *tried)
    _say(bars, "one run in ten slow, equal mean", *try_once(0.0, trials=trials, is_gamble=True))
    for pairs in FEW_PAIRS:
        for noise in NOISES:
            percent = max(false_first_places(trials=trials, noise=noise, most_pairs=pairs).values())
            name = f"{pairs} pairs{noise.name}: wrong first, the worst of five"
            # With few pairs the spread of the class is taken on trust.
            bars.hold(name, percent, " %", at_most=FALSE_BAR if noise.scatter == 1 else None)
        for gain in (10, 20, 30):
            tried = try_once(gain / 100, trials=trials, most_pairs=pairs)
            _say(bars, f"{pairs} pairs, {gain} % faster", *tried)


def hold_comparisons(bars: Bars, trials: int) -> None:
    """Compare how often `finishline compare` is wrong and which gains it finds with the bars."""
    for gain, most_pairs in ((0, None), (5, None), (10, 8), (20, 6)):
        found = compare_programs(gain / 100, trials=trials)
        name = f"compare, {gain} % faster"
        decided = 100 * sum(each.faster is not None for each in found) / trials
        faster = 100 * sum(each.faster == "b" for each in found) / trials
        if gain == 0:
            bars.hold("compare, equal programs: different", decided, " %", at_most=DIFFERENT_BAR)
            continue
        bar = None if most_pairs is None else FOUND_BAR
        bars.hold(f"{name}: found", faster, " %", at_least=bar)
        pairs = float(np.median([each.pairs for each in found]))
        bars.hold(f"{name}: pairs, median", pairs, at_most=most_pairs)


def compare_programs(gain: float, *, trials: int) -> list[Comparison]:
    """Compare a program with one that is faster by a share of its time."""
    random = np.random.default_rng([SEED, 2, round(100 * gain)])
    schedule = compare_schedule(COMPARED_PAIRS)
    times = np.exp(random.normal(0, SIGMA, (trials, COMPARED_PAIRS, 2))) * (1, 1 - gain)
    found = []
    for runs in times.tolist():
        for count in range(2, COMPARED_PAIRS + 1):
            compared = compare_pairs(runs[:count], schedule)
            if compared.is_over:
                break
        found.append(compared)
    return found


def _say(
    bars: Bars, name: str, won: Flags, pairs: Counts, *, at_least: float | None = None
) -> None:
    bars.hold(f"{name}: first place", 100 * float(won.mean()), " %", at_least=at_least)
    bars.hold(f"{name}: pairs", float(pairs.mean()))


def false_first_places(
    *, trials: int, noise: Noise = PLAIN, most_pairs: int = PAIRS
) -> dict[str, float]:
    """Return the percent of holders replaced by an equally fast program, by tries and accounts."""
    found = {}
    for accounts, tries, asked in ((1, 50, (1, 20, 50)), (20, 1, (20,)), (5, 20, (100,))):
        random = np.random.default_rng([SEED, accounts, most_pairs])
        replaced = np.zeros(trials, dtype=bool)
        for number in range(accounts * tries):
            left = np.flatnonzero(~replaced)
            limit = threshold(place=number // tries + 1, tries=number % tries + 1)
            times = draw(random, len(left), most_pairs, noise=noise)
            spread = class_spread(random, len(left), noise)
            replaced[left] = judge_all(
                *times, limit, most_pairs=most_pairs, spread=spread, item=noise.item
            )[0]
            if number + 1 in asked:
                name = f"{accounts} x {(number + 1) // accounts} tries"
                found[name] = 100 * float(replaced.mean())
    return found


def class_spread(random: np.random.Generator, trials: int, noise: Noise = PLAIN) -> Numbers:
    """Return the spread of a run's log time, as many runs of the class tell it."""
    holder = draw(random, 1000, noise=noise)[1]
    sigma = (np.log(holder) if noise.item is None else holder).std()
    drawn: Numbers = sigma * np.sqrt(random.chisquare(CLASS_FREEDOM, trials) / CLASS_FREEDOM)
    return drawn


def draw(
    random: np.random.Generator,
    trials: int,
    pairs: int = PAIRS,
    *,
    gain: float = 0.0,
    noise: Noise = PLAIN,
) -> tuple[Numbers, Numbers]:
    """Draw times of challenger and holder, (trials, pairs) each. Qualities are negative numbers."""
    runs = np.exp(random.normal(0, SIGMA, (trials, 2 * pairs)))
    # The server plans the pairs up to each look anew.
    stages = np.diff((0, *looks_of(pairs)))
    order = [side for stage in stages for side in in_turn(SIDES, int(stage))]
    is_challenger = np.array([side == "challenger" for side in order])
    if noise.item is not None:
        qualities = QUALITY + QUALITY_SPREAD / SIGMA * np.log(runs) + gain * is_challenger
        runs = -noise.item * np.rint(qualities / noise.item)
        return runs[:, is_challenger], runs[:, ~is_challenger]
    runs[:, is_challenger] = (1 - gain) * runs[:, is_challenger] ** noise.scatter
    if noise.is_bursty:
        begins = random.random((trials, 2 * pairs + BURST_RUNS - 1)) < BURST_CHANCE
        windows = np.lib.stride_tricks.sliding_window_view(begins, BURST_RUNS, axis=1)
        runs[windows.any(axis=2)] *= BURST
    if noise.rounds is not None:
        runs = noise.rounds(STEPS * runs) / STEPS
    return runs[:, is_challenger], runs[:, ~is_challenger]


def judge_all(
    challenger: Numbers,
    holder: Numbers,
    limit: float,
    *,
    most_pairs: int = PAIRS,
    spread: Numbers | None = None,
    item: float | None = None,
) -> tuple[Flags, Counts]:
    """Return which challengers win, and after how many pairs each head-to-head ends.

    A run that misses the target is infinite. `spread` is the class's, for few pairs only. With an
    `item` the figures are negative qualities.
    """
    won, pairs = np.zeros(len(challenger), dtype=bool), np.zeros(len(challenger), dtype=np.int64)
    going = np.arange(len(challenger))
    for look in looks_of(most_pairs):
        sides = np.stack([challenger[going, :look], holder[going, :look]])
        missed = np.isinf(sides)
        slowest = np.where(missed, -np.inf, sides).max(axis=(0, 2))
        filled = np.where(missed, slowest[:, None], sides)
        logs = np.log(filled) if item is None else filled
        differences = logs[0] - logs[1]
        ratio = differences.mean(axis=1)
        if item is None:
            steps = SHORTEST_SECONDS / np.exp(logs.mean(axis=2))
            rounding = np.hypot(*steps) / math.sqrt(12)
        else:
            rounding = np.full(len(going), item)
        error = np.maximum(differences.std(axis=1, ddof=1), rounding) / math.sqrt(look)
        freedom = np.full(len(going), look - 1.0)
        if spread is not None and most_pairs < FEWEST_FOR_OWN_SPREAD:
            of_class = spread[going] * math.sqrt(2 / look)
            freedom = np.where(of_class > error, CLASS_FREEDOM, freedom)
            error = np.maximum(error, of_class)
        lost = (missed[0].sum(axis=1) > most_missed(look)) | (ratio >= 0)
        is_tested = look >= min(FEWEST_TESTED, most_pairs)
        wins = ~lost & is_tested & (stdtr(freedom, ratio / error) < limit)
        won[going], pairs[going] = wins, look
        going = going[~lost & ~wins]
    return won, pairs


def try_once(
    gain: float,
    *,
    trials: int,
    limit: float = threshold(place=1, tries=1),
    misses: float = 0.0,
    is_gamble: bool = False,
    most_pairs: int = PAIRS,
    noise: Noise = PLAIN,
) -> tuple[Flags, Counts]:
    """Simulate head-to-heads of a program that beats the holder by `gain`."""
    random = np.random.default_rng([SEED, 1, round(1000 + 100 * gain), most_pairs])
    challenger, holder = draw(random, trials, most_pairs, gain=gain, noise=noise)
    drawn = random.random(challenger.shape)
    challenger[drawn < misses] = math.inf
    if is_gamble:
        challenger *= np.where(drawn < SLOW_SHARE, SLOW, FAST)
    spread = class_spread(random, trials, noise)
    return judge_all(
        challenger, holder, limit, most_pairs=most_pairs, spread=spread, item=noise.item
    )
