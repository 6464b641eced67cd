"""A headless Firefox, driven by WebDriver BiDi, its own protocol over a WebSocket.

Playwright drives only a Firefox of its own build. This one is the system's.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import wait_for

SECONDS = 60.0
MASK = b"mask"
LISTENING = re.compile(r"BiDi listening on ws://127\.0\.0\.1:(\d+)")


class Firefox:
    """One tab. `complaints` are the errors and warnings of its console."""

    def __init__(self, port):
        self.complaints = []
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(
            f"GET /session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        while self._stream.readline().strip():
            pass
        self._sent = 0
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._tab = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def _ask(self, method, **params):
        self._sent += 1
        self._send(json.dumps({"id": self._sent, "method": method, "params": params}).encode())
        while (answer := json.loads(self._receive())).get("id") != self._sent:
            entry = answer.get("params", {})
            if answer.get("method") == "log.entryAdded" and entry["level"] in ("error", "warn"):
                self.complaints.append(entry["text"])
        assert answer["type"] == "success", answer
        return answer["result"]

    def _send(self, text):
        """Send a text as one frame of RFC 6455, whose length always takes 8 bytes."""
        text = text.ljust(1 << 16)
        mask = (MASK * (len(text) // 4 + 1))[: len(text)]
        masked = int.from_bytes(text, "big") ^ int.from_bytes(mask, "big")
        head = b"\x81\xff" + len(text).to_bytes(8, "big") + MASK
        self._socket.sendall(head + masked.to_bytes(len(text), "big"))

    def _receive(self):
        """Wait for the next text, whose frames Firefox neither masks nor interrupts."""
        text, is_final = b"", False
        while not is_final:
            first, size = self._stream.read(2)
            is_final = bool(first & 0x80)
            if size >= 126:
                size = int.from_bytes(self._stream.read(2 if size == 126 else 8), "big")
            text += self._stream.read(size)
        return text

    def close(self):
        self._stream.close()
        self._socket.close()

    def show(self, address, *, width):
        size = {"width": width, "height": 900}
        self._ask("browsingContext.setViewport", context=self._tab, viewport=size)
        self._ask("browsingContext.navigate", context=self._tab, url=address, wait="complete")

    def run(self, function, *arguments):
        call = ", ".join(map(json.dumps, arguments))
        found = self._ask(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({function})({call})))()",
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert found["type"] == "success", found["exceptionDetails"]["text"]
        return json.loads(found["result"].get("value", "null"))

    def wait(self, condition):
        def is_true():
            with suppress(AssertionError):  # The page was left meanwhile.
                return self.run(f"() => {condition}")

        wait_for(is_true, seconds=SECONDS, what=condition)


@contextmanager
def running_firefox():
    """A headless Firefox with a profile of its own. Skips the test where there is no Firefox."""
    named = os.environ.get("FINISHLINE_FIREFOX")
    executable = named or shutil.which("firefox-esr") or shutil.which("firefox")
    if executable is None:
        pytest.skip("no Firefox: install firefox-esr or set FINISHLINE_FIREFOX to its path")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        said = Path(profile) / "said.txt"
        command = [executable, "--headless", "--no-remote", "--remote-debugging-port=0"]
        with said.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--profile", profile, "about:blank"],
                stdout=output,
                stderr=output,
                env=os.environ | {"HOME": profile},
            )
        try:
            wait_for(lambda: LISTENING.search(said.read_text()), seconds=SECONDS, what="Firefox")
            with closing(Firefox(int(LISTENING.search(said.read_text())[1]))) as opened:
                yield opened
        finally:
            process.terminate()
            process.wait(timeout=SECONDS)
