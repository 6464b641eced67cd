"""Remove one protection of a box, so that a test of an attack can be seen to fail.

A weakened box still runs as an ordinary user: on a host whose tests are root, by its own uid.
"""

import dataclasses
import fcntl
import os
import socket
import struct
import subprocess
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from worker.sandbox import bubblewrap, channel, oci, order, start, usage
from worker.sandbox.channel import Channel
from worker.sandbox.packages import SITE, Bind
from worker.sandbox.protocol import HEADER, Conversation, FrameType

ALLOW_ALL = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
OTHER_NAMESPACES = ("ipc", "net", "uts", "cgroup-try")
Removal = Callable[[pytest.MonkeyPatch, Path], None]


def without(flag, values=0, *, first=None):
    """Drop a flag of bubblewrap and its values: everywhere, or where they begin with `first`."""

    def edit(given, folder):
        found, at = [], 0
        while at < len(given):
            if given[at] == flag and first in (None, given[at + 1]):
                at += 1 + values
            else:
                found.append(given[at])
                at += 1
        assert found != given, f"bubblewrap is not given {flag}"
        return found

    return edited(edit)


def edited(edit):
    def remove(monkeypatch, folder):
        original = bubblewrap._arguments

        def arguments(*given, **named):
            made, binds = original(*given, **named)
            return edit(made, folder), binds

        monkeypatch.setattr(bubblewrap, "_arguments", arguments)

    return remove


def no_filter(monkeypatch, folder):
    path = folder / "allow.bpf"
    path.write_bytes(ALLOW_ALL)
    for backend in (bubblewrap, oci):
        monkeypatch.setattr(backend, "filter_path", lambda: path)


def no_resource_limit(name):
    def remove(monkeypatch, folder):
        original = order.resource_limits

        def rlimits(limits):
            found = original(limits)
            del found[name]
            return found

        monkeypatch.setattr(order, "resource_limits", rlimits)

    return remove


def no_limit(name, value):
    def remove(monkeypatch, folder):
        original = start.Box.__init__

        def init(self, given):
            limits = dataclasses.replace(given.limits, **{name: value})
            original(self, dataclasses.replace(given, limits=limits))

        monkeypatch.setattr(start.Box, "__init__", init)

    return remove


def writable_stage(monkeypatch, folder):
    text = bubblewrap.STAGE.replace('mount -o remount,bind,ro "$stage/$n"', ":")
    assert text != bubblewrap.STAGE
    monkeypatch.setattr(bubblewrap, "STAGE", text)


def workers_environment(monkeypatch, folder):
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *given, **named: popen(*given, **(named | {"env": None}))
    )


def all_packages(monkeypatch, folder):
    whole = Bind(Path(sysconfig.get_path("purelib")), SITE)
    monkeypatch.setattr(order, "package_binds", lambda packages: [whole])


def no_masks(monkeypatch, folder):
    for backend in (bubblewrap, oci):
        monkeypatch.setattr(backend, "hidden_folders", list)


def no_watch(monkeypatch, folder):
    monkeypatch.setattr(usage, "tree_bytes", lambda pid, limit_bytes: 0)


def no_seals(monkeypatch, folder):
    monkeypatch.setattr(channel, "SEALS", fcntl.F_SEAL_SEAL)


def data_with_the_task(monkeypatch, folder):
    """Send a memory file before the clock starts."""
    send = Channel.send

    def early(self, kind, body=b"", **named):
        if kind is FrameType.TASK:
            named["descriptor"] = os.memfd_create("data")
        send(self, kind, body, **named)

    monkeypatch.setattr(Channel, "send", early)


def descriptors_received(monkeypatch, folder):
    def read(self, length, deadline):
        body = bytearray()
        while len(body) < length:
            self._wait(1, deadline)
            body += socket.recv_fds(self._end, length - len(body), 8)[0]
        return body

    monkeypatch.setattr(Channel, "_read", read)


def any_frame(monkeypatch, folder):
    def accept(self, header):
        _, number, _, length = HEADER.unpack(header)
        self.asks += number == FrameType.ASK
        known = number in list(FrameType)
        return (FrameType(number) if known else FrameType.DONE), length

    monkeypatch.setattr(Conversation, "accept", accept)


def frames_ahead(monkeypatch, folder):
    """Let frames wait that came before the clock started."""
    monkeypatch.setattr(Channel, "refuse_early", lambda self: None)


def deadline_of_each_read(monkeypatch, folder):
    wait = Channel._wait

    def patient(self, event, deadline):
        wait(self, event, max(deadline, time.perf_counter() + 2.0))

    monkeypatch.setattr(Channel, "_wait", patient)


def _open_mounts(given, folder):
    places = ("/etc", "/sys", str(folder))
    return [part for place in places for part in ("--ro-bind", place, place)] + given


def _kept_scratch(given, folder):
    at = given.index("/scratch", given.index("/dev/shm"))  # noqa: S108
    return [*given[: at - 3], "--bind", str(folder), "/scratch", *given[at + 1 :]]


no_process_namespace = [
    without("--unshare-all"),
    edited(lambda given, _: [*given, *(f"--unshare-{name}" for name in OTHER_NAMESPACES)]),
]
share_network = edited(lambda given, _: [*given, "--share-net"])
writable_binds = edited(lambda given, _: ["--bind" if a == "--ro-bind" else a for a in given])
REMOVALS: dict[str, Sequence[Removal]] = {
    "seccomp": [no_filter],
    "seccomp, --disable-userns": [no_filter, without("--disable-userns")],
    "seccomp, --cap-drop": [
        no_filter,
        without("--disable-userns"),
        without("--cap-drop", 1),
        edited(lambda given, _: [*given, "--cap-add", "ALL"]),
    ],
    "network namespace": [share_network],
    "seccomp, network namespace": [no_filter, share_network],
    "process namespace": no_process_namespace,
    "--remount-ro /": [without("--remount-ro", 1, first="/")],
    "--remount-ro /dev": [without("--remount-ro", 1, first="/dev")],
    "read-only binds": [writable_binds, writable_stage],
    "list of mounts": [edited(_open_mounts)],
    "fresh /scratch": [edited(_kept_scratch)],
    "--size": [without("--size", 1)],
    "--clearenv": [without("--clearenv"), workers_environment],
    "list of packages": [all_packages],
    "masks": [no_masks],
    "bind of /dev/zero": [without("--dev-bind", 2, first="/dev/null")],
    "mask of /proc/1": [
        without("--tmpfs", 1, first="/proc/1"),
        without("--remount-ro", 1, first="/proc/1"),
    ],
    "RLIMIT_NPROC": [no_resource_limit("RLIMIT_NPROC")],
    "RLIMIT_DATA": [no_resource_limit("RLIMIT_DATA")],
    "RLIMIT_CORE": [no_resource_limit("RLIMIT_CORE")],
    "RLIMIT_NOFILE": [no_resource_limit("RLIMIT_NOFILE")],
    "RLIMIT_FSIZE": [no_resource_limit("RLIMIT_FSIZE")],
    "memory watch": [no_watch],
    "seals": [no_seals],
    "data with go": [data_with_the_task],
    "plain recv": [descriptors_received],
    "frame checks": [any_frame, frames_ahead],
    "frames in their turn": [frames_ahead],
    "one deadline": [deadline_of_each_read],
    "silence limit": [no_limit("silence_seconds", 1000.0)],
    "log limit": [no_limit("log_bytes", 1 << 40)],
    "evaluation limit": [no_limit("max_evaluations", 1000)],
}


def remove(name, monkeypatch, folder):
    """Start boxes without a protection; `folder` is one that they may be given instead."""
    for step in REMOVALS[name]:
        step(monkeypatch, folder)
