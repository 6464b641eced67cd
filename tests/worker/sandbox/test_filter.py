"""The seccomp filters: rebuilt, and read as the kernel reads them for both architectures."""

import pytest

from tests.support.seccomp import ARCHITECTURES, NAMESPACES, SHARED_ANONYMOUS, build, verdict
from worker.sandbox.order import filter_path

# Numbers of calls by architecture, from the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl
# and include/uapi/asm-generic/unistd.h).
REFUSED = {
    "x86_64": {"ptrace": 101, "mount": 165, "keyctl": 250, "unshare": 272, "bpf": 321,
               "memfd_create": 319, "io_uring_setup": 425,
               "io_setup": 206, "sched_setaffinity": 203, "open_tree_attr": 467},
    "aarch64": {"ptrace": 117, "mount": 40, "keyctl": 219, "unshare": 97, "bpf": 280,
                "memfd_create": 279, "io_uring_setup": 425,
                "io_setup": 0, "sched_setaffinity": 122},
}  # fmt: skip
ALLOWED = {
    "x86_64": {"read": 0, "mmap": 9, "openat": 257, "futex": 202, "exit_group": 231},
    "aarch64": {"read": 63, "mmap": 222, "openat": 56, "futex": 98, "exit_group": 94},
}
CLONE = {"x86_64": 56, "aarch64": 220}
IOCTL = {"x86_64": 16, "aarch64": 29}
SOCKET = {"x86_64": 41, "aarch64": 198}
CLONE3 = 435  # on both
THREAD_FLAGS = 0x003D0F00
machines = pytest.mark.parametrize("machine", list(ARCHITECTURES))


@machines
def test_the_filter_is_that_of_its_program(machine):
    assert filter_path(machine).read_bytes() == build(machine)


@machines
def test_calls_get_the_answers_of_the_table(machine):
    program = filter_path(machine).read_bytes()

    def answers(*calls):
        return {verdict(program, machine, *call) for call in calls}

    clone, ioctl, opened = CLONE[machine], IOCTL[machine], SOCKET[machine]
    assert answers(*((number,) for number in REFUSED[machine].values())) == {"EPERM"}
    assert answers(*((number,) for number in ALLOWED[machine].values())) == {"allow"}
    assert answers((CLONE3,)) == {"ENOSYS"}
    assert answers(*((clone, flag | 17) for flag in NAMESPACES.values())) == {"EPERM"}
    assert answers((clone, THREAD_FLAGS), (clone, 17)) == {"allow"}
    assert answers((ioctl, 0, 0x5412), (ioctl, 0, 1 << 32 | 0x5412)) == {"EPERM"}
    assert answers((ioctl, 0, 0x5401)) == {"allow"}
    mapped = ALLOWED[machine]["mmap"]
    assert answers((mapped, 0, 0, 0, SHARED_ANONYMOUS | 0x4000)) == {"EPERM"}
    assert answers((mapped, 0, 0, 0, 0x22), (mapped, 0, 0, 0, 0x01)) == {"allow"}
    assert answers((opened, 1)) == {"allow"}
    assert answers(*((opened, family) for family in (2, 10, 16, 17, 40, 1 << 32 | 1))) == {
        "EAFNOSUPPORT"
    }


def test_calls_of_another_architecture_are_killed():
    program = filter_path("x86_64").read_bytes()

    assert verdict(program, "aarch64", 63) == "kill"
    assert verdict(program, "x86_64", 0x40000000 | 39) == "kill"  # x32
