"""The command answers at once: what it must not load to show its help."""

import json
import subprocess
import sys

HEAVY = (
    "alembic", "celery", "fastapi", "kombu", "numpy", "plotly", "pyarrow", "pydantic", "redis",
    "reference_models", "scipy", "server", "sqlalchemy", "torch", "web", "worker",
)  # fmt: skip


def test_the_command_loads_no_server_no_array_library_and_no_broker() -> None:
    script = (
        "import json, sys; import finishline.cli.main; "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps(sorted(names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))

    assert loaded.intersection(HEAVY) == set()
    assert {"finishline.cli", "typer"} <= loaded
