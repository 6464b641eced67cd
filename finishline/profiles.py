"""Keep logins and tokens in $XDG_CONFIG_HOME/finishline/profiles.json, for the user only."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8000"


class ProfileError(ValueError):
    """A profile is unreadable or unwritable. Its message has the remedy."""


@dataclass(frozen=True)
class Profile:
    """A server by the name its user gave it. A forgotten one has lost its token."""

    name: str
    url: str
    token: str | None


@dataclass(frozen=True)
class Server:
    """Address and token that a program uses by default."""

    url: str | None
    token: str | None


def profiles_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "finishline" / "profiles.json"


def chosen_profile() -> Profile | None:
    """Return FINISHLINE_PROFILE's profile, else the first login's, if any. Raises ProfileError."""
    kept = _read()
    name = os.environ.get("FINISHLINE_PROFILE") or kept["default"]
    if name is None:
        return None
    table = _table_of(name, kept)
    return Profile(name, table["url"], table.get("token"))


def default_name() -> str | None:
    """Return the login used by default, if any."""
    name: str | None = _read()["default"]
    return name


def chosen_server(url: str | None = None, token: str | None = None) -> Server:
    """Return the given address and token, else the environment's, else the chosen profile's.

    A profile's token goes only to the profile's address. Raises ProfileError.
    """
    url = url or os.environ.get("FINISHLINE_URL") or None
    token = token or os.environ.get("FINISHLINE_TOKEN") or None
    if url is not None and token is not None:
        return Server(url, token)
    profile = chosen_profile()
    if profile is None:
        return Server(url, token)
    url = url or profile.url
    own = profile.token if url.rstrip("/") == profile.url else None
    return Server(url, token or own)


def keep_profile(name: str, *, url: str, token: str) -> Path:
    """Keep a login, the first one as the default. Returns the file. Raises ProfileError."""
    kept = _read()
    kept["profiles"][name] = {"url": url.rstrip("/"), "token": token}
    kept["default"] = kept["default"] or name
    _write(kept)
    return profiles_file()


def forget_profile(name: str | None) -> Profile:
    """Remove a profile, or the chosen one, with its token. Raises ProfileError."""
    kept = _read()
    if name is None:
        chosen = chosen_profile()
        if chosen is None:
            raise ProfileError("Nobody is logged in here. Log in with `finishline login URL`.")
        name = chosen.name
    url = _table_of(name, kept)["url"]
    del kept["profiles"][name]
    if kept["default"] == name:
        kept["default"] = next(iter(kept["profiles"]), None)
    _write(kept)
    return Profile(name, url, None)


def _table_of(name: str, kept: Mapping[str, Any]) -> dict[str, str]:
    if name not in kept["profiles"]:
        known = ", ".join(kept["profiles"]) or "none; log in with `finishline login URL`"
        raise ProfileError(f"There is no profile {name!r}. Profiles here: {known}.")
    table: dict[str, str] = kept["profiles"][name]
    return table


def _read() -> dict[str, Any]:
    path = profiles_file()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        tables = kept["profiles"].values()
        if not isinstance(kept["default"], str | None) or not all(
            isinstance(table["url"], str) for table in tables
        ):
            raise ValueError("not a file of profiles")
    except FileNotFoundError:
        return {"default": None, "profiles": {}}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        told = f"Cannot read {path}. Remove it and log in again with `finishline login`."
        raise ProfileError(told) from error
    return {"default": kept["default"], "profiles": dict(kept["profiles"])}


def _write(kept: Mapping[str, Any]) -> None:
    path = profiles_file()
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(kept, indent=2) + "\n")
        new.replace(path)
    except OSError as error:
        raise ProfileError(f"Cannot write {path} ({error.strerror}).") from error
