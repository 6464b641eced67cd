"""The folder of a package: who may read it, and how long it stays."""

import os
import tempfile

from finishline.package_folder import package_folder


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "finishline-package-left"
    left.mkdir()
    (left / "train.py").write_text("SECRET = 1")
    os.utime(left, (0, 0))
    with package_folder({"train.py": b"x = 1"}) as held:
        os.utime(held, (0, 0))
        assert not left.exists()
        with package_folder({}):
            assert (held / "train.py").read_bytes() == b"x = 1"
    assert list(tmp_path.iterdir()) == []
