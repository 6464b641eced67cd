"""Frozen and new proofs through `finishline proof`: the sound pass, each tampered one fails.

`python -m tests.support.make_proofs` made the files. A change of the code must not change what the
command answers of them.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from server.base.signing import load_signer
from tests.support.frozen_proofs import (
    EARLIER,
    FOLDER,
    KEYS,
    answer_of,
    expected,
    tampered,
    verified_in_node,
)
from tests.support.make_proofs import Scenes
from tests.support.proofs import files_of, seal_again, take_apart
from tests.support.served import served
from tests.support.tamperings import TAMPERINGS

ROOT = Path(__file__).parents[2]
SOUND, TAMPERED = expected("sound"), expected("tampered")
# One kind each for every change. The others are made of a new proof every night.
MADE_NEW = ("verified", "code", "head-to-head")
OF_EARLIER = ("log_changed", "other_seed", "chosen_seed", "changed_quality", "dropped_attempt",
              "one_run_twice", "curve_of_the_claim", "wider_band", "better_result")  # fmt: skip
HANDFUL = ("signature_flipped", "log_changed", "part_changed", "other_seed", "better_result")


@pytest.fixture
def ask(command):
    """Runs the command: its exit code and what it prints."""

    def run(*words):
        ran = command(*words)
        return ran.code, ran.out

    return run


def failed(answer):
    return [name for name, result in answer["checks"].items() if result == "fail"]


@pytest.mark.parametrize("name", SOUND)
def test_sound_proof_passes(name, ask):
    answer = answer_of(ask, FOLDER / "sound" / name)

    assert answer == SOUND[name]
    assert (answer["exit code"], failed(answer)) == (0, [])


@pytest.fixture(scope="module")
def changed():
    """The tampered proofs by their names."""
    return tampered()


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_proof_fails_at_its_check(name, changed, ask, tmp_path):
    path = tmp_path / name
    path.write_bytes(changed[name])
    answer = answer_of(ask, path)

    if TAMPERED[name] is None:
        assert (answer["exit code"], failed(answer)) == (0, [])
    else:
        assert answer["exit code"] == 1
        assert TAMPERED[name] in failed(answer), answer


def test_verdict_of_earlier_rules_is_open(ask):
    path, key = EARLIER / "own-seeds.zip", EARLIER / "keys.json"
    answer = answer_of(ask, path, key)
    others = {name for name, result in answer["checks"].items() if result != "pass"}
    _, told = ask("proof", path, "--key", key)

    assert (answer["exit code"], answer["checks"]["verdict"], others) == (0, "open", {"verdict"})
    assert "judged by the rules of 0.3.0.dev0" in " ".join(told.split())


def with_own_runs(count):
    """Seals another number of own seeds, as only the server can."""

    def tampering(proof):
        proof.document["draw"]["own_runs"] = count
        seal_again(proof.document)
        proof.sign()
        return proof.pack()

    return tampering


@pytest.mark.parametrize(
    ("check", "tampering"),
    [
        *((TAMPERINGS[name][0], TAMPERINGS[name][2]) for name in OF_EARLIER),
        ("seeds", with_own_runs(0)),
        ("seeds", with_own_runs(1)),
        ("seeds", with_own_runs(9)),
    ],
)
def test_tampered_proof_of_earlier_rules_fails(check, tampering, ask, tmp_path):
    key, path = tmp_path / "key.pem", tmp_path / "proof.zip"
    proof = take_apart((EARLIER / "own-seeds.zip").read_bytes(), signing_key=key)
    path.write_bytes(tampering(proof))
    (tmp_path / "key").write_text(load_signer(key).public_key)

    assert check in failed(answer_of(ask, path, tmp_path / "key"))


@pytest.fixture
def signed_again(ask, tmp_path):
    """Changes the frozen proof of a replay, signs it with another key, and asks the command."""

    def change(edit):
        key = tmp_path / "key.pem"
        proof = take_apart((FOLDER / "sound" / "verified.zip").read_bytes(), signing_key=key)
        edit(proof)
        proof.sign()
        (tmp_path / "proof.zip").write_bytes(proof.pack())
        (tmp_path / "key").write_text(load_signer(key).public_key)
        return ask("proof", tmp_path / "proof.zip", "--key", tmp_path / "key")

    return change


def other_than(value):
    """Another value of the same kind, by as little as a published number could be bettered."""
    if value is None or isinstance(value, str):
        return "fp32"
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * (1 - 1e-8) - 1e-12


def figures_of(submission):
    """The places of all figures of a submission that its logs tell."""
    # Violations and convergence are tables. The steps, the interval and the words for the time
    # explain other figures.
    left_out = {"violations", "steps", "rcp"}
    left_out |= {"tta_display", "tta_low_seconds", "tta_high_seconds"}
    yield from (("result", name) for name in set(submission["result"]) - left_out)
    of_run = set(submission["runs"][1]) - {"convergence", "evaluation_interval_seconds"}
    yield from (("runs", 1, name) for name in of_run)
    yield from (("claim", name) for name in ("model", "framework", "precision"))
    texts = submission["claim"]["system"].keys() - {"cloud", "pricing"}
    yield from (("claim", "system", name) for name in texts)
    yield ("claim", "hyperparameters", "batch_size")
    yield from (("curves", 2, 3, column) for column in range(4))


def test_every_figure_of_a_result_is_scored_again(signed_again):
    submission = predicate_of("verified.zip")["submission"]
    paths = list(figures_of(submission))
    assert len(paths) > 30
    for path in paths:

        def edit(proof, path=path):
            place = proof.document["submission"]
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = other_than(place[path[-1]])

        code, told = signed_again(edit)
        assert (code, bool(re.search("rely on this: .*score", told))) == (1, True), (path, told)


def test_figures_that_differ_in_the_last_digits_are_equal(signed_again):
    def slower(factor):
        def edit(proof):
            proof.document["submission"]["result"]["tta_seconds"] *= factor

        return edit

    assert signed_again(slower(1 + 5e-10))[0] == 0
    assert signed_again(slower(1 + 2e-9))[0] == 1


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["submission"]["curves"][0][0][4].update(unknown_phase=1.0),
        lambda d: d["submission"]["curves"].pop(),
        lambda d: d["report"]["runs"][0]["evaluations"][0].update(quality=1e200),
        lambda d: d["draw"].update(nonce="x"),
        lambda d: d["draw"].update(own_runs=10**6, seeds=[]),
        lambda d: d["submission"]["result"].update(violations=[7]),
    ],
)
def test_impossible_values_that_the_server_signed_fail_a_check(edit, signed_again):
    code, told = signed_again(lambda proof: edit(proof.document))
    assert (code, "Do not rely on this" in told) == (1, True)


def keys_in(path):
    return json.loads(path.read_text())["keys"]


def predicate_of(name):
    """The document in a sound proof."""
    return take_apart((FOLDER / "sound" / name).read_bytes(), signing_key=None).document


def test_page_lists_every_check_and_part(ask):
    _, told = ask("proof", FOLDER / "sound" / "verified.zip", "--key", KEYS, "--json")
    page = (ROOT / "docs" / "verifying.md").read_text()
    rows = re.findall(r"^\| `?([a-z]+)`? \|", page, re.MULTILINE)
    parts = rows.index("part")

    assert rows[1:parts] == [check["name"] for check in json.loads(told)["checks"]]
    assert {*rows[parts + 1 :], "format"} == set(predicate_of("verified.zip"))


def test_envelope_alone_leaves_the_logs_open(ask, tmp_path):
    path = tmp_path / "proof.dsse.json"
    path.write_bytes(files_of((FOLDER / "sound" / "verified.zip").read_bytes())[path.name])
    answer = answer_of(ask, path)

    opened = {name for name, result in answer["checks"].items() if result == "open"}
    assert (answer["exit code"], opened) == (0, {"logs", "score", "subjects"})


def test_key_is_hex_or_a_list_and_another_is_not_trusted(ask, tmp_path):
    (public,) = (key["public_key"] for key in keys_in(KEYS))
    listed = json.dumps({"keys": [{"public_key": "ab" * 32}, {"public_key": public}]})
    key = tmp_path / "key"
    for text, fails in (
        (f"{public}\n", []),
        (f"\n{listed}", []),
        ("ab" * 32, ["signature", "signer"]),
    ):
        key.write_text(text)
        assert failed(answer_of(ask, FOLDER / "sound" / "verified.zip", key)) == fails


def test_failure_names_the_file_or_the_version_that_judged(ask, changed, tmp_path):
    def told(name):
        path = tmp_path / name
        path.write_bytes(changed[name])
        _, words = ask("proof", path, "--key", KEYS)
        return " ".join(words.split())

    document = predicate_of("verified.zip")
    assert document["submission"]["logs"][0]["file"] in told("log_of_another_size.zip")
    judged = f"reached by Finishline {document['code']['version']}"
    assert judged in told("other_number.zip")
    assert judged not in told("other_seed.zip")


def test_frozen_proofs_are_of_every_kind_and_small():
    verdicts = {answer["verdict"] for answer in SOUND.values()}
    files = [path for path in FOLDER.rglob("*") if path.is_file()]

    assert {"verified", "rejected", "inconclusive", "continues", "None"} <= verdicts
    made_to_fail = set(TAMPERED.values()) - {None}
    checks = {name for answer in SOUND.values() for name in answer["checks"]}
    assert made_to_fail == checks, "each check has a tampering that it must find"
    assert sum(path.stat().st_size for path in files) < 400_000


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A new proof of each kind that a tampering changes, by name, and the folder of its server."""
    folder = tmp_path_factory.mktemp("served")
    with served(folder) as (client, secret):
        scenes = Scenes(client, secret)
        scenes.replay("verified")
        scenes.pair()
        proofs = {}
        for name, verification_id in scenes.ended.items():
            answer = client.get(f"/api/v1/verifications/{verification_id}/proof")
            assert answer.status_code == 200, answer.text
            proofs[name] = answer.content
        (folder / "keys.json").write_bytes(client.get("/api/v1/keys").content)
        yield SimpleNamespace(proofs=proofs, folder=folder, key=folder / "keys.json")


def test_new_proofs_pass(live, ask):
    for name, content in live.proofs.items():
        path = live.folder / f"{name}.zip"
        path.write_bytes(content)
        answer = answer_of(ask, path, live.key)
        assert (answer["exit code"], set(answer["checks"].values())) == (0, {"pass"}), answer


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in HANDFUL else pytest.mark.nightly)
        for name, (_, of, _) in TAMPERINGS.items()
        if of in MADE_NEW
    ],
)
def test_tampering_of_a_new_proof_is_found(name, live, ask, tmp_path):
    check, of, tampering = TAMPERINGS[name]
    key = live.folder / "signing-key.pem"
    path = tmp_path / "proof.zip"
    path.write_bytes(tampering(take_apart(live.proofs[of], signing_key=key)))

    found = failed(answer_of(ask, path, live.key))
    assert found == [] if check is None else check in found


@pytest.mark.nightly
def test_verifier_in_node_finds_the_same(changed, tmp_path):
    """It makes no check that needs the rules. All others end as the command's."""
    proofs = {f"sound-{name}": (FOLDER / "sound" / name).read_bytes() for name in SOUND}
    proofs["earlier.zip"] = (EARLIER / "own-seeds.zip").read_bytes()
    keys = [*keys_in(KEYS), *keys_in(EARLIER / "keys.json")]
    answers = verified_in_node(proofs | changed, {"keys": keys}, tmp_path)
    made = {name: {c["name"]: c["ok"] for c in each["checks"]} for name, each in answers.items()}
    for name in SOUND:
        assert answers[f"sound-{name}"]["ok"], (name, made[f"sound-{name}"])
    assert answers["earlier.zip"]["ok"], made["earlier.zip"]
    known = set(made["sound-verified.zip"])
    assert len(known) == 11
    for name, check in TAMPERED.items():
        if name in ("waivers_of_another_type.zip", "claim_without_code.zip"):
            continue  # The page checks no types.
        if check in known:
            assert not answers[name]["ok"], (name, made[name])
            assert made[name][check] is False, (name, made[name])
        else:
            assert check is not None or answers[name]["ok"], (name, made[name])
