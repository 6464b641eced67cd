"""The settings and the page that lists them."""

import re
from pathlib import Path

import pytest

from server.base.settings import Settings, get_settings

PAGE = Path(__file__).parents[2] / "docs" / "running.md"


def test_the_documents_list_every_setting_and_no_other() -> None:
    listed = re.findall(r"^\| `FINISHLINE_([A-Z0-9_]+)`", PAGE.read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(name.upper() for name in Settings.model_fields)


def test_the_documents_tell_the_default_of_every_setting() -> None:
    rows = re.findall(r"^\| `FINISHLINE_([A-Z0-9_]+)` \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE)
    told = {name.lower(): default.strip("`") for name, default in rows}
    in_words = ("docs_dir", "public_url", "secure_cookies", "signing_key")
    sizes = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

    assert all(told.pop(name) for name in in_words)
    assert told.pop("benchmarks_dir") == "benchmarks"
    for name, words in told.items():
        default = Settings.model_fields[name].default
        number, _, unit = words.partition(" ")
        expected = str(int(number) * sizes[unit]) if unit else words
        written = "" if default is None else str(default)
        assert expected in (written, written.lower(), written.removesuffix(".0")), name


def test_passwords_in_files_are_put_into_the_addresses_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p@ss/w:rd\n")
    for name, value in {
        "DATABASE_URL": "postgresql+psycopg://ada@postgres:5432/results",
        "DATABASE_PASSWORD_FILE": str(secret),
        "BROKER_URL": "redis://redis:6379/0",
        "BROKER_PASSWORD_FILE": str(secret),
        "METRICS_TOKEN_FILE": str(tmp_path / "token"),
        "CODE_COMMIT": "",
    }.items():
        monkeypatch.setenv(f"FINISHLINE_{name}", value)
    (tmp_path / "token").write_text("a-token-of-some-length\n")

    settings = Settings()

    assert settings.database_url == (
        "postgresql+psycopg://ada:p%40ss%2Fw%3Ard@postgres:5432/results"
    )
    assert settings.broker_url == "redis://:p%40ss%2Fw%3Ard@redis:6379/0"
    assert settings.metrics_token is not None
    assert settings.metrics_token.get_secret_value() == "a-token-of-some-length"
    assert settings.code_commit is None
    assert "a-token" not in repr(settings)


def test_a_secret_file_that_is_missing_or_empty_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FINISHLINE_DATABASE_PASSWORD_FILE", str(tmp_path / "absent"))
    with pytest.raises(RuntimeError, match=r"FINISHLINE_DATABASE_PASSWORD_FILE.*absent"):
        Settings()
    (tmp_path / "absent").write_text("\n")
    with pytest.raises(RuntimeError, match=r"FINISHLINE_DATABASE_PASSWORD_FILE.*empty"):
        Settings()


def test_a_wrong_variable_is_told_in_one_sentence_with_its_name_and_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FINISHLINE_DATABASE_URL", "postgres://ada:secret@host/results")
    monkeypatch.setenv("FINISHLINE_DRAIN_SECONDS", "soon")
    get_settings.cache_clear()

    with pytest.raises(RuntimeError) as told:
        get_settings()

    sentence = str(told.value)
    assert "FINISHLINE_DATABASE_URL: expected sqlite:///" in sentence
    assert "FINISHLINE_DRAIN_SECONDS: Input should be a valid number" in sentence
    assert "\n" not in sentence
    assert "secret" not in sentence
