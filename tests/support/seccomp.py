"""Build the seccomp filter of boxes for this machine's architecture.

`python -m tests.support.seccomp` needs `pyseccomp` and writes `worker/box/ARCHITECTURE.bpf`. A
worker loads those bytes; only this program needs the library.
"""

import errno
import socket
import tempfile
from typing import Any

from worker.box.start import filter_path

FORBIDDEN = (
    # other processes' memory and descriptors
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise",
    "bpf", "perf_event_open", "userfaultfd",
    "add_key", "request_key", "keyctl",
    # mounts and namespaces
    "mount", "umount", "umount2", "pivot_root", "chroot", "setns", "unshare", "fsopen", "fsconfig",
    "fsmount", "fspick", "move_mount", "open_tree", "mount_setattr",
    "name_to_handle_at", "open_by_handle_at",
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    # the machine
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday",
    "clock_settime", "clock_adjtime", "adjtimex", "vhangup", "iopl", "ioperm", "personality",
    # memory that no tmpfs bounds, and queues
    "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv",
    "semget", "semop", "mq_open",
    "sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam",
    "fanotify_init", "inotify_init", "inotify_init1",
)  # fmt: skip
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
TIOCSTI = 0x5412


def build() -> bytes:
    """The filter's bytes for this machine: everything else is allowed, another architecture killed.

    clone3 answers ENOSYS, so that libraries fall back to clone, whose flags can be read.
    """
    import pyseccomp

    made: Any = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    for name in FORBIDDEN:
        try:
            made.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
        except (OSError, ValueError):  # The architecture does not have it.
            continue
    for flag in NAMESPACES.values():
        made.add_rule(
            pyseccomp.ERRNO(errno.EPERM),
            "clone",
            pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag),
        )
    made.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    made.add_rule(pyseccomp.ERRNO(errno.EPERM), "ioctl", pyseccomp.Arg(1, pyseccomp.EQ, TIOCSTI))
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


if __name__ == "__main__":
    filter_path().write_bytes(build())
