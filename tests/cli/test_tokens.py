from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from finishline.cli.errors import CliError
from finishline.cli.up.paths import prepare_var
from finishline.cli.up.start import ensure_tokens, read_token, token_in, write_token

if TYPE_CHECKING:
    from conftest import StandIn


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "demo.token"
    path.write_text("old")
    path.chmod(0o644)
    write_token(path, "fl_secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == "fl_secret"


def test_missing_tokens_are_made_with_their_roles(tmp_path: Path, standin: "StandIn") -> None:
    made: list[tuple[str, str]] = []

    def make(user: str, role: str) -> str:
        made.append((user, role))
        return f"fl_{user}"

    files = ensure_tokens(prepare_var(tmp_path), url=standin.url, make_token=make)
    assert made == [("organiser", "organiser"), ("worker", "worker"), ("demo", "submitter")]
    assert {name: path.read_text() for name, path in files.items()} == {
        "organiser": "fl_organiser\n",
        "worker": "fl_worker\n",
        "demo": "fl_demo\n",
    }


def test_kept_tokens_are_used_again_unless_the_server_refuses_them(
    tmp_path: Path, standin: "StandIn"
) -> None:
    paths = prepare_var(tmp_path)
    for name in ("organiser", "worker", "demo"):
        write_token(paths.tokens / f"{name}.token", f"fl_old_{name}")
    standin.answer("GET /api/v1/me", {"user": "organiser", "role": "organiser"})
    standin.refuse("GET /api/v1/me", 401, "Unknown token.")
    standin.answer("GET /api/v1/me", {"user": "demo", "role": "submitter"})
    files = ensure_tokens(paths, url=standin.url, make_token=lambda user, _: f"fl_new_{user}")
    assert [read_token(path) for path in files.values()] == [
        "fl_old_organiser",
        "fl_new_worker",
        "fl_old_demo",
    ]
    assert [asked.headers["Authorization"] for asked in standin.asked] == [
        "Bearer fl_old_organiser",
        "Bearer fl_old_worker",
        "Bearer fl_old_demo",
    ]


def test_the_token_is_found_among_other_lines() -> None:
    output = 'a library says hello\n{"id": "1", "token": "fl_x", "role": "worker"}\n'
    assert token_in(output) == "fl_x"
    with pytest.raises(CliError, match="printed no token"):
        token_in("nothing\n{}\n")
