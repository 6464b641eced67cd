"""A compiler in a box whose environment names one, behind the same protections."""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.sandbox.conftest import LIMITS, course
from worker.sandbox.order import Order, installed_environments
from worker.sandbox.packages import gcc_version
from worker.sandbox.race import race

# Code of a package's own calls the kernel itself, past Python: a filter of Python's would not do.
SQUARE = """
    #include <cerrno>
    #include <sys/syscall.h>
    #include <unistd.h>
    extern "C" int square(int x) { return x * x; }
    extern "C" int new_namespace() { return syscall(SYS_unshare, 0x10000000) ? errno : 0; }
"""
TRAIN = """
    import ctypes, errno, os, subprocess
    from pathlib import Path

    def refused(path):
        try:
            Path(path).write_text("")
        except OSError as error:
            return errno.errorcode[error.errno]

    def prepare(task):
        source = Path(__file__).with_name("square.cpp")
        command = [os.environ["CXX"], "-O1", "-shared", "-fPIC", "-o", "/scratch/square.so", source]
        subprocess.run(command, check=True)
        made = ctypes.CDLL("/scratch/square.so")
        print("SAID", made.square(7), errno.errorcode[made.new_namespace()],
              refused("/usr/include/new"), refused("/usr/lib/gcc/new"), refused("/usr/bin/new"),
              *sorted(os.listdir("/usr/bin")))

    def train(prepared, data, seed):
        yield lambda inputs: bytes(range(8))
"""


@pytest.fixture(autouse=True)
def _gcc():
    if gcc_version() is None:
        pytest.skip("this host has no /usr/bin/g++ with as and ld")


def compile_and_run(folder, *, has_compiler, backend="bwrap"):
    folder.chmod(0o755)
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    (folder / "square.cpp").write_text(textwrap.dedent(SQUARE))
    limits = replace(LIMITS, memory_bytes=1 << 30, scratch_bytes=8 << 20)
    order = Order(folder, "train", {}, limits=limits, has_compiler=has_compiler, backend=backend)
    return race(order, course(), seed=7)


def holds(result):
    said = result.log_tail.strip().split()
    python = Path(sys.executable).resolve().name
    programs = [name for name in said[6:] if name != python]
    refusals = ["EPERM", "EROFS", "EROFS", "EROFS"]
    return said[:6] == ["SAID", "49", *refusals] and programs == ["as", "g++", "ld"]


def test_a_package_compiles_and_gains_no_right(tmp_path):
    result = compile_and_run(tmp_path, has_compiler=True)

    assert result.status == "reached", result
    assert holds(result), result.log_tail


def test_a_container_compiles_too(containers, tmp_path):
    assert holds(compile_and_run(tmp_path, has_compiler=True, backend="oci"))


def test_a_box_without_a_compiler_has_none(tmp_path):
    result = compile_and_run(tmp_path, has_compiler=False)

    assert result.code == "entry_died"
    assert "KeyError: 'CXX'" in result.log_tail


def test_an_environment_says_that_it_has_a_compiler():
    plain, both = installed_environments(), installed_environments(compiler=True)
    name = next(iter(plain))

    assert set(both) == set(plain) | {f"{each}-gcc" for each in plain}
    assert both[name].sha256 == plain[name].sha256
    assert both[f"{name}-gcc"].packages == plain[name].packages
    assert both[f"{name}-gcc"].compiler == f"gcc {gcc_version()}"
    assert both[f"{name}-gcc"].sha256 != plain[name].sha256
