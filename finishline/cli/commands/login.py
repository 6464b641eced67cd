"""`finishline login` and `logout`: keep a server and its token for later commands."""

import os
import sys
from getpass import getpass
from typing import Annotated

from typer import Argument, Option

from finishline.cli.client import ServerClient
from finishline.cli.errors import UsageError
from finishline.cli.options import shows
from finishline.cli.screen import Screen
from finishline.client.transport import checked_url
from finishline.profiles import default_name, forget_profile, keep_profile

ProfileName = Annotated[
    str | None,
    Option("--profile", help="Name of the login (default: FINISHLINE_PROFILE, else default)."),
]


@shows
def login(
    screen: Screen,
    url: Annotated[str, Argument(metavar="URL", help="Address of the server.")],
    profile: ProfileName = None,
) -> None:
    """Keep a server's address and your token, which is asked for or read from stdin.

    Commands use the first login. FINISHLINE_PROFILE chooses another. The token goes into a file
    readable only by you.
    """
    name = profile or os.environ.get("FINISHLINE_PROFILE") or "default"
    try:  # Before the token is asked for.
        checked_url(url)
    except ValueError as error:
        raise UsageError(str(error)) from error
    token = _read_token()
    with ServerClient(url, token) as server:
        view = server.get("/me")
        url = server.url
    file = keep_profile(name, url=url, token=token)
    used = name == (os.environ.get("FINISHLINE_PROFILE") or default_name())
    hint = "" if used else f" Use it with FINISHLINE_PROFILE={name}."
    document = {"user": view["user"], "url": url, "profile": name, "file": str(file)}
    line = f"Logged in to {url} as {view['user']}. The token is in {file}, profile {name}.{hint}"
    overriding = [each for each in ("FINISHLINE_URL", "FINISHLINE_TOKEN") if os.environ.get(each)]
    goes_before = [f"{each} is set and goes before the login." for each in overriding]
    screen.answer(document, [line, *goes_before])


@shows
def logout(screen: Screen, profile: ProfileName = None) -> None:
    """Forget the login in use, or the login of --profile.

    The token itself stays valid on the server until it expires or is revoked.
    """
    forgotten = forget_profile(profile)
    document = {"profile": forgotten.name, "url": forgotten.url}
    line = (
        f"Logged out of {forgotten.url}, profile {forgotten.name}. The token stays valid there: "
        "`finishline account token list` lists yours, `finishline account token remove ID` ends "
        "one."
    )
    screen.answer(document, [line])


def _read_token() -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            token = getpass("Token (fl_...): ").strip()
        except EOFError:  # Ctrl-D
            token = ""
    else:
        token = "" if sys.stdin is None else sys.stdin.readline().strip()
    if not token:
        raise UsageError(
            "No token. Type it, or send it on stdin: finishline login URL < token-file"
        )
    return token
