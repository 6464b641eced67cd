"""The client is light: what it must not load."""

import json
import subprocess
import sys


def test_the_client_loads_no_server_no_array_library_and_no_terminal() -> None:
    script = (
        "import json, sys; from finishline import Client; "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps(sorted(names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))
    heavy = {
        "server",
        "worker",
        "web",
        "finishline.cli",
        "torch",
        "numpy",
        "scipy",
        "sqlalchemy",
        "fastapi",
    }
    assert loaded & (heavy | {"typer", "rich", "celery"}) == set()
    assert {"finishline", "httpx2", "pydantic"} <= loaded
