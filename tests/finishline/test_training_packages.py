"""Packages handed in by command and client to a server that listens, measured by a worker."""

import json
import os
import signal
import tempfile
import threading
from contextlib import contextmanager

import httpx2
import pytest

import finishline
from finishline import Client
from finishline.cli.client import ServerClient
from finishline.cli.commands.code import fetch_code
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.main import main
from finishline.cli.watching import verdict_code
from finishline.package_folder import package_folder
from tests.server.test_entries import FILES, Entries
from tests.support.processes import wait_for


@pytest.fixture
def entries(site, database, walter):
    """A confirmed worker that trains packages of anyone, over the network."""
    with httpx2.Client(base_url=site) as http:
        found = Entries(http, database, walter)
        found.greet()
        yield found


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "mine"
    (folder / "parts").mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "parts" / "net.py").write_text("WIDTH = 64\n")
    return folder


@pytest.fixture
def command(site, alice, capsys):
    def run(*arguments):
        own = [] if "--token" in arguments else ["--token", alice.secret]
        try:
            code = main([*arguments, "--url", site, *own])
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def sent(command, package):
    def send():
        code, out, err = command("submit", str(package), "--no-watch", "--json")
        assert code == 0, err
        return json.loads(out)

    return send


@contextmanager
def measured_meanwhile(entries, **how):
    """Be the worker for the next measurement that waits, beside the command that follows it."""

    def waiting():
        asked = entries.client.get("/api/v1/verifications", params={"state": "queued"})
        return asked.json()["verifications"]

    def work():
        wait_for(lambda: bool(waiting()), seconds=60.0, what="a measurement", pause=0.05)
        assert entries.measure(waiting()[0]["submission_id"], **how).status_code == 200

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join()


def listed(entries):
    return entries.client.get("/api/v1/submissions").json()["submissions"]


def test_a_package_is_followed_to_its_time_its_rank_and_its_page(entries, package, command, site):
    with measured_meanwhile(entries):
        code, out, err = command("submit", str(package))
    assert code == 0, out + err

    assert "Submitted: Random features, sha256 " in out
    assert "evaluation 2" in out
    assert "Verdict: verified" in out
    *_, time, page = out.splitlines()
    assert time.startswith("2.042 s (95 %: ")
    assert time.endswith(" over 5 runs on cpu-test: rank 1 on digits, open division.")
    (entry_id,) = [each["id"] for each in listed(entries)]
    assert page == f"{site}/submissions/{entry_id}"


def test_submit_finds_out_that_a_folder_is_code(entries, package, alice, site, capsys):
    sent = ["submit", str(package), "--url", site, "--token", alice.secret]
    assert main([*sent, "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("Nothing was sent. A worker would measure it.\n")
    assert listed(entries) == []
    assert main([*sent, "--no-watch"]) == 0
    (made,) = listed(entries)
    *_, follow, page = capsys.readouterr().out.splitlines()
    assert follow == f"Follow it: finishline verify {made['verifications'][0]['id']} --watch"
    assert page == f"{site}/submissions/{made['id']}"
    assert main([*sent, "--division", "open"]) == ExitCode.USAGE
    (package / "submission.json").write_text("{}")
    assert main(sent) == ExitCode.REFUSED
    assert "expected one of the two: logs or code" in capsys.readouterr().err


def test_more_runs_count_together(entries, sent, command, site, capsys):
    made = sent()
    assert made["verification"]["state"] == "queued"
    with measured_meanwhile(entries):
        code = main(["verify", made["id"], "--watch", "--url", site, "--json"])
    ended = json.loads(capsys.readouterr().out)
    assert (code, ended["id"]) == (0, made["verification"]["id"])
    text = entries.client.get(f"/api/v1/submissions/{made['id']}/package/files/parts/net.py")
    assert text.text == "WIDTH = 64\n"

    with measured_meanwhile(entries):
        code, out, _ = command("verify", made["id"], "--again", "--watch", "--json")

    again = json.loads(out)
    assert (code, again["submission_id"]) == (0, made["id"])
    assert again["id"] != made["verification"]["id"]

    main(["show", made["id"], "--url", site])
    shown = capsys.readouterr().out
    assert f"code submission {made['package']['sha256']}, numpy-2.4, MIT" in shown
    assert "over 10 runs on cpu-test: rank 1 on digits, open division." in shown


def test_a_duplicate_is_named_and_not_followed(entries, package, sent, command):
    made = sent()
    entries.measure(made["id"])
    (package / "train.py").write_bytes(b"# Mine.\n" + FILES["train.py"])

    code, out, err = command("submit", str(package))

    assert code == 0, out + err
    assert f"It is a duplicate of submission {made['id']}" in out
    code, out, err = command("submit", str(package), "--json")
    again = json.loads(out)
    assert (code, again["duplicate_of"], again["measured_seconds"]) == (0, made["id"], None)


def test_a_package_to_compare_with_is_fetched_once_its_source_is_published(entries, sent, site):
    made = sent()
    name = f"sha256:{made['package']['sha256']}"
    with ServerClient(site) as server:
        for asked, said in ((name, "not published yet"), ("sha256:" + "0" * 64, "has no code")):
            with pytest.raises(CliError, match=said):
                fetch_code(server, asked)
        entries.measure(made["id"])
        found = fetch_code(server, name)

    assert found.files == FILES | {"parts/net.py": b"WIDTH = 64\n"}


def test_files_that_were_handed_in_are_one_entry(entries, package, sent, command):
    sent()
    code, out, _ = command("submit", str(package), "--no-watch")

    assert (code, len(listed(entries))) == (0, 1)
    assert "Submitted before" in out
    assert "--again" in out
    # For another hardware class it is another request; nothing of that class trains here.
    code, _, err = command("submit", str(package), "--class", "gpu-of-nobody")
    assert code == 1
    assert "no worker of hardware class gpu-of-nobody has numpy-2.4" in err


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"quality": 97.0}, ("did_not_reach",)),
        ({"failed": "entry_died"}, ("the code raised an error", "ValueError: no such thing")),
    ],
)
def test_a_package_without_a_time_ends_with_code_3(entries, package, command, how, told):
    with measured_meanwhile(entries, **how):
        code, out, _ = command("submit", str(package))

    assert (code, "rank" in out) == (3, False)
    assert [words for words in told if words not in out] == []


def test_refusals_have_codes_of_their_own(entries, package, command, walter):
    assert command("submit", str(package), "--token", walter.secret)[0] == 5
    assert command("submit", str(package / "none"))[0] == 1
    assert command("verify", "--again", "nothing")[0] == 6
    assert command("verify", "--again", "0" * 64)[0] == 6
    (package / "json.py").write_text("")
    code, _, err = command("submit", str(package), "--json")
    assert (code, json.loads(err)["error"]["problems"][0]["file"]) == (1, "json.py")
    (package / "json.py").unlink()
    manifest = package / "training.toml"
    manifest.write_text(manifest.read_text().replace('"digits"', '"theirs"'))
    code, _, err = command("submit", str(package))  # Only the server knows its benchmarks.
    assert (code, "unknown benchmark 'theirs'" in err) == (1, True)
    assert listed(entries) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_says_how_to_follow(entries, package, command, monkeypatch, number):
    def interrupt(*_):
        signal.raise_signal(number)
        return iter(())

    monkeypatch.setattr("finishline.cli.watching.follow_events", interrupt)
    code, _, err = command("submit", str(package))

    measurement = entries.measurement(listed(entries)[0]["id"])
    assert code == 128 + number
    assert f"finishline verify {measurement} --watch" in err
    state = entries.client.get(f"/api/v1/verifications/{measurement}").json()["state"]
    assert state == "queued"


@pytest.mark.parametrize(
    ("measurement", "code"),
    [
        ({"state": "failed", "reasons": [{"code": "infrastructure"}]}, 4),
        ({"state": "failed", "reasons": [{"code": "entry_died"}]}, 3),
        ({"state": "cancelled", "reasons": []}, 3),
        ({"state": "done", "outcome": "inconclusive", "reasons": []}, 3),
        ({"state": "done", "outcome": "verified", "reasons": []}, 0),
    ],
)
def test_a_box_that_could_not_be_had_is_not_the_packages_fault(measurement, code):
    assert verdict_code(measurement) == code


def test_the_client_hands_in_a_folder_or_its_files(entries, package, site, alice):
    with Client(site, alice.secret, retries=0) as ada:
        made = ada.submit(package)
        files = dict(FILES) | {"parts/net.py": "WIDTH = 64\n"}
        assert ada.submit(files).id == ada.submit(str(package)).id == made.id
        assert made.package is not None
        assert [each.id for each in ada.submissions(package=made.package.sha256)] == [made.id]

        entries.measure(made.id)
        ended = ada.wait(made.verifications[-1].id, timeout_seconds=0)
        assert ended.outcome == "verified"
        assert ada.submission(made.id).rank == 1
        assert ada.verify(made).state == "queued"

        (package / "link.txt").symlink_to("/etc/passwd")
        with pytest.raises(finishline.Refused) as refused:
            ada.submit(package)
        assert refused.value.problems[0].file == "link.txt"


def test_next_process_removes_a_left_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "finishline-package-left"
    left.mkdir()
    (left / "train.py").write_text("SECRET = 1")
    os.utime(left, (0, 0))
    with package_folder({"train.py": b"x = 1"}) as held:
        os.utime(held, (0, 0))
        assert not left.exists()
        with package_folder({}):
            assert (held / "train.py").read_bytes() == b"x = 1"
    assert list(tmp_path.iterdir()) == []
