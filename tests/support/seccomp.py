"""Build the seccomp filters of boxes, one for each architecture.

`python -m tests.support.seccomp` needs `pyseccomp` and writes `worker/sandbox/ARCHITECTURE.bpf`. A
worker loads those bytes; only this program needs the library. `verdict` reads a filter as the
kernel does, for architectures that are not at hand.
"""

import errno
import socket
import struct
import tempfile

from worker.sandbox.order import filter_path

# By the name that the kernel gives a machine: libseccomp's name, and the kernel's number for it.
ARCHITECTURES = {"x86_64": ("X86_64", 0xC000003E), "aarch64": ("AARCH64", 0xC00000B7)}
FORBIDDEN = (
    # other processes' memory and descriptors
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise",
    "bpf", "perf_event_open", "userfaultfd",
    "add_key", "request_key", "keyctl",
    # mounts and namespaces
    "mount", "umount", "umount2", "pivot_root", "chroot", "setns", "unshare", "fsopen", "fsconfig",
    "fsmount", "fspick", "move_mount", "open_tree", "mount_setattr",
    "name_to_handle_at", "open_by_handle_at",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup",
    # the machine
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday",
    "clock_settime", "clock_adjtime", "adjtimex", "vhangup", "iopl", "ioperm", "personality",
    # memory that no tmpfs bounds, and queues
    "memfd_create", "memfd_secret", "vmsplice", "shmget", "shmat", "shmctl", "msgget", "msgsnd",
    "msgrcv", "semget", "semop", "mq_open",
    "sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam",
    "fanotify_init", "inotify_init", "inotify_init1",
)  # fmt: skip
# Newer than libseccomp's names; it takes numbers for the machine alone that builds.
FORBIDDEN_NUMBERS: dict[str, dict[str, int]] = {"x86_64": {"open_tree_attr": 467}, "aarch64": {}}
NAMESPACES = {
    "CLONE_NEWTIME": 0x00000080,
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
# Shared memory without a file: a process that unmaps it holds it and is not seen to.
SHARED_ANONYMOUS = 0x21
# Input put into a terminal. The kernel reads the low half of a request alone.
TERMINAL_REQUESTS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}
LOW_HALF = 0xFFFFFFFF


def build(machine):
    """The filter's bytes for a machine: everything else is allowed, another architecture killed.

    clone3 answers ENOSYS, so that libraries fall back to clone, whose flags can be read.
    """
    import pyseccomp

    made = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    wanted = getattr(pyseccomp.Arch, ARCHITECTURES[machine][0])
    if wanted != pyseccomp.system_arch():
        made.add_arch(wanted)
        made.remove_arch(pyseccomp.system_arch())
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    for name in FORBIDDEN:
        try:
            made.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
        except (OSError, ValueError):  # The architecture does not have it.
            continue
    for number in FORBIDDEN_NUMBERS[machine].values():
        made.add_rule(pyseccomp.ERRNO(errno.EPERM), number)
    for flag in NAMESPACES.values():
        made.add_rule(
            pyseccomp.ERRNO(errno.EPERM), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag)
        )
    made.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    made.add_rule(
        pyseccomp.ERRNO(errno.EPERM),
        "mmap",
        pyseccomp.Arg(3, pyseccomp.MASKED_EQ, SHARED_ANONYMOUS, SHARED_ANONYMOUS),
    )
    for request in TERMINAL_REQUESTS.values():
        made.add_rule(
            pyseccomp.ERRNO(errno.EPERM),
            "ioctl",
            pyseccomp.Arg(1, pyseccomp.MASKED_EQ, LOW_HALF, request),
        )
    for call in ("socket", "socketpair"):
        made.add_rule(
            pyseccomp.ERRNO(errno.EAFNOSUPPORT),
            call,
            pyseccomp.Arg(0, pyseccomp.NE, socket.AF_UNIX),
        )
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


def verdict(program, machine, number, *arguments):
    """The answer of a filter to a call: `allow`, `kill` or the name of an errno."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    call = struct.pack("<iIQ6Q", number, ARCHITECTURES[machine][1], 0, *words)
    steps = list(struct.iter_unpack("<HBBI", program))
    value = at = 0
    while True:
        code, then, otherwise, constant = steps[at]
        at += 1
        if code == 0x20:  # load a word of the call
            (value,) = struct.unpack_from("<I", call, constant)
        elif code == 0x54:  # and
            value &= constant
        elif code == 0x05:  # jump
            at += constant
        elif code == 0x06:  # return
            return _answer(constant)
        else:
            tests = {0x15: value == constant, 0x25: value > constant, 0x35: value >= constant}
            at += then if tests[code] else otherwise


def _answer(returned):
    action = returned & 0xFFFF0000
    if action == 0x00050000:
        return errno.errorcode[returned & 0xFFFF]
    return {0x7FFF0000: "allow", 0x80000000: "kill"}[action]


if __name__ == "__main__":
    for machine in ARCHITECTURES:
        filter_path(machine).write_bytes(build(machine))
