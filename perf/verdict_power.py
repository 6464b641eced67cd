"""Simulate the gain of cheats and luck in the ranked time, and how often honest claims fail.

`python -m perf.verdict_power [--trials 10000] [--processes 2]` hands simulated claims and their
replays to the judge that the server uses, ranks verified claims by the rules that rank, and prints
tables in Markdown. Seeds are fixed. Exits with 1 where a bar is missed:

* every way to claim gains 1.00 times in the ranked time;
* luck gains 1.00 times in the first three, and less than the printed interval below;
* the best of 2, 5 and 20 equal configurations gains 1.02, 1.03 and 1.05 times;
* of honest claims at most 0.1 % are rejected and at most 1 % are not measured;
* a claimed figure, which never ranks, hides at most 1.03 times by forging, and by the best of 20
  sets 1.07, 1.05 and 1.03 times in 3, 5 and 10 runs;
* an equal package wins the challenge of a record in 1 %, one that is 20 % faster in 95 %.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from perf import verdict_stops as stops
from perf.verdict_claims import CONVERGENCE, OWN_SEED, Outcomes, Strategy, simulate
from perf.verdict_duels import GAINS, challenges
from perf.verdict_luck import Gain, claim_gains, gains

HONEST = (
    *(Strategy("honest", runs) for runs in (3, 5, 10)),
    Strategy("honest, other software", 3, again=0.14),
)
CHEATS = (
    Strategy("every time multiplied by 0.08", pace=0.08),
    Strategy("half the seconds per epoch", pace=0.5),
    Strategy("logs rewritten to 10 % fewer epochs", 3, forged=3, speed=0.9),
    Strategy("one log of three rewritten to half the epochs", 3, forged=1, speed=0.5),
    Strategy("two logs of ten rewritten to half the epochs", 10, forged=2, speed=0.5),
    Strategy("best 3 of 20 trainings", 3, started=20),
    Strategy("best 5 of 20 trainings", 5, started=20),
)
FORGED = tuple(
    Strategy(f"{forged} of {runs} logs rewritten", runs, forged=forged, speed=speed)
    for (runs, forged), speed in product(((3, 1), (5, 1), (10, 1), (10, 2)), (0.95, 0.9, 0.8, 0.5))
)
REJECTED_BAR, NOT_MEASURED_BAR, CLAIM_BAR = 0.001, 0.01, 1.005
FORGED_BAR, LUCK_BARS = 1.035, {3: 1.075, 5: 1.055, 10: 1.035}
WORTH_A_TRY = 0.5  # A strategy that passes less often than this is no way to the board.

Write = Callable[[str], object]


def ratio(honest: Outcomes, found: Outcomes) -> float | None:
    """Mean ranked time of honest rows over that of a strategy; None where none is numbered."""
    return float(np.mean(honest.ranked) / np.mean(found.ranked)) if found.ranked else None


def show_claims(rows: Sequence[Outcomes], honest: dict[int, Outcomes], write: Write) -> bool:
    """The table of claims; whether every bar is met."""
    write("| claim | runs | rejected | left open | by convergence | by own seed | ranked time |")
    write("|---|---|---|---|---|---|---|")
    met = True
    for row in rows:
        found = ratio(honest[row.strategy.runs], row)
        by = [sum(row.share(code) for code in codes) for codes in (CONVERGENCE, OWN_SEED)]
        write(
            f"| {row.strategy.name} | {row.strategy.runs} | {row.share('rejected'):.2%} "
            f"| {row.share('inconclusive'):.2%} | {by[0]:.2%} | {by[1]:.2%} "
            f"| {'never numbered' if found is None else f'{found:.3f}×'} |"
        )
        met = met and (found is None or found <= CLAIM_BAR)
        if row.strategy in HONEST:
            open_or_rejected = row.share("rejected") + row.share("inconclusive")
            met = met and row.share("rejected") <= REJECTED_BAR
            met = met and open_or_rejected <= NOT_MEASURED_BAR
    return met


def show_luck(rows: Iterable[Gain], write: Write) -> bool:
    """The table of luck; whether every bar is met."""
    write(
        "\n| luck, at a variation of 8 % | below the first three | printed interval | first three |"
    )
    write("|---|---|---|---|")
    met = True
    for row in rows:
        half = "" if row.half_interval is None else f"± {row.half_interval:.1%}"
        below = "" if row.half_interval is None else f"{row.below:.3f}×"
        write(f"| {row.name} | {below} | {half} | {row.first_three:.3f}× |")
        met = met and row.first_three <= row.bar
        met = met and (row.half_interval is None or 1 - 1 / row.below <= row.half_interval)
    return met


def show_hidden(
    forged: Iterable[Outcomes], honest: dict[int, Outcomes], trials: int, write: Write
) -> bool:
    """Print how much a claimed figure, which never ranks, may hide; return whether bars are met."""
    write("\n| claimed epochs, which do not rank | runs | at most |")
    write("|---|---|---|")
    met = True
    best: dict[int, float] = {}
    for row in forged:
        runs = row.strategy.runs
        passes = row.share("verified") >= WORTH_A_TRY
        gain = float(np.mean(honest[runs].claimed) / np.mean(row.claimed)) if passes else 1.0
        best[runs] = max(best.get(runs, 1.0), gain)
    for runs, gain in best.items():
        write(f"| forged, verified at least half of the time | {runs} | {gain:.3f}× |")
        met = met and gain <= FORGED_BAR
    for runs, gain in claim_gains(trials).items():
        write(f"| the best of 20 honest sets | {runs} | {gain:.3f}× |")
        met = met and gain <= LUCK_BARS[runs]
    return met


def show_stops(trials: int, write: Write) -> bool:
    """Claims of runs that stop at one step; whether every bar is met."""
    write("\n| fixed stop | refused at the door | rejected | left open |")
    write("|---|---|---|---|")
    met = True
    for name, better in (("honest", 0.0), ("mean 4 deviations too good", 4.0)):
        counts = stops.simulate(trials=trials, better=better)
        shares = [counts[word] / trials for word in ("refused", "rejected", "inconclusive")]
        write(f"| {name} | " + " | ".join(f"{share:.2%}" for share in shares) + " |")
        if not better:
            met = met and shares[1] <= REJECTED_BAR and shares[2] <= NOT_MEASURED_BAR
    return met


def show_challenges(trials: int, write: Write) -> bool:
    """Print how often the challenge of a record is won; return whether bars are met."""
    rows = challenges(trials)
    faster = " | ".join(f"{gain:.0%} faster" if gain else "equal" for gain in GAINS)
    write(f"\n| challenge won, of {trials:,} | host slows by | {faster} |")
    write("|---|---|" + "---|" * len(GAINS))
    for row in rows:
        if row.gain == GAINS[0]:
            same = [one for one in rows if (one.variation, one.drift) == (row.variation, row.drift)]
            shares = " | ".join(f"{one.share:.1%}" for one in same)
            write(f"| variation of {row.variation:.0%} | {row.drift:.0%} | {shares} |")
    return all(row.is_met for row in rows)


def _simulated(job: tuple[Strategy, int]) -> Outcomes:
    return simulate(job[0], trials=job[1])


def _trials(strategy: Strategy, chosen: argparse.Namespace) -> int:
    """Fewer for the many ways to forge: the best of them matters, to a percent."""
    return int(chosen.trials) // (5 if strategy in FORGED else 1)


def main(arguments: Sequence[str] | None = None, write: Write = print) -> int:
    """Measure and print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m perf.verdict_power")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args(arguments)
    strategies = [*HONEST, *CHEATS, *FORGED]
    with ProcessPoolExecutor(chosen.processes) as pool:
        rows = list(pool.map(_simulated, [(each, _trials(each, chosen)) for each in strategies]))
    honest = {row.strategy.runs: row for row in rows[: len(HONEST) - 1]}
    shown = len(HONEST) + len(CHEATS)
    met = (
        show_claims(rows[:shown], honest, write),
        show_luck(gains(chosen.trials), write),
        show_hidden(rows[shown:], honest, chosen.trials, write),
        show_stops(chosen.trials // 10, write),
        show_challenges(chosen.trials, write),
    )
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
