"""Each cheat of docs/cheats.md meets on a real server what the page says of it."""

import re
from pathlib import Path

import pytest

from tests.server.cheats.claims import CLAIMS
from tests.server.cheats.others import OTHERS
from tests.server.cheats.proven import PROVEN
from tests.server.cheats.scene import Scene

ROOT = Path(__file__).parents[2]
RUN = CLAIMS | OTHERS
ROW = re.compile(r"^\| (C\d\d) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
OUTCOME = re.compile(
    r"refused \((401|403|404|409|422|429|exit code 1)\)"
    r"|unranked|ranked at our time|ends the attempt"
)


LINES = ROW.findall((ROOT / "docs" / "cheats.md").read_text(encoding="utf-8"))
OUTCOMES = {cheat_id: outcome for cheat_id, _, outcome, _ in LINES}
HOW = {cheat_id: how for cheat_id, *_, how in LINES}


@pytest.fixture
def scene(database, digits, digits_submission, make_person, row_counts, request):
    people = [request.getfixturevalue(name) for name in ("alice", "bob", "olivia", "ada", "walter")]
    return Scene(database, digits, digits_submission, make_person, row_counts, *people)


def test_the_page_and_the_tests_have_the_same_cheats():
    assert len(OUTCOMES) == len(LINES) >= 40
    assert set(OUTCOMES) == RUN.keys() | PROVEN.keys()
    assert not RUN.keys() & PROVEN.keys()
    assert len(RUN) >= 25
    assert [each for each, outcome in OUTCOMES.items() if not OUTCOME.fullmatch(outcome)] == []


@pytest.mark.parametrize("cheat_id", RUN)
def test_a_cheat_meets_what_the_page_says(cheat_id, scene):
    met = RUN[cheat_id](scene)

    assert met.outcome == OUTCOMES[cheat_id]
    assert [words for words in re.findall(r"`(.+?)`", HOW[cheat_id]) if words not in met.said] == []


@pytest.mark.parametrize("cheat_id", PROVEN)
def test_a_cheat_that_another_file_proves_is_there(cheat_id):
    file, test = PROVEN[cheat_id].split("::")
    name, _, case = test.removesuffix("]").partition("[")
    text = (ROOT / file).read_text(encoding="utf-8")

    assert f"def {name}(" in text
    assert case in text


@pytest.mark.parametrize(
    ("claim", "seconds_per_epoch"),
    [
        ({}, 0.11),
        ({"division": "open"}, 0.11),
        ({"framework": "jax 0.8.0"}, 0.11),
        ({}, 0.22),
        ({}, 0.055),
    ],
    ids=["closed", "open", "other software", "slow worker", "fast worker"],
)
def test_an_honest_claim_is_measured_and_numbered(claim, seconds_per_epoch, scene):
    parts = scene.parts(division=claim.get("division", "closed"))
    sent = scene.stored(scene.claims(parts, **claim))
    replay, seconds = scene.trained(sent, seconds_per_epoch=seconds_per_epoch)

    assert replay.status() == "verified"
    assert scene.ranked_at_our_time(sent, seconds).outcome == "ranked at our time"
    assert scene.entry(sent)["rank"] == 1
