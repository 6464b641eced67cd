"""Attempts to leave a box, run inside one as the package's `train.py`.

`facts.json` beside it names them for each step: a function here and its argument. Each runs in a
child of its own. Its outcome is a result, the name of an errno, of an exception or of a signal.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import threading
from pathlib import Path

HELD: list[socket.socket] = []
LIBC = ctypes.CDLL(None, use_errno=True)
X32 = 0x40000000
NEW_USER_NAMESPACE = 0x10000000
NEW_MOUNTS = 0x00020000
TIOCSCTTY = 0x540E
# Numbers of x86-64 with arguments that do no harm where a call is allowed.
CALLS: dict[str, tuple[object, ...]] = {
    "ptrace": (101, 0, 0, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "memfd_create": (319, b"x", 0),
    "memfd_secret": (447, 0),
    "shmget": (29, 0, 4096, 0o1600),
    "io_uring_setup": (425, 8, 0),
    "io_setup": (206, 1, 0),
    "vmsplice": (278, -1, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, 0, 0, 0),
    "userfaultfd": (323, 1),
    "keyctl": (250, 0, -3, 1, 0, 0),
    "unshare": (272, NEW_USER_NAMESPACE),
    "chroot": (161, b"/scratch"),
    "kexec_load": (246, 0, 0, 0, 0),
    "name_to_handle_at": (303, -100, b"/scratch", 0, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0),
    "setns": (308, 0, 0),
    "personality": (135, 0x0040000),
    "sched_setaffinity": (203, 0, 8, b"\1" * 8),
    "clock_settime": (227, 0, 0),
    "clone_newuser": (56, NEW_USER_NAMESPACE, 0, 0, 0, 0),
    "clone3": (435, 0, 0),
    "inotify": (253,),
    "x32": (X32 | 39,),
}


def call(name):
    if LIBC.syscall(*CALLS[name]) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"


def mount(place):
    unshare = LIBC.unshare(NEW_USER_NAMESPACE | NEW_MOUNTS)
    if unshare < 0 or LIBC.mount(b"x", place.encode(), b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"


def start_thread(_):
    """Start a thread, as a library does that finds no clone3."""
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return "done"


def write(path):
    with open(path, "w") as file:  # noqa: PTH123
        file.write("x")
    return "done"


def fill(folder):
    with open(folder + "/big", "wb") as file:  # noqa: PTH123
        file.write(bytes(2 << 20))
    return "done"


def read(path):
    if os.path.isdir(path):  # noqa: PTH112
        return "done" if os.listdir(path) else "empty"  # noqa: PTH208
    with open(path, "rb") as file:  # noqa: PTH123
        file.read(1)
    return "done"


def load(module):
    __import__(module)
    return "done"


def variable(name):
    return "done" if name in os.environ else f"absent from {len(os.environ)}"


def open_socket(family):
    with socket.socket(getattr(socket, family)):
        return "done"


def connect(where):
    address = ("127.0.0.1", int(where)) if where.isdigit() else where.replace("@", "\0")
    with socket.socket(socket.AF_INET if where.isdigit() else socket.AF_UNIX) as end:
        end.settimeout(2.0)
        end.connect(address)
    return "done"


def resolve(name):
    return socket.gethostbyname(name)


def signal_to(pid):
    os.kill(int(pid), 0)
    return "done"


def rewrite_first(_):
    with open("/proc/1/maps") as maps, open("/proc/1/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
        start = int(maps.read(64).split("-")[0], 16)
        memory.seek(start)
        content = memory.read(16)
        memory.seek(start)
        memory.write(content)
    return "done"


def stop_first(_):
    os.kill(1, signal.SIGSTOP)
    return "done"


def set_uid(uid):
    os.setuid(int(uid))
    return "done"


def hurry(by):
    os.nice(int(by))
    return "done"


def real_time(_):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "done"


def batch(_):
    """Take another scheduling class, which needs no capability."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    return "done"


def survive(score):
    """Be killed later than others when memory is short."""
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(score)
    return "done"


def type_ahead(request):
    """Put a byte into the input of a terminal of its own."""
    import fcntl

    os.setsid()
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, TIOCSCTTY, 0)
    if LIBC.ioctl(terminal, ctypes.c_ulong(int(request, 16)), b"x") < 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"


def memory_files(_):
    """Find memory files among the descriptors: the data of the run."""
    links = [os.readlink(f"/proc/self/fd/{name}") for name in _descriptors()]  # noqa: PTH115
    return "done" if any("memfd" in link for link in links) else "none"


def _descriptors():
    names = os.listdir("/proc/self/fd")  # noqa: PTH208
    return [name for name in names if os.path.lexists(f"/proc/self/fd/{name}")]


def fork(times):
    children = []
    try:
        for _ in range(int(times)):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return "done"


def crash_bytes(_):
    """The limit to the memory of a crash that the kernel writes, or hands to the host's program."""
    return str(resource.getrlimit(resource.RLIMIT_CORE)[1])


def open_files(count):
    for _ in range(int(count)):
        os.open("/dev/null", os.O_RDONLY)
    return "done"


def write_large(size):
    with open("/scratch/large", "wb") as file:  # noqa: PTH123
        os.ftruncate(file.fileno(), int(size))
    return "done"


def hold_private(mebibytes):
    return "done" if mmap.mmap(-1, int(mebibytes) << 20, flags=mmap.MAP_PRIVATE) else ""


def hold_shared(mebibytes):
    """Hold shared memory: unmapped, it is no process's."""
    return "done" if mmap.mmap(-1, int(mebibytes) << 20) else ""


def hold_zeros(mebibytes):
    number = os.open("/dev/zero", os.O_RDWR)
    return "done" if mmap.mmap(number, int(mebibytes) << 20) else ""


def folders(count):
    for number in range(int(count)):
        os.mkdir(f"/scratch/{number}")  # noqa: PTH102
    return "done"


def pipes(count):
    for _ in range(int(count)):
        _, end = os.pipe()
        os.set_blocking(end, False)
        os.write(end, bytes(65_536))
    return "done"


def sockets(count):
    for _ in range(int(count)):
        end, _ = kept = socket.socketpair()
        HELD.extend(kept)
        end.setblocking(False)
        end.send(bytes(150_000))
    return "done"


def change_data(way):
    links = {name: os.readlink(f"/proc/self/fd/{name}") for name in _descriptors()}  # noqa: PTH115
    number = next(int(name) for name, link in links.items() if "memfd" in link)
    if way == "truncate":
        os.ftruncate(number, 0)
    elif way == "write":
        os.pwrite(number, b"x", 0)
    elif way == "map":
        mmap.mmap(number, 64)[0] = 1
    else:
        os.write(os.open(f"/proc/self/fd/{number}", os.O_RDWR), b"x")
    return "done"


def in_child(name, argument):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, outcome(globals()[name], argument).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode()
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said


def outcome(attempt, argument):
    try:
        return attempt(argument)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except Exception as error:  # noqa: BLE001  (an attempt may fail in any way)
        return type(error).__name__


def make(where):
    named = json.loads(Path(__file__).with_name("facts.json").read_text())[where]
    if named:
        print("RESULT", json.dumps([in_child(*each.split(" ", 1)) for each in named]))


def prepare(task):
    make("prepare")


def train(prepared, data, seed):
    make("train")
    yield lambda inputs: bytes(range(8))
