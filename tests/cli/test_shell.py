"""Completion in a real bash, the version, and output without escape sequences."""

import os
import pty
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import finishline as package

COMMAND = shutil.which("finishline") or str(Path(sys.executable).with_name("finishline"))


def complete_in_bash(*words):
    script = (
        'source <(finishline --show-completion)\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n'
        '_finishline_completion finishline\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        "complete -p finishline\n"
    )
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", script, "bash", *words],
        env={**os.environ, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *offered, registered = done.stdout.split("\n")[:-1]
    assert "_finishline_completion" in registered
    return offered


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("finishline", "bo"), {"board"}),
        (("finishline", "board", "--div"), {"--division"}),
        (("finishline", "benchmark", "ca"), {"calibrate"}),
        (("finishline", "import", ""), {"dawnbench", "mlperf", "nanogpt"}),
    ],
)
def test_bash_completes_commands_and_options(words, offered):
    assert set(complete_in_bash(*words)) == offered


def test_the_version_is_the_distributions(finishline):
    assert package.__version__ == version("finishline-tta")
    ran = finishline("--version")
    assert (ran.code, ran.out) == (0, f"finishline {package.__version__}\n")


def on_terminal(*arguments, **settings):
    parent, child = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *arguments],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm-256color", **settings},
    ) as process:
        os.close(child)
        written = b""
        while True:
            try:
                piece = os.read(parent, 4096)
            except OSError:  # The other end is closed.
                break
            if not piece:
                break
            written += piece
        process.wait(60)
    os.close(parent)
    return written


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments", [("--help",), ("check", "nowhere"), ("chekc",), ("run", "--help"), ("check",)]
)
def test_no_color_leaves_no_escape_sequence(arguments):
    assert b"\x1b" in on_terminal(*arguments)
    written = on_terminal(*arguments, NO_COLOR="1")
    assert written.strip()
    assert b"\x1b" not in written
