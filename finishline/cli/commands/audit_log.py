"""`finishline audit-log`: who changed what and why (organisers only)."""

from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.audit_logs import fetch_log, write_log
from finishline.cli.client import ServerClient
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Limit, Token, Url
from finishline.cli.organiser_tables import audit_table
from finishline.cli.screen import open_screen
from finishline.rules.text import count_text


def audit_log(
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the whole log to this file (JSON).")
    ] = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show the audit log, newest first, or keep the whole of it in a file."""
    screen = open_screen(as_json=as_json)
    with ServerClient(url, token) as server:
        if out is None:
            page = server.get("/audit", limit=limit)
            screen.answer(page, [audit_table(page["records"])])
            return int(ExitCode.OK)
        records = fetch_log(server)
    write_log(out, records)
    view = {"file": str(out), "records": len(records)}
    told = f"{count_text(len(records), 'record')} in {out}; `finishline check-proof --log {out}`."
    screen.answer(view, [told])
    return int(ExitCode.OK)
