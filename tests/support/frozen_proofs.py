"""The frozen proofs of tests/data/proofs, and what a test compares of the command's answer."""

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from web.assets import STATIC_FOLDER

RUNNER = Path(__file__).with_name("verify_all.mjs")
VERIFIER = STATIC_FOLDER / "verify.mjs"
FOLDER = Path(__file__).parents[1] / "data" / "proofs"
KEYS = FOLDER / "keys.json"
EARLIER = FOLDER / "earlier"  # Of a version that trained seeds of the claim too.
COUNTED = ("band", "logs", "runs", "seal", "seeds", "attempts")
TAMPERED = FOLDER / "tampered" / "tampered.tar.xz"


def expected(part):
    return json.loads((FOLDER / part / "expected.json").read_text())


def tampered():
    with tarfile.open(TAMPERED) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}


def verified_in_node(proofs, keys, folder):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: install nodejs")
    (folder / "proofs").mkdir()
    for name, content in proofs.items():
        (folder / "proofs" / name).write_bytes(content)
    (folder / "listed.json").write_text(json.dumps(keys))
    words = [node, RUNNER, VERIFIER, folder / "proofs", folder / "listed.json"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["answers"]


def answer_of(ask, path, key=KEYS):
    """Exit code, verdict, and each check with the figures it compared.

    `ask` runs the command and returns its exit code and what it prints.
    """
    code, told = ask("proof", path, "--key", key, "--json")
    _, words = ask("proof", path, "--key", key)
    verdict = re.search(r"Verification .*?: (\w+)", " ".join(words.split()))
    checks = json.loads(told)["checks"]
    figures = {
        check["name"]: re.findall(r"(?<![-\w])\d+(?!\w)", check["compared"]) for check in checks
    }
    return {
        "exit code": code,
        "verdict": verdict and verdict[1],
        "checks": {check["name"]: check["result"] for check in checks},
        "figures": {name: found for name, found in figures.items() if found and name in COUNTED},
    }
