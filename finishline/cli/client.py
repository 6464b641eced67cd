"""Connect commands to the server's API: one sentence and one exit code for each failure."""

import sys
import time
from http import HTTPStatus
from typing import Any

import httpx2

from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.options import ROOT
from finishline.client.errors import Unavailable
from finishline.client.transport import TIMEOUT, Retries, Transport, segment
from finishline.profiles import chosen_server

__all__ = ["ServerClient", "View", "connect", "segment"]

View = dict[str, Any]


def _wait(seconds: float) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"The server is busy; retrying in {seconds:.0f} s.\n")
    time.sleep(seconds)


# Python raises exactly these where an answer has for example a text for a number.
OF_OTHER_TYPES = (AttributeError, IndexError, KeyError, TypeError, ValueError)
WHEN_TOLD = Retries(count=5, pause=_wait, only_told=True)
VERSION_HEADER = "Finishline-Version"


class ServerClient(Transport):
    """A connection to one server, by default with the login's token for this address.

    It waits a minute at most, where the server asks. An unusable answer in `with` is a CliError.
    """

    _has_answered = False

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: httpx2.Timeout = TIMEOUT,
        retries: Retries = WHEN_TOLD,
    ) -> None:
        try:
            token = chosen_server(url, token).token
            super().__init__(url, token, timeout=timeout, retries=retries)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        wrong = raised[1]
        if type(wrong) in OF_OTHER_TYPES and self._has_answered:
            what = f"no field {wrong}" if isinstance(wrong, KeyError) else repr(wrong)
            raise CliError(
                f"Unexpected answer from {self.url}: {what}. Check --url, and that the server is "
                "as new as this command (`finishline --version`).",
                exit_code=ExitCode.SERVER,
            ) from wrong

    def _require_success(self, answer: httpx2.Response) -> None:
        is_ours = VERSION_HEADER in answer.headers
        # A proxy answers for a server that is down.
        if not is_ours and answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            told = f"{self.url} is not a Finishline server: its answer has no {VERSION_HEADER}."
            raise Unavailable(told, status=HTTPStatus.OK)
        super()._require_success(answer)

    def _document(self, answer: httpx2.Response) -> Any:
        self._has_answered = True
        return super()._document(answer)


def connect(*, timeout: httpx2.Timeout = TIMEOUT, retries: Retries = WHEN_TOLD) -> ServerClient:
    """Connect to the server of the root's flags, else of a login."""
    return ServerClient(ROOT.server, ROOT.token, timeout=timeout, retries=retries)
