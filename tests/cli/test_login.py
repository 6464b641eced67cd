"""Logging in: what is kept where, who gets the token, and what goes before it."""

import io
import stat
import sys

import pytest

from finishline import Client

ME = {"user": "ada", "role": "submitter"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("FINISHLINE_URL", "FINISHLINE_TOKEN", "FINISHLINE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "finishline"


@pytest.fixture
def command(finishline, monkeypatch, home):
    monkeypatch.delenv("FINISHLINE_URL")
    return finishline


def say(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def log_in(command, standin, monkeypatch, *arguments, typed="fl_one"):
    standin.answer("GET /api/v1/me", ME)
    standin.answer("GET /api/v1/me/quota", {"quotas": []})
    say(monkeypatch, f"{typed}\n")
    return command("login", standin.url, *arguments)


def tokens_sent(standin, path):
    return [asked.headers.get("Authorization") for asked in standin.asked if asked.path == path]


def test_a_login_is_what_later_commands_and_programs_use(command, standin, monkeypatch):
    ran = log_in(command, standin, monkeypatch)
    assert (ran.code, ran.err) == (0, "")
    assert f"Logged in to {standin.url} as ada" in ran.out
    assert "fl_one" not in ran.out

    assert command("account", "--json").code == 0
    assert tokens_sent(standin, "/api/v1/me") == ["Bearer fl_one"] * 2
    with Client() as client:
        assert client.url == standin.url


def test_the_token_is_in_a_file_of_its_users_alone(command, standin, monkeypatch, home):
    log_in(command, standin, monkeypatch)
    (file,) = home.iterdir()
    assert "fl_one" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("url", "typed", "code"), [("", "fl_wrong", 5), ("", "", 2), ("ftp://somewhere", "fl_one", 2)]
)
def test_what_is_no_login_keeps_nothing(command, standin, monkeypatch, home, url, typed, code):
    standin.refuse("GET /api/v1/me", 401, "Unknown token.")
    say(monkeypatch, typed)
    assert command("login", url or standin.url).code == code
    assert not home.exists()


def test_environment_chooses_the_profile(command, standin, monkeypatch):
    log_in(command, standin, monkeypatch, "--profile", "lab")
    second = log_in(command, standin, monkeypatch, "--profile", "course", typed="fl_two")
    assert "FINISHLINE_PROFILE=course" in second.out
    assert "is set" not in second.out
    command("account", "--json")
    monkeypatch.setenv("FINISHLINE_PROFILE", "course")
    command("account", "--json")
    assert tokens_sent(standin, "/api/v1/me")[-2:] == ["Bearer fl_one", "Bearer fl_two"]

    monkeypatch.setenv("FINISHLINE_PROFILE", "lap")
    unknown = command("account", "--url", standin.url)
    assert unknown.code == 2
    assert "no profile 'lap'" in unknown.err
    assert "lab, course" in unknown.err

    third = log_in(command, standin, monkeypatch, typed="fl_three")
    assert "profile lap." in third.out
    command("account", "--json")
    assert tokens_sent(standin, "/api/v1/me")[-1] == "Bearer fl_three"


def test_the_environment_goes_before_a_login(command, standin, monkeypatch):
    log_in(command, standin, monkeypatch)
    monkeypatch.setenv("FINISHLINE_TOKEN", "fl_other")
    command("account", "--json")
    assert tokens_sent(standin, "/api/v1/me")[-1] == "Bearer fl_other"
    monkeypatch.setenv("FINISHLINE_URL", "http://127.0.0.1:9")
    assert "127.0.0.1:9" in command("admin", "queue", "list").err


def test_a_logins_token_goes_to_no_other_server(command, standin, monkeypatch):
    log_in(command, standin, monkeypatch)
    other = standin.url.replace("127.0.0.1", "localhost")
    command("account", "--json", "--url", other)
    assert tokens_sent(standin, "/api/v1/me")[-1] is None
    with Client(other) as client:
        client._transport.get("/me")
    assert tokens_sent(standin, "/api/v1/me")[-1] is None


def test_logout_leaves_the_other_login(command, standin, monkeypatch, home):
    assert command("logout").code == 2
    log_in(command, standin, monkeypatch, "--profile", "lab")
    log_in(command, standin, monkeypatch, "--profile", "course", typed="fl_two")
    ran = command("logout")
    assert ran.code == 0
    assert "profile lab" in ran.out
    assert "stays valid" in ran.out
    assert "fl_one" not in next(home.iterdir()).read_text()
    command("account", "--json")
    assert tokens_sent(standin, "/api/v1/me")[-1] == "Bearer fl_two"
    assert command("logout", "--profile", "lab").code == 2
    assert command("logout", "--profile", "course").code == 0
    assert command("logout").code == 2


def test_a_file_of_logins_that_is_none_says_how_to_go_on(command, home):
    home.mkdir()
    (home / "profiles.json").write_text("[]")
    ran = command("admin", "queue", "list")
    assert ran.code == 2
    assert "profiles.json" in ran.err
    assert command("--version").code == 0
