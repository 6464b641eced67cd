"""One of everything that a server can hold, made over HTTP, with a test's text in each field.

`text(name)` gives the text of a field, named after the request that carries it.
"""

import json
import re

from tests.support.boards import rows_of
from tests.support.own_benchmarks import DEFINITION, own_files
from tests.support.run_logs import SYSTEM
from tests.support.world import PACKAGE, Worker, worker_of_organisers

ENTRY = {
    "version": "v1.0",
    "authorEmail": "ada@example.org",
    "timestamp": "2019-10-15",
    "latency": 0.15,
    "costPerHour": 3.6,
    "top1Accuracy": 98.1,
}
PRICE = {
    "pricing": "on_demand",
    "usd_per_hour": 12.5,
    "effective_on": "2026-01-02",
    "source_url": "https://example.org/prices",
}
HOOK = "https://hooks.example/hook?"


def fill(world, worker, text=lambda name: name):
    """Make one of everything. Returns the ids by the names that addresses have for them."""
    known = {"benchmark_id": "digits", "index": "0", "name": worker.name}
    people(world, text, known)
    submissions(world, text, known)
    trusted = worker_of_organisers(world, worker)
    code(world, trusted, text, known)
    verifications(world, worker, trusted, text, known)
    failed_code(world, worker, text, known)
    organisers(world, worker, text, known)
    return known


def words(text, request, *fields):
    return {field.rpartition(".")[2]: text(f"{request} {field}") for field in fields}


def people(world, text, known):
    made = words(text, "POST /organisations", "name")
    world.post("/organisations", made, by="ada")
    world.post("/users/bob", {"organisation": made["name"]}, by="ada", method="PATCH")
    world.post("/me", {"display_name": "Alice, of O’Hara’s"}, by="alice", method="PATCH")
    label = words(text, "POST /tokens", "label")
    known["token_id"] = world.post("/tokens", {"user": "alice", "role": "submitter"} | label)["id"]
    own = world.post("/me/tokens", words(text, "POST /me/tokens", "label"), by="alice")
    known |= {"own_token_id": own["id"], "user_name": "alice"}
    invited = world.post("/invitations", {}, by="ada")
    known |= {"invitation_id": invited["id"], "code": invited["link"].rpartition("/")[2]}
    quota = words(text, "PUT /quotas/{name}", "reason") | {"submissions_per_day": 50}
    world.post("/quotas/bob", quota, method="PUT")
    hook = {
        "url": HOOK + text("POST /webhooks url").replace(" ", "+"),
        "kinds": ["submission.verified"],
    }
    known["webhook_id"] = world.post("/webhooks", hook, by="ada")["id"]
    world.post(f"/webhooks/{known['webhook_id']}/test", by="ada")


def submissions(world, text, known):
    request = "POST /submissions"
    own = (f"submission.system.{field}" for field in ("name", "processor", "price_source"))
    system = SYSTEM | words(text, request, *own)
    own = (f"submission.{field}" for field in ("model", "framework", "notes"))
    named = words(text, request, *own)
    parts = world.parts(system=system, code_url="https://example.org/code", **named)
    # A framework may write lines of its own between those of the logger.
    parts.logs["run_0.log"] += text("POST /submissions logs") + "\n"
    # A multipart name can't hold a quote, nor a log's a slash.
    file = re.sub('["/]', "", text("POST /submissions file")) + ".log"
    parts.logs = {file: parts.logs.pop("run_0.log")} | parts.logs
    parts.claim["runs"] = list(parts.logs)
    known["submission_id"] = world.taken(world.send(parts))

    device = {"hardware_class": "gpu-test", "accelerator_count": 1}
    device |= words(text, request, "submission.system.accelerator")
    origin = words(text, request, "submission.organisation") | {"submitted_on": "2018-04-20"}
    parts = world.parts(system=SYSTEM | device, **origin)
    parts.form = {"archive": "true"}
    del parts.logs["run_2.log"]
    parts.claim["runs"].remove("run_2.log")
    known["archived"] = world.taken(world.send(parts, by="olivia"))
    waiver = "/submissions/{submission_id}/waivers"
    reason = words(text, f"POST {waiver}", "reason") | {"rule": "too_few_runs"}
    world.post(f"/submissions/{known['archived']}/waivers", reason)
    back = words(text, f"POST {waiver}/{{rule}}/revocation", "reason")
    world.post(f"/submissions/{known['archived']}/waivers/too_few_runs/revocation", back)
    known["rule"] = "too_few_runs"

    known["withdrawn"] = world.submit(by="bob")
    for step in ("withdrawal", "reinstatement", "withdrawal"):
        reason = words(text, f"POST /submissions/{{submission_id}}/{step}", "reason")
        by = "olivia" if step == "reinstatement" else "bob"
        world.post(f"/submissions/{known['withdrawn']}/{step}", reason, by=by)

    own = (f"entry.{field}" for field in ("author", "framework", "model", "hardware"))
    files = [("submission", ("entry.json", json.dumps(ENTRY | words(text, request, *own))))]
    form = {"benchmark": "digits", "division": "open", "archive": "true"}
    answer = world.request("POST", "/submissions", by="olivia", files=files, data=form)
    known["inference"] = world.taken(answer)


def verifications(world, worker, trusted, text, known):
    path = "POST /submissions/{submission_id}/verifications"
    report = "POST /attempts/{attempt_id}/report"
    hello = "POST /workers/hello"
    worker.system |= words(text, hello, "system.processor")
    worker.system["software"] |= {"torch": text(f"{hello} system.software.*")}
    reason = words(text, path, "reason")
    known["verification_id"] = world.verify(known["submission_id"], **reason)
    worker.work()
    known["rerun"] = world.verify(known["submission_id"], **reason)
    worker.work(report=worker_words(text, report))
    known["second"] = world.submit(by="bob", model="wide", hyperparameters={"batch_size": 128})
    known["failed"] = world.verify(known["second"], **reason)
    worker.fail(text(f"{report} failure.message"), text(f"{report} failure.next_step"))
    head_to_head = {"challenger": known["second"], "holder": known["submission_id"]}
    known["head_to_head"] = world.post(
        "/head-to-heads", head_to_head | words(text, "POST /head-to-heads", "reason")
    )["id"]
    trusted.work()
    trusted.sign_on(state="stopping")
    known["third"] = world.submit(by="bob", model="narrow", hyperparameters={"batch_size": 256})
    decision = words(text, "POST /verifications/{verification_id}/decision", "reason")
    path = f"/verifications/{known['rerun']}/decision"
    world.post(path, decision | {"decision": "publish"})


def worker_words(text, report):
    return {
        "drift": text(f"{report} drift"),
        "precision": {
            "lowest": "fp32",
            "observed": {"fp32": 9},
            "autocast": False,
            "flags": {"matmul": text(f"{report} precision.flags.*")},
            "opaque": [text(f"{report} precision.opaque.[]")],
        },
    }


def package_of(text):
    title = json.dumps(text("POST /submissions title"))
    files = dict(PACKAGE)
    files["training.toml"] = files["training.toml"].replace('"Random features"', title)
    files["train.py"] += f"# {text('POST /submissions train.py')}\n"
    return files


def code(world, trusted, text, known):
    """A code submission that the organisers' worker measured: no other one measures code."""
    known["package"] = world.submit_code(by="alice", files=package_of(text))
    known["measurement"] = trusted.work()
    trusted.sign_on(state="stopping")


def failed_code(world, worker, text, known):
    files = package_of(text) | {"notes.txt": text("POST /submissions notes.txt")}
    known["failed_package"] = world.submit_code(by="bob", files=files)
    report = "POST /attempts/{attempt_id}/report"
    worker.fail(
        text(f"{report} runs.[].failure.message"),
        text(f"{report} runs.[].failure.next_step"),
        code="entry_died",
        log_tail=text(f"{report} runs.[].log_tail"),
    )
    packages = (known["package"], known["failed_package"])
    hashes = [world.get(f"/submissions/{each}/package", by="ada")["sha256"] for each in packages]
    known["hashes"] = "..".join(hashes)


def organisers(world, worker, text, known):
    holder = rows_of(world.get("/leaderboards/digits?division=open"))[0]["submission_id"]
    for step in ("retirement", "reinstatement"):
        reason = words(text, f"POST /submissions/{{submission_id}}/{step}", "reason")
        world.post(f"/submissions/{holder}/{step}", reason)
    calibration = {"benchmark": "digits", "batch_sizes": [64], "runs": 12}
    calibration |= words(text, "POST /calibrations", "reason")
    known["calibration_id"] = world.post("/calibrations", calibration)["id"]
    for _ in world.get(f"/calibrations/{known['calibration_id']}")["chunks"]:
        worker.work()
    adoption = words(text, "POST /calibrations/{calibration_id}/adoption", "reason")
    world.post(f"/calibrations/{known['calibration_id']}/adoption", adoption)
    phases = words(text, "POST /benchmarks/{benchmark_id}/phases", "reason")
    world.post("/benchmarks/digits/phases", phases | {"closes_at": "2027-02-01T00:00:00Z"})
    price = words(text, "POST /prices", "provider", "instance", "region", "note")
    world.post("/prices", PRICE | price)
    own = (f"prices.[].{field}" for field in ("provider", "instance", "region", "note"))
    price = words(text, "POST /prices/import", *own)
    world.post("/prices/import", {"prices": [PRICE | price]})
    definition = DEFINITION.replace('"A drawn task."', json.dumps(text("POST /benchmarks about")))
    definition = definition.replace('"Mine"', json.dumps(text("POST /benchmarks title")))
    parts = [("files", each) for each in own_files(definition).items()]
    reason = words(text, "POST /benchmarks", "reason")
    answer = world.request("POST", "/benchmarks", by="olivia", files=parts, data=reason)
    assert answer.status_code == 201, answer.text
    known["own_benchmark"] = answer.json()["id"]
    probe = {
        "worker": worker.name,
        "moment": "start",
        "canary": {
            "gflops": 100.0,
            "configuration": "numpy",
            "how": text("POST /workers/probes canary.how"),
        },
        "figures": {
            "gemm_fp32": {
                "value": 0.11,
                "unit": "TFLOP/s",
                "how": text("POST /workers/probes figures.*.how"),
            }
        },
        "host": {"kernel": text("POST /workers/probes host.*")},
    }
    world.post("/workers/probes", probe, by=worker.by)
    other = Worker(world, "walter-2", by=worker.by, hardware_class="gpu-other")
    other.system |= words(text, "POST /workers/hello", "system.accelerator")
    other.system["accelerator_count"] = 1
    other.box = {"entries": "off", "why": text("POST /workers/hello box.why"), "environments": {}}
    other.sign_on()
    odd = Worker(world, text("POST /workers/hello system.worker").replace("/", ""), by=worker.by)
    odd.system["hardware_class"] = "gpu-other"
    odd.sign_on()
    why = words(text, "PATCH /workers/{name}", "reason")
    pause, resume, confirm = {"paused": True}, {"paused": False}, {"confirmed": True}
    for name, change in (("walter-1", pause), ("walter-1", resume), ("walter-2", confirm),
                         ("walter-2", pause)):  # fmt: skip
        world.post(f"/workers/{name}", change | why, method="PATCH")
    known["queued"] = world.verify(
        known["third"], **words(text, "POST /submissions/{submission_id}/verifications", "reason")
    )
    batch = words(text, "POST /verifications/batch", "reason")
    world.post("/verifications/batch", batch | {"submissions": [known["second"]]})
    for change in (pause, resume, pause):
        world.post("/queue", change | words(text, "PATCH /queue", "reason"), method="PATCH")
