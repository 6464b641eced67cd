"""Freeze proofs of every kind: `python -m tests.support.make_proofs`.

A server with a new key and short benchmark signs them. tests/sweeps/test_proofs.py checks them with
the command as it is by then. The proof of an earlier version stays as it is.
"""

import io
import json
import re
import shutil
import tarfile
import tempfile
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from pathlib import Path

from finishline.cli.main import main as finishline
from server.base.places import BENCHMARKS
from tests.support.frozen_proofs import FOLDER, KEYS, TAMPERED, answer_of
from tests.support.proofs import take_apart
from tests.support.run_logs import REFERENCE, SYSTEM
from tests.support.served import served
from tests.support.tamperings import TAMPERINGS
from tests.support.world import PACKAGE, Worker, World

CALIBRATED_RUNS = 10
BELOW = [10.0] * len(REFERENCE)
LATE = [14.0, 45.0, 72.0, 84.0, 90.0, 94.0, 95.0, 96.0, 97.9]


def short_benchmark(folder):
    """A folder with digits and few, short calibrated runs: a proof holds the whole text."""
    text = re.sub(r"#.*", "", (BENCHMARKS / "digits.toml").read_text())
    head, *runs = re.split(r"(?=\[\[reference_runs\]\])", text)
    kept = [run for run in runs if "batch_size = 32\n" in run][:CALIBRATED_RUNS]
    short = [re.sub(r"((, [0-9.]+){9})[^]]*\]", r"\1]", run) for run in kept]
    shutil.copytree(BENCHMARKS / "digits", folder / "digits")
    (folder / "digits.toml").write_text(head + "".join(short))
    return folder


class Scenes:
    def __init__(self, client, secret):
        self.world = World(client, secret)
        for name, role in (("alice", "submitter"), ("bob", "submitter"), ("olivia", "organiser")):
            self.world.person(name, role)
        self.ended = {}
        self.trusted = self.worker("otto", "cpu-test", role="organiser")

    def worker(self, owner, hardware_class, role="worker"):
        self.world.post("/users", {"name": owner, "role": role}, by="ada")
        made = self.world.post("/tokens", {"user": owner, "role": "worker"}, by="ada")
        self.world.secrets[owner] = made["token"]
        worker = Worker(self.world, f"{owner}-1", by=owner, hardware_class=hardware_class)
        return worker.confirm()

    def replay(self, name, worker=None, *, claim=(), again=False, **how):
        worker = worker or self.trusted
        system = SYSTEM | {"hardware_class": worker.system["hardware_class"]}
        submission_id = self.world.submit(model=name, system=system, **dict(claim))
        self.ended[name] = self.world.verify(submission_id, reason=name)
        self.finish(self.ended[name], worker, **how)
        if not again:
            self.withdraw(submission_id)
        return submission_id, self.ended[name]

    def withdraw(self, submission_id):
        """Withdraw a submission: the next one with its configuration is no duplicate."""
        self.world.post(f"/submissions/{submission_id}/withdrawal", {"reason": "-"}, by="alice")

    def replays(self):
        submission_id, _ = self.replay("verified", again=True)
        self.ended["again"] = self.world.verify(submission_id, reason="again")
        self.finish(self.ended["again"])
        self.withdraw(submission_id)
        self.replay("below the target", curve=BELOW)
        self.replay("open division", claim={"division": "open"})
        self.replay("own code", claim={"trained_with": "own"})

    def endings(self):
        submission_id = self.world.submit(model="tried again")
        self.ended["tried again"] = self.world.verify(submission_id)
        self.lose()
        self.finish(self.ended["tried again"])
        self.withdraw(submission_id)
        submission_id = self.world.submit(model="failed")
        self.ended["failed"] = self.world.verify(submission_id)
        self.trusted.fail("the loss is NaN", "lower the learning rate")
        self.withdraw(submission_id)
        submission_id = self.world.submit(model="cancelled")
        self.ended["cancelled"] = self.world.verify(submission_id)
        self.world.post(f"/verifications/{self.ended['cancelled']}/cancellation", {})

    def lose(self):
        _, lease = self.trusted.begin()
        failure = {"kind": "infrastructure", "code": "child_died", "message": "-", "next_step": "-"}
        evaluation = {"kind": "evaluation", "epoch": 1.0, "samples": 1152, "seconds": 0.02}
        posted = [{"kind": "run_started"}, evaluation | {"quality": 12.5}]
        events = [{"sequence": k, "run": 0} | event for k, event in enumerate(posted)]
        self.trusted.send(lease, "evaluations", {"events": events})
        report = {"runs": [], "system": self.trusted.system, "failure": failure}
        self.trusted.send(lease, "report", report)

    def cross_checks(self):
        """Replays that a worker of another owner trains again."""
        first = self.worker("anna", "cpu-two")
        self.replay("no second worker", first)
        pair = (first, self.worker("bert", "cpu-two"))
        system = SYSTEM | {"hardware_class": "cpu-two"}
        submission_id = self.world.submit(model="Größe 漢字 </script>", system=system)
        self.ended["two owners"] = self.world.verify(submission_id)
        for worker in pair * 5:
            self.work_if_sent(worker)

    def work_if_sent(self, worker):
        worker.sign_on()
        attempt_id = worker.take(wait=1)
        if attempt_id is not None:
            lease = worker.lease(attempt_id)
            worker.sign_on("busy")
            worker.report(lease["job"], lease)

    def pair(self):
        holder, challenger = self.measure("code", "a"), self.measure("other code", "b")
        head_to_head = {"challenger": challenger, "holder": holder, "reason": "who wins"}
        first = self.finish(self.world.post("/head-to-heads", head_to_head)["id"])
        more = self.world.verification(first)["head_to_head"]["continued_by"]
        self.ended["head-to-head"] = self.finish(more)
        more = self.world.verification(more)["head_to_head"]["continued_by"]
        self.world.post(f"/verifications/{more}/cancellation", {})

    def code(self):
        again = PACKAGE["training.toml"] + "deterministic = true\n"
        self.measure("code repeated", "c", manifest=again)
        self.measure("code below the target", "d", qualities=[[50.0, 60.0]] * 6)

    def measure(self, name, note, *, manifest=PACKAGE["training.toml"], **how):
        source = PACKAGE["train.py"] + f"\n\nNOTE = {note!r}\n"
        files = {"training.toml": manifest, "train.py": source}
        submission_id = self.world.submit_code(files=files)
        (asked,) = self.world.get(f"/submissions/{submission_id}")["verifications"]
        self.ended[name] = self.finish(asked["id"], **how)
        return submission_id

    def finish(self, verification_id, worker=None, **how):
        """Work until a verification was reported: the server may draw another job first."""
        worker = worker or self.trusted
        for _ in range(5):
            job, lease = worker.begin()
            if job["verification_id"] == verification_id:
                worker.report(job, lease, **how)
                return verification_id
            worker.report(job, lease)
        raise AssertionError(f"{verification_id} was not drawn")

    def calibrations(self):
        self.calibrate("fp32")
        self.replay("calibrated")
        precision = {"lowest": "bf16", "observed": {"bf16": 9}, "autocast": True, "flags": {},
                     "opaque": []}  # fmt: skip
        told = {"curve": LATE, "report": {"precision": precision}}
        claim = {"precision": "bf16", "notes": "mixed", "curve": LATE}
        self.calibrate("bf16", **told)
        self.replay("in bf16", claim=claim, **deepcopy(told))

    def calibrate(self, precision, **how):
        asked = {"benchmark": "digits", "batch_sizes": [32], "runs": 8, "precision": precision}
        calibration = self.world.post("/calibrations", asked | {"reason": "new"})
        for _ in calibration["chunks"]:
            self.trusted.work(pace=0.01, **deepcopy(how))
        self.world.post(f"/calibrations/{calibration['id']}/adoption", {"reason": "new"})
        return calibration


@contextmanager
def scenes():
    plays = (
        Scenes.replays,
        Scenes.endings,
        Scenes.code,
        Scenes.pair,
        Scenes.calibrations,
        Scenes.cross_checks,
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        benchmarks = short_benchmark(folder / "benchmarks")
        with served(folder, benchmarks_dir=benchmarks) as (client, secret):
            played = Scenes(client, secret)
            for play in plays:
                play(played)
            yield played, client, folder


def ask(*words):
    out = io.StringIO()
    with redirect_stdout(out):
        code = finishline(list(map(str, words)))
    return code, out.getvalue()


def write_sound(client, ended):
    expected = {}
    for name, verification_id in ended.items():
        path = FOLDER / "sound" / f"{name.replace(' ', '-')}.zip"
        path.write_bytes(client.get(f"/api/v1/verifications/{verification_id}/proof").content)
        expected[path.name] = answer_of(ask, path)
    write_json(FOLDER / "sound" / "expected.json", expected)


def write_tampered(folder):
    """Write every tampering of a sound proof into one archive: they differ in few bytes."""
    with tarfile.open(TAMPERED, "w:xz", preset=9) as archive:
        for name, (_, of, tampering) in TAMPERINGS.items():
            content = (FOLDER / "sound" / f"{of}.zip").read_bytes()
            changed = tampering(take_apart(content, signing_key=folder / "signing-key.pem"))
            entry = tarfile.TarInfo(f"{name}.zip")
            entry.size = len(changed)
            archive.addfile(entry, io.BytesIO(changed))
    checks = {f"{name}.zip": check for name, (check, _, _) in TAMPERINGS.items()}
    write_json(FOLDER / "tampered" / "expected.json", checks)


def write_json(path, document):
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def main():
    for part in ("sound", "tampered"):
        shutil.rmtree(FOLDER / part, ignore_errors=True)
        (FOLDER / part).mkdir(parents=True)
    with scenes() as (played, client, folder):
        verification_id = played.ended["verified"]
        client.get(f"/api/v1/verifications/{verification_id}/proof")  # The first lists the key.
        write_json(KEYS, client.get("/api/v1/keys").json())
        write_sound(client, played.ended)
        write_tampered(folder)


if __name__ == "__main__":
    main()
