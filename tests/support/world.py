"""A server with people and a worker, asked over HTTP alone.

A test that builds its data here names no module of the server. When the API moves, this file moves
with it. The worker trains nothing and reports made-up evaluations.
"""

import copy
import time

from finishline.rules.run import Ledger
from finishline.rules.verification.messages import WORKER_PROTOCOL
from tests.support.run_logs import (
    CLAIM,
    DIGITS,
    REFERENCE,
    SAMPLES_PER_EPOCH,
    SubmissionParts,
    build_log,
    curve_of,
)

API = "/api/v1"
PREPARATION = {"init": 0.03, "warmup": 0.01}
# Each board has the reference in its own settings, so these are others that are calibrated.
SETTINGS = {"batch_size": 32}
BY_THE_SERVER = ("the first holder of its board", "its measured time is below the holder's")
EVALUATION_SECONDS = 0.004
ENVIRONMENT = "numpy-2.4"
PACKAGE = {
    "training.toml": """schema = 1
benchmark = "digits"
title = "Random features"
module = "train"
environment = "numpy-2.4"
license = "MIT"
""",
    "train.py": """def prepare(task):
    return task


def train(prepared, data, seed):
    yield lambda inputs: None
""",
}


class World:
    """The people of a server by name, and what they ask of it.

    `client` sends the requests, and `secret` is the token of an admin called ada.
    """

    def __init__(self, client, secret):
        self.client = client
        self.secrets = {"ada": secret}
        self._seeds = iter(range(1000, 10_000, 3))

    def person(self, name, role="submitter", **more):
        self.post("/users", {"name": name, "role": role} | more, by="ada")
        made = self.post("/tokens", {"user": name, "role": role}, by="ada")
        self.secrets[name] = made["token"]
        return self

    def headers(self, by):
        return {} if by is None else {"Authorization": f"Bearer {self.secrets[by]}"}

    def browser(self, by):
        browser = {"Accept": "text/html,*/*", "Origin": str(self.client.base_url)}
        if by is not None:
            form = {"token": self.secrets[by]}
            self.client.post("/console/sign-in", data=form, headers=browser)
            cookies = [f"{cookie.name}={cookie.value}" for cookie in self.client.cookies.jar]
            browser["Cookie"] = "; ".join(cookies)
            self.client.cookies.clear()
        return browser

    def request(self, method, path, *, by=None, **more):
        more["headers"] = self.headers(by) | more.get("headers", {})
        return self.client.request(method, API + path, **more)

    def get(self, path, *, by=None):
        answer = self.request("GET", path, by=by)
        assert answer.is_success, f"{path}: {answer.text}"
        return answer.json()

    def post(self, path, body=None, *, by="olivia", method="POST", **more):
        """The answer to a change, which must be taken."""
        answer = self.request(method, path, by=by, json=body, **more)
        assert answer.is_success, f"{path}: {answer.text}"
        return answer.json() if answer.content else None

    def parts(self, *, curve=REFERENCE, pace=0.02, **claim):
        claim = CLAIM | {"hyperparameters": SETTINGS} | claim
        how = {"division": claim["division"], "seconds_per_epoch": pace}
        how |= {"batch_size": claim["hyperparameters"].get("batch_size", 64)}
        how |= {"prepared": Ledger(**PREPARATION)}
        logs = {}
        for name in ("run_0.log", "run_1.log", "run_2.log"):
            seed = next(self._seeds)
            qualities = curve_of(seed, curve)
            log = build_log(DIGITS, seed, name=name, qualities=qualities, **how)
            logs[name] = log.decode()
        return SubmissionParts({"runs": list(logs)} | copy.deepcopy(claim), logs)

    def send(self, parts, *, by="alice", **more):
        return self.request(
            "POST", "/submissions", by=by, files=parts.files(), data=parts.form, **more
        )

    def submit(self, *, by="alice", **changes):
        return self.taken(self.send(self.parts(**changes), by=by))

    def taken(self, answer):
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def submit_code(self, *, by="alice", files=PACKAGE):
        parts = [("files", (name, text.encode())) for name, text in files.items()]
        return self.taken(self.request("POST", "/submissions", by=by, files=parts))

    def verify(self, submission_id, *, by="olivia", **body):
        path = f"/submissions/{submission_id}/verifications"
        return self.post(path, {"reason": "record"} | body, by=by)["id"]

    def verification(self, verification_id, *, by="olivia"):
        return self.get(f"/verifications/{verification_id}", by=by)


class Worker:
    def __init__(self, world, name="walter-1", *, by="walter", hardware_class="cpu-test"):
        self.world, self.name, self.by = world, name, by
        self.system = {
            "worker": name,
            "hardware_class": hardware_class,
            "processor": "test processor",
            "processor_count": 2,
            "memory_gib": 24.0,
            "accelerator": None,
            "accelerator_count": 0,
            "threads": 1,
            "software": {"torch": "2.13.0"},
        }
        self.box = {"entries": "anyone", "why": None, "environments": {ENVIRONMENT: "e" * 64}}

    def sign_on(self, state="idle"):
        hello = {"system": self.system, "state": state, "box": self.box}
        hello |= {"protocol": WORKER_PROTOCOL, "polls": True}
        return self.world.post("/workers/hello", hello, by=self.by)

    def confirm(self):
        self.sign_on()
        self.world.post(f"/workers/{self.name}", {"confirmed": True}, method="PATCH")
        self.take(wait=0)
        return self

    def take(self, wait=15):
        path = f"/workers/{self.name}/next"
        answer = self.world.request("POST", path, by=self.by, params={"wait": wait}, json={})
        assert answer.is_success, answer.text
        return answer.json()["attempt_id"] if answer.content else None

    def lease(self, attempt_id):
        body = {"worker": self.name, "protocol": WORKER_PROTOCOL}
        return self.world.post(f"/attempts/{attempt_id}/claim", body, by=self.by)

    def send(self, lease, path, body):
        headers = {
            "Authorization": f"Bearer {lease['token']}",
            "Finishline-Fence": str(lease["fence"]),
        }
        address = f"/attempts/{lease['attempt_id']}/{path}"
        return self.world.post(address, body, by=None, headers=headers)

    def begin(self):
        """Take the next job and lease it, after those that the server asks for by itself."""
        while True:
            self.sign_on()
            attempt_id = self.take()
            assert attempt_id is not None, "no attempt came"
            lease = self.lease(attempt_id)
            job = lease["job"]
            self.sign_on("busy")
            asked = self.world.verification(job["verification_id"])
            if asked["reason"] not in BY_THE_SERVER:
                return job, lease
            self.report(job, lease, pace=0.001)

    def rest(self):
        """Do what the server asks for by itself, until nothing waits."""
        self.sign_on()
        while (attempt_id := self.take(wait=3)) is not None:
            lease = self.lease(attempt_id)
            self.report(lease["job"], lease, pace=0.001)

    def work(self, **how):
        job, lease = self.begin()
        self.report(job, lease, **how)
        return job["verification_id"]

    def fail(self, message, next_step, *, code="training_diverged", log_tail=""):
        job, lease = self.begin()
        failure = {"kind": "submitter", "code": code, "message": message, "next_step": next_step}
        run = {
            "index": 0,
            "seed": job["trainings"][0]["seed"],
            "status": "failed",
            "evaluations": [],
            "ledger": PREPARATION,
            "failure": failure,
            "log_tail": log_tail,
        }
        time.sleep(sum(PREPARATION.values()))
        events = {"events": [{"sequence": 0, "run": 0, "kind": "run_started"}]}
        self.send(lease, "evaluations", events)
        report = {"runs": [run], "system": self.system, "failure": failure}
        self.send(lease, "report", report)
        return job["verification_id"]

    def report(self, job, lease, **how):
        """Post the events of each training at its end, then the report.

        A training lasts less than the quarter of a second by which the server's clock may differ.
        """
        told = how.pop("report", {})
        runs, sequence = [], 0
        for index, training in enumerate(job["trainings"]):
            run, events = self.train(index, training, job, **how)
            time.sleep(sum(run["ledger"].values()))
            batch = [event | {"sequence": sequence + k} for k, event in enumerate(events)]
            self.send(lease, "evaluations", {"events": batch})
            sequence += len(batch)
            runs.append(run)
        return self.send(lease, "report", {"runs": runs, "system": self.system} | told)

    def train(self, index, training, job, *, curve=REFERENCE, pace=0.02, qualities=None):
        in_box = training["package"].startswith("sha256:")
        pace = pace * (1 + 0.01 * index)
        if qualities is not None:
            curve = qualities[index]
        elif in_box:
            curve = [90.0, 96.0 if "control" in training["measure"] else 97.9]
        else:
            curve = curve_of(training["seed"], curve)
        evaluations = []
        for epoch, quality in enumerate(curve, start=1):
            spent = {"train": epoch * pace, "eval": epoch * EVALUATION_SECONDS}
            evaluations.append(
                {
                    "epoch": float(epoch),
                    "samples": None if in_box else SAMPLES_PER_EPOCH * epoch,
                    "seconds": sum(spent.values()),
                    "quality": quality,
                    "ledger": PREPARATION | spent,
                    "second_half": quality if in_box else None,
                    "predictions_sha256": f"{training['seed'] * 64 + epoch:064x}"
                    if in_box
                    else None,
                }
            )
        target = job["target"]["value"]
        reached = [each["seconds"] for each in evaluations if each["quality"] >= target]
        last = evaluations[-1]
        run = {
            "index": index,
            "seed": training["seed"],
            "status": "reached" if reached else "not_reached",
            "evaluations": evaluations,
            "ledger": last["ledger"],
            "tta_seconds": reached[0] if reached else None,
            "parent_seconds": last["seconds"],
            "child_seconds": None if in_box else last["seconds"],
            "cpu_seconds": None if in_box else last["seconds"],
        }
        started = {"run": index, "kind": "run_started"}
        trained = {"kind": "phase", "phase": "train", "seconds": 0.0, "ledger": PREPARATION}
        events = [{"kind": "evaluation"} | each for each in evaluations]
        return run, [{"run": index} | event for event in (started, trained, *events)]


def worker_of_organisers(world, like):
    """A worker that an organiser owns: no other one trains head-to-heads or embargoed code."""
    world.post("/users", {"name": "otto", "role": "organiser"}, by="ada")
    made = world.post("/tokens", {"user": "otto", "role": "worker"}, by="ada")
    world.secrets["otto"] = made["token"]
    hardware_class = like.system["hardware_class"]
    return Worker(world, "otto-1", by="otto", hardware_class=hardware_class).confirm()
