"""What people copy from a screen is whole, however narrow the screen is."""

import io
from pathlib import Path

from rich.console import Console

from cli.screen import Screen
from cli.tables import queue_table
from cli.up.paths import VarPaths
from cli.up.redis import RedisAddress
from cli.up.services import Plan
from cli.up.start import UpOptions, invitation


def narrow_screen(width: int) -> tuple[Screen, io.StringIO]:
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    return Screen(as_json=False, console=console), written


def test_the_commands_that_up_prints_are_one_line_each_and_name_its_own_folder() -> None:
    var = Path("/srv/a folder with a long name/of a competition")
    plan = Plan(VarPaths(var), "127.0.0.1", 8000, RedisAddress(None))
    options = UpOptions("127.0.0.1", 8000, var, worker=True, demo=None, once=False)
    screen, written = narrow_screen(60)

    screen.say_as_is(*invitation(options, plan))

    settings = (
        f"export FINISHLINE_DATABASE_URL='sqlite:///{var}/finishline.db' "
        f"FINISHLINE_ARTIFACTS_DIR='{var}/artifacts' "
        f"FINISHLINE_SIGNING_KEY='{var}/signing-key.pem'"
    )
    lines = written.getvalue().splitlines()
    assert any(line.endswith(settings) for line in lines)
    assert any(
        line.endswith(" python -m server.admin token --user YOU --role admin") for line in lines
    )


def test_the_ids_of_what_waits_are_whole_beside_a_long_reason() -> None:
    waiting = {
        "position": 1,
        "verification_id": "5da07f0b9618183",
        "kind": "replay",
        "benchmark": "spring",
        "asked_at": "2030-01-01T12:00:00Z",
        "why_unknown": "every worker of its hardware class is paused or draining, and says so",
    }
    screen, written = narrow_screen(100)

    screen.say(queue_table({"classes": [{"hardware_class": "cpu-amd-epyc", "waiting": [waiting]}]}))

    assert "5da07f0b9618183" in written.getvalue()
    assert "cpu-amd-epyc" in written.getvalue()
