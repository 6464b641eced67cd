"""Folders of the server: in a wheel inside its package, in a checkout beside it."""

from pathlib import Path

import pytest

from finishline.places import find_folder, installed_server


def test_a_checkout_has_its_folders_beside_the_server() -> None:
    server = installed_server()

    assert server is not None
    assert (find_folder(server, "benchmarks") / "digits.toml").is_file()


def test_a_wheel_has_them_inside_whatever_another_project_put_beside_it(tmp_path: Path) -> None:
    inside = tmp_path / "server" / "files" / "docs"
    inside.mkdir(parents=True)
    (tmp_path / "docs").mkdir()

    assert find_folder(tmp_path / "server", "docs") == inside


def test_another_project_with_a_package_of_that_name_is_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "__init__.py").touch()
    monkeypatch.delitem(__import__("sys").modules, "server", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    assert installed_server() is None
