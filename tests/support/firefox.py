"""A headless Firefox, driven by WebDriver BiDi, its own protocol over a WebSocket.

Playwright drives only a Firefox of its own build; this one is the system's. Only what the tests
need is here: pages, widths, scripts in a page, and complaints.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import wait_for

SECONDS = 60.0
PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.disabledForTesting": True,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}
# Frames of RFC 6455: the last of a message, with a text, a ping's answer.
FINAL, TEXT, CLOSE, PING, PONG = 0x80, 0x1, 0x8, 0x9, 0xA
MASKED = 0x80
MASK = b"mask"
KEEP_VIOLATIONS = """() => {
  window.violations = [];
  document.addEventListener("securitypolicyviolation",
    (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
}"""


class WebSocket:
    """The client's end of a WebSocket on this machine."""

    def __init__(self, port, path):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        status = self._stream.readline()
        assert b" 101 " in status, status
        while self._stream.readline().strip():
            pass

    def send(self, text, kind=TEXT):
        """Send a frame, under one mask: masks matter to proxies alone, but zeros are none."""
        size = len(text)
        if size < 126:
            length = bytes([MASKED | size])
        elif size < 1 << 16:
            length = bytes([MASKED | 126]) + size.to_bytes(2, "big")
        else:
            length = bytes([MASKED | 127]) + size.to_bytes(8, "big")
        mask = (MASK * (size // 4 + 1))[:size]
        masked = int.from_bytes(text, "big") ^ int.from_bytes(mask, "big")
        head = bytes([FINAL | kind]) + length + MASK
        self._socket.sendall(head + masked.to_bytes(size, "big"))

    def receive(self):
        """Wait for the next whole message."""
        message = b""
        while True:
            first, size = self._stream.read(2)
            if size in (126, 127):
                size = int.from_bytes(self._stream.read(2 if size == 126 else 8), "big")
            content, kind = self._stream.read(size), first & 0xF
            if kind == PING:
                self.send(content, PONG)
            elif kind == CLOSE:
                raise ConnectionError("Firefox closed the connection")
            else:
                message += content
                if first & FINAL:
                    return message

    def close(self):
        self._stream.close()
        self._socket.close()


class Firefox:
    """One tab; `complaints` are its errors and warnings of scripts and of the page's policy."""

    def __init__(self, port):
        self.complaints = []
        self._wire = WebSocket(port, "/session")
        self._sent = 0
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._tab = self._ask("browsingContext.getTree")["contexts"][0]["context"]
        self._ask("script.addPreloadScript", functionDeclaration=KEEP_VIOLATIONS)

    def _ask(self, method, **params):
        self._sent += 1
        self._wire.send(json.dumps({"id": self._sent, "method": method, "params": params}).encode())
        while True:
            message = json.loads(self._wire.receive())
            if message.get("method") == "log.entryAdded":
                self._note(message["params"])
            elif message.get("id") == self._sent:
                assert message["type"] == "success", message
                return dict(message["result"])

    def _note(self, entry):
        if entry["level"] in ("error", "warn"):
            self.complaints.append(f"{entry['level']}: {entry['text']}")

    def show(self, address, *, width):
        """Load a page at a width, with all that it loads."""
        self._ask(
            "browsingContext.setViewport",
            context=self._tab,
            viewport={"width": width, "height": 900},
        )
        self._ask("browsingContext.navigate", context=self._tab, url=address, wait="complete")

    def run(self, expression, *arguments):
        """The value of a function of JavaScript, awaited, or of an expression."""
        call = ", ".join(map(json.dumps, arguments))
        found = self._ask(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})({call})))()",
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert found["type"] == "success", found["exceptionDetails"]["text"]
        text = found["result"].get("value")
        return None if text is None else json.loads(text)

    def wait(self, condition):
        """Wait until an expression is true, also over a change of the page."""

        def is_true():
            with suppress(AssertionError):  # The page was left meanwhile.
                return bool(self.run(f"() => {condition}"))
            return False

        wait_for(is_true, seconds=SECONDS, what=condition)

    def press(self, *keys):
        """Press and release keys, one after the other."""
        each = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask(
            "input.performActions",
            context=self._tab,
            actions=[{"type": "key", "id": "keyboard", "actions": each}],
        )

    def close(self):
        self._wire.close()


def find_firefox():
    """The Firefox to drive, if this machine has one."""
    named = os.environ.get("FINISHLINE_FIREFOX")
    return named or shutil.which("firefox-esr") or shutil.which("firefox")


@contextmanager
def running_firefox():
    """A headless Firefox with a profile of its own; skips the test where there is none."""
    executable = find_firefox()
    if executable is None:
        pytest.skip("no Firefox: install firefox-esr or set FINISHLINE_FIREFOX to its path")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items()]
        (Path(profile) / "user.js").write_text("\n".join(lines))
        said = Path(profile) / "said.txt"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(executable, "--headless", "--no-remote", "--remote-debugging-port=0"),
                    *("--profile", profile, "about:blank"),
                ],
                stdout=output,
                stderr=output,
                env=os.environ | {"MOZ_CRASHREPORTER_DISABLE": "1", "HOME": profile},
            )
        try:
            opened = Firefox(_port(said, process))
            yield opened
            opened.close()
        finally:
            process.terminate()
            process.wait(timeout=SECONDS)


def _port(said, process):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"BiDi listening on ws://127\.0\.0\.1:(\d+)", said.read_text()):
            return int(found[1])
        time.sleep(0.1)
    raise AssertionError(f"Firefox does not listen: {said.read_text()[-2000:]}")
