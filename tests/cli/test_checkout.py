"""The commit of a checkout, by its files alone."""

from pathlib import Path

import pytest

from finishline.cli.checkout import commit_of

COMMIT = "fb27b827bd83eff9021698ffe576b33a100e0b78"


@pytest.fixture
def git(tmp_path: Path) -> Path:
    folder = tmp_path / ".git"
    (folder / "refs" / "heads").mkdir(parents=True)
    return folder


def test_a_branch_names_the_commit(git: Path) -> None:
    (git / "HEAD").write_text("ref: refs/heads/master\n")
    (git / "refs" / "heads" / "master").write_text(f"{COMMIT}\n")
    (git.parent / "CIFAR10" / "train").mkdir(parents=True)
    assert commit_of(git.parent / "CIFAR10" / "train") == COMMIT


def test_a_detached_head_is_the_commit(git: Path) -> None:
    (git / "HEAD").write_text(COMMIT)
    assert commit_of(git.parent) == COMMIT


def test_a_packed_branch_names_the_commit(git: Path) -> None:
    (git / "HEAD").write_text("ref: refs/heads/master\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/master\n")
    assert commit_of(git.parent) == COMMIT


@pytest.mark.parametrize(
    "head", ["", "ref: refs/heads/gone", "ref: refs/../../secret", "not a commit", COMMIT[:39]]
)
def test_what_names_no_commit_is_none(git: Path, head: str) -> None:
    (git / "HEAD").write_text(head)
    (git.parent / "secret").write_text(COMMIT)
    assert commit_of(git.parent) is None
