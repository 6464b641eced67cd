"""The source of a package is its submitter's and the organisers' until its first verdict."""

from server.operations.export import export_everything
from tests.server.test_console import Console
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    MANIFEST,
    TRAIN,
    Entries,
    entries,
)
from tests.server.test_lineage import child_of
from tests.support.every_address import NAMES, addresses, ask, text_of
from tests.support.services import services_of

# Nothing else has it: in a factor, in a file and in what the runs wrote.
WORD = "xylopyrography"
SECRET = FILES | {
    "training.toml": MANIFEST.replace("Random features instead of a linear", WORD).encode(),
    "train.py": f"{TRAIN}# {WORD}\n".encode(),
}
UNTIL = "until its first verdict"


def verify(client, entry_id, person, kind):
    """Ask for runs of an entry."""
    path = f"/api/v1/submissions/{entry_id}/verifications"
    return client.post(path, json={"kind": kind}, headers=person.headers)


def test_no_address_shows_a_source_before_its_verdict(
    entries, alice, bob, olivia, client, tmp_path
):
    public = entries.hand_in(alice).json()
    entries.measure(public["id"])
    entry = entries.hand_in(alice, child_of(public["package"]["sha256"]) | SECRET).json()
    entries.measure(entry["id"], failed="entry_died", log=f"  x = {WORD}")
    failed = entries.measurement(entry["id"])
    asked = verify(client, entry["id"], olivia, "entry")
    assert asked.status_code == 201, asked.text
    known = NAMES | {
        "submission_id": entry["id"],
        "public": public["id"],
        "verification_id": failed,
        "rerun": asked.json()["id"],
        "waiting": entries.measurement(public["id"]),
        "duel": "none",
        "hashes": f"{public['package']['sha256']}..{entry['package']['sha256']}",
        "name:path": "train.py",
    }

    everywhere = {address for _, address in addresses(client, known)}
    everywhere |= {f"/submissions/{entry['id']}?tab={tab}" for tab in ("runs", "system")}
    for address in sorted(everywhere):
        assert WORD not in text_of(ask(client, address, bob.headers)), address
    export_everything(services_of(client), tmp_path / "all")
    exported = (each for each in (tmp_path / "all").rglob("*") if each.is_file())
    assert WORD.encode() not in b"".join(each.read_bytes() for each in exported)

    page = f"/submissions/{entry['id']}?tab=system"
    for reader in (alice, olivia):
        own = Console(client, reader).get(page).text
        assert WORD in own
        assert "The first verdict publishes them." in own
    source = f"/api/v1/submissions/{entry['id']}/package/files/train.py"
    assert client.get(source, headers=alice.headers).status_code == 200
    refused = client.get(source, headers=bob.headers)
    assert (refused.status_code, UNTIL in refused.json()["detail"]) == (404, True)
    # No other package can be told from it, nor be based on it.
    copied = entries.hand_in(bob, SECRET | {"train.py": f"{TRAIN}# other\n".encode()})
    assert copied.json()["package"]["same_program_as"] != entry["id"]
    assert entries.hand_in(bob, child_of(entry["package"]["sha256"])).status_code == 422
    ablation = verify(client, entry["id"], olivia, "ablation")
    assert (ablation.status_code, UNTIL in ablation.json()["detail"]) == (409, True)

    entries.measure(entry["id"])
    assert client.get(source, headers=bob.headers).status_code == 200
    assert WORD in client.get(page).text
    assert WORD in client.get("/benchmarks/digits/ideas").text


def test_lines_that_runs_wrote_are_no_more_public_than_the_source(entries, alice, client):
    entry = entries.hand_in(alice).json()["id"]
    entries.measure(entry, failed="entry_died", log=f"  x = {WORD}")
    measurement = entries.measurement(entry)
    for address in (f"/api/v1/verifications/{measurement}", f"/submissions/{entry}?tab=runs"):
        assert WORD not in client.get(address).text, address
        assert WORD in client.get(address, headers=alice.headers).text, address
