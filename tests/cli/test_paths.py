import socket
import subprocess
import sys
from pathlib import Path

import pytest

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.up.paths import VarPaths, lock_var, prepare_var, require_free_port


def test_folders_are_made_and_tokens_are_for_their_owner_alone(tmp_path: Path) -> None:
    paths = prepare_var(tmp_path / "deep" / "var")
    assert paths.logs.is_dir()
    assert paths.artifacts.is_dir()
    assert paths.tokens.stat().st_mode & 0o777 == 0o700


def test_the_database_is_its_owners_alone_also_one_that_was_not(tmp_path: Path) -> None:
    paths = prepare_var(tmp_path)
    assert paths.database.stat().st_mode & 0o777 == 0o600
    paths.database.write_bytes(b"kept")
    paths.database.chmod(0o644)
    prepare_var(tmp_path)
    assert paths.database.stat().st_mode & 0o777 == 0o600
    assert paths.database.read_bytes() == b"kept"


def test_var_is_its_owners_alone_also_one_that_was_not(tmp_path: Path) -> None:
    """Logs under an embargo lie in it."""
    assert prepare_var(tmp_path / "made").root.stat().st_mode & 0o777 == 0o700
    (tmp_path / "made").chmod(0o755)
    prepare_var(tmp_path / "made")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_everybody_uses_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(CliError, match=r"everybody.*--var"):
        prepare_var(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CliError, match=r"Cannot write in .*--var") as caught:
        prepare_var(tmp_path / "file" / "var")
    assert caught.value.exit_code is ExitCode.SERVER


def test_a_taken_port_is_refused_with_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CliError, match=rf"Port {port} on 127.0.0.1 .*--port {port + 1}"):
            require_free_port("127.0.0.1", port)


def test_a_free_port_stays_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    require_free_port("127.0.0.1", port)
    require_free_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(CliError, match=r"203\.0\.113\.7"):
        require_free_port("203.0.113.7", 8000)


HOLDER = """
import sys
from pathlib import Path
from finishline.cli.up.paths import VarPaths, lock_var
with lock_var(VarPaths(Path(sys.argv[1])), url="http://127.0.0.1:8123"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
def test_a_second_supervisor_in_a_folder_is_told_of_the_first(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(CliError, match=rf"process {holder.pid}.*http://127.0.0.1:8123.*--var"),
            lock_var(VarPaths(tmp_path), url="http://127.0.0.1:8000"),
        ):
            pass
        holder.kill()
    with lock_var(VarPaths(tmp_path), url="http://127.0.0.1:8000"):
        assert str(VarPaths(tmp_path).lock.read_text()).count("8000") == 1
