"""Each cheat of docs/cheats.md meets on a real server what the page says of it."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.server.cheats.claims import CLAIMS
from tests.server.cheats.others import OTHERS
from tests.server.cheats.proven import PROVEN
from tests.server.cheats.scene import Scene

ROOT = Path(__file__).parents[2]
RUN = CLAIMS | OTHERS
FEWEST_CHEATS, FEWEST_RUN = 40, 25
ROW = re.compile(r"^\| (C\d\d) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
OUTCOME = re.compile(
    r"refused \((401|403|404|409|422|429|exit code 1)\)"
    r"|unranked|ranked at our time|ends the attempt"
)


@dataclass(frozen=True)
class Line:
    """A cheat as the page tells it."""

    outcome: str
    how: str


def lines_of_the_page():
    """The lines of all its tables by id."""
    found = ROW.findall((ROOT / "docs" / "cheats.md").read_text(encoding="utf-8"))
    assert len({cheat_id for cheat_id, *_ in found}) == len(found)
    return {cheat_id: Line(outcome, how) for cheat_id, _, outcome, how in found}


LINES = lines_of_the_page()


@pytest.fixture
def scene(
    client,
    database,
    digits,
    digits_submission,
    make_person,
    row_counts,
    alice,
    bob,
    olivia,
    ada,
    walter,
):
    """A server with everybody on it."""
    return Scene(
        client, database, digits, digits_submission, make_person, row_counts,
        alice, bob, olivia, ada, walter,
    )  # fmt: skip


def test_the_page_and_the_tests_have_the_same_cheats():
    assert set(LINES) == RUN.keys() | PROVEN.keys()
    assert not RUN.keys() & PROVEN.keys()
    assert len(LINES) >= FEWEST_CHEATS
    assert len(RUN) >= FEWEST_RUN
    assert [each for each, line in LINES.items() if not OUTCOME.fullmatch(line.outcome)] == []


@pytest.mark.parametrize("cheat_id", RUN)
def test_a_cheat_meets_what_the_page_says(cheat_id, scene):
    met, line = RUN[cheat_id](scene), LINES[cheat_id]

    assert met.outcome == line.outcome
    assert [words for words in re.findall(r"`(.+?)`", line.how) if words not in met.said] == []


@pytest.mark.parametrize("cheat_id", PROVEN)
def test_a_cheat_that_another_file_proves_is_there(cheat_id):
    file, test = PROVEN[cheat_id].split("::")
    name, _, case = test.removesuffix("]").partition("[")
    text = (ROOT / file).read_text(encoding="utf-8")

    assert f"def {name}(" in text
    assert case in text


def in_the_open_division(scene):
    return scene.claims(scene.parts(division="open"), division="open")


def with_other_software(scene):
    return scene.claims(scene.parts(), framework="jax 0.8.0")


@pytest.mark.parametrize(
    ("make", "seconds_per_epoch"),
    [
        (Scene.parts, 0.11),
        (in_the_open_division, 0.11),
        (with_other_software, 0.11),
        (Scene.parts, 0.22),  # On a worker half as fast.
        (Scene.parts, 0.055),  # And on one twice as fast.
    ],
    ids=["closed", "open", "other software", "slow worker", "fast worker"],
)
def test_an_honest_claim_is_measured_and_numbered(make, seconds_per_epoch, scene):
    sent = scene.stored(make(scene))
    replay, seconds = scene.trained(sent, seconds_per_epoch=seconds_per_epoch)

    assert replay.status() == "verified"
    assert scene.ranked_at_our_time(sent, seconds).outcome == "ranked at our time"
    assert scene.entry(sent)["rank"] == 1
