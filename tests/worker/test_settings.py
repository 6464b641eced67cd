import re
from pathlib import Path

import pytest

from worker.settings import Settings, load_settings

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("WORKER_TOKEN", "WORKER_TOKEN_FILE", "SERVER_URL", "BROKER_URL"):
        monkeypatch.delenv(f"FINISHLINE_{name}", raising=False)
    monkeypatch.setenv("FINISHLINE_BROKER_URL", "redis://127.0.0.1:6379/0")
    return monkeypatch


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BROKER_URL", None, r"FINISHLINE_BROKER_URL.*--pull"),
        ("BROKER_URL", "", "FINISHLINE_BROKER_URL"),
        ("WORKER_TOKEN", None, "FINISHLINE_WORKER_TOKEN"),
        ("WORKER_TOKEN_FILE", "/absent", "/absent"),
        ("SERVER_URL", "localhost:8000", r"FINISHLINE_SERVER_URL.*http"),
        ("PROCESSES", "0", "FINISHLINE_PROCESSES"),
    ],
)
def test_missing_setting_stops_the_start_and_is_named(environment, name, value, said):
    if value is None:
        environment.delenv(f"FINISHLINE_{name}", raising=False)
    else:
        environment.setenv(f"FINISHLINE_{name}", value)
    with pytest.raises(SystemExit, match=said):
        _ = load_settings().broker_address(), load_settings().token()


def test_token_is_read_from_a_file_and_not_shown(environment, tmp_path):
    path = tmp_path / "token"
    path.write_text("fl_secret\n")
    environment.setenv("FINISHLINE_WORKER_TOKEN_FILE", str(path))
    assert load_settings().token() == "fl_secret"
    environment.setenv("FINISHLINE_WORKER_TOKEN", "fl_secret")
    assert "fl_secret" not in repr(load_settings())


def test_broker_password_comes_from_a_file(environment, tmp_path):
    path = tmp_path / "password"
    path.write_text("p@ss/w:rd\n")
    environment.setenv("FINISHLINE_BROKER_URL", "redis://redis:6379/0")
    assert load_settings().broker_address() == "redis://redis:6379/0"
    environment.setenv("FINISHLINE_BROKER_PASSWORD_FILE", str(path))
    assert load_settings().broker_address() == "redis://:p%40ss%2Fw%3Ard@redis:6379/0"
    environment.setenv("FINISHLINE_BROKER_PASSWORD_FILE", str(tmp_path / "absent"))
    with pytest.raises(SystemExit, match=r"FINISHLINE_BROKER_PASSWORD_FILE.*absent"):
        load_settings().broker_address()


def test_the_documents_list_every_setting_with_its_default():
    rows = re.findall(r"^\| (`FINISHLINE_.*?) \|.*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {
        name.lower(): told
        for names, default in rows
        for name, told in zip(
            re.findall("FINISHLINE_([A-Z_]+)", names), default.split(", ") * 2, strict=False
        )
    }
    known = dict(Settings.model_fields)

    assert sorted(listed) == sorted(known)
    assert listed.pop("worker_name") == "the host name"
    for name, told in listed.items():
        default = known[name].default
        if default is not None and not known[name].is_required():
            assert told.partition(";")[0].strip("`") in (
                str(default),
                f"{default}".removesuffix(".0"),
            )
