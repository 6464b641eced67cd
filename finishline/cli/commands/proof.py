"""`finishline proof` and `admin audit`: check a proof or an audit log."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from operator import index
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from finishline.cli.bundles import (
    BUNDLE_LIMIT_BYTES,
    Checked,
    check_bundle,
    check_export,
    keys_in,
    read_keys,
)
from finishline.cli.client import ServerClient, connect, segment
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.listings import table_of
from finishline.cli.options import ROOT, Limit, shows
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen
from finishline.cli.tables import make_table, status_text
from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError, StatisticsMissingError
from finishline.rules.proof.hash_chain import check_chain, has_head
from finishline.rules.text import count_text

IN_BROWSER = (
    "Without it the server's page /proof checks signature, hashes and seal, but no verdict."
)
FILE_ENDINGS = (".zip", ".json")
LOG_LIMIT_BYTES = 1024 * 1024 * 1024
PAGE = 1000
Record = dict[str, Any]
# Checks that derive figures by rules. At the verdict other rules may have been in force.
DERIVED = frozenset({"score", "band", "verdict"})


@shows
def proof(
    screen: Screen,
    name: Annotated[
        str | None,
        Argument(
            metavar="VERIFICATION|FILE|FOLDER",
            help="Id of a verification, its proof in a file, or the folder of an export.",
        ),
    ] = None,
    key: Annotated[
        Path | None, Option(help="The server's public key: hex, or the JSON of /api/v1/keys.")
    ] = None,
    log: Annotated[
        Path | None, Option(help="Check an audit log instead, written by `admin audit --out`.")
    ] = None,
    head: Annotated[str | None, Option(help="Head of the log, noted earlier.")] = None,
) -> ExitCode:
    """Check that a verdict follows from its evidence. A file is checked offline.

    For a file, pass the server's public key with --key. For an id, proof and keys come from the
    server. A server's export is checked file by file against signed hashes. The exit code is 0 if
    every check passes, else 1.
    """
    if (name is None) == (log is None):
        raise UsageError("Pass a verification id, a proof file, or an audit log with --log.")
    if log is not None:
        return _check_log(log, head, screen)
    assert name is not None  # noqa: S101  exactly one of the two is given
    keys = read_keys(key) if key is not None else []
    if Path(name).is_dir():
        checked = check_export(Path(name), keys)
        noted = str(_part(checked.document, "audit_head").get("sha256", "?"))[:64]
        made = str(checked.document.get("made_at"))[:40]
        told = f"Export of {made}, head of the audit log {noted}"
        return _answer(checked, Text(told), screen)
    offline = is_file(name)
    if offline:
        with Path(name).open("rb") as file:
            content = file.read(BUNDLE_LIMIT_BYTES + 1)
    else:
        content, listed = _fetch(name, with_keys=key is None)
        keys = keys or listed
    try:
        checked = check_bundle(content, keys)
    except StatisticsMissingError as error:
        told = f"Nothing was checked. {error} {IN_BROWSER}"
        raise CliError(told, exit_code=ExitCode.SERVER) from error
    given = _part(checked.document, "verification").get("id", name)
    if not offline and given != name:  # Even if it is sound.
        raise CliError(
            f"The server gave the proof of verification {str(given)[:60]!r}; expected that of "
            f"{name!r}.",
            exit_code=ExitCode.SERVER,
        )
    verification, submission, of_benchmark, outcome = (
        str(_part(checked.document, part).get(field, "?"))[:60]
        for part, field in (
            ("verification", "id"),
            ("submission", "id"),
            ("benchmark", "id"),
            ("verdict", "outcome"),
        )
    )
    told = f"Verification {verification} of submission {submission}, {of_benchmark}: {outcome}"
    return _answer(checked, Text(told), screen)


def _answer(checked: Checked, headline: Text, screen: Screen) -> ExitCode:
    view = {"passed": not checked.failed, "checks": [asdict(check) for check in checked.checks]}
    screen.answer(view, [headline, *_lines(checked)])
    return ExitCode.REFUSED if checked.failed else ExitCode.OK


def is_file(name: str) -> bool:
    """Whether a name is a file's: it has a slash or an ending, unlike an id."""
    return name.endswith(FILE_ENDINGS) or "/" in name or Path(name).is_file()


def _fetch(verification: str, *, with_keys: bool) -> tuple[bytes, list[bytes]]:
    with connect() as server:
        path = f"/verifications/{segment(verification)}/proof"
        content = server.download(path, limit_bytes=BUNDLE_LIMIT_BYTES)
        listed = server.get("/keys") if with_keys else {"keys": []}
    try:
        keys = keys_in(listed)
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(
            f"{ROOT.server} did not return valid public keys ({error!r}).",
            exit_code=ExitCode.SERVER,
        ) from error
    return content, keys


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _lines(checked: Checked) -> list[RenderableType]:
    failed = checked.failed
    unmade = [check.name for check in checked.checks if check.result == "open"]
    table = make_table("check", "result", "compared")
    for check in checked.checks:
        compared = f"{check.compared}: {check.why}" if check.why else check.compared
        table.add_row(check.name, status_text(check.result), compared)
    lines: list[RenderableType] = [table]
    lines += waiver_lines(checked.document)
    if unmade:
        lines.append(Text(f"Not checked: {', '.join(unmade)}.", style="yellow"))
    if failed:
        lines.append(Text(f"Do not rely on this: {', '.join(failed)} failed.", style="bold red"))
        if DERIVED.issuperset(failed):
            code = _part(checked.document, "code")
            commit = f", commit {str(code['commit'])[:60]}" if code.get("commit") else ""
            told = (
                "The signed evidence is intact, but these rules lead to another result. The "
                f"verdict was reached by Finishline {str(code.get('version'))[:60]}{commit}; "
                "check with that one too."
            )
            lines.append(Text(told))
    else:
        lines.append(Text("Every check that could be made passed.", style="bold green"))
    return lines


def waiver_lines(document: Mapping[str, Any]) -> list[Text]:
    waivers = _part(document, "submission").get("waivers")
    listed = waivers if isinstance(waivers, list) else []
    return [
        Text(
            f"Waived by {each.get('by')}: {each.get('rule')}. {each.get('reason')}", style="yellow"
        )
        for each in listed
        if isinstance(each, Mapping)
    ]


@asks_server
def audit_log(
    server: ServerClient,
    screen: Screen,
    out: Annotated[Path | None, Option(help="Write the whole log to this file (JSON).")] = None,
    limit: Limit = 50,
) -> None:
    """Show the audit log, newest first, or write all of it to a file."""
    if out is None:
        page = server.get("/audit", limit=limit)
        screen.answer(page, [table_of("records", page["records"])])
        return
    page = server.get("/audit", limit=PAGE)
    records = page["records"]
    while page["next_before"] is not None:
        page = server.get("/audit", before=page["next_before"], limit=PAGE)
        records += page["records"]
    write_log(out, records[::-1])
    view = {"file": str(out), "records": len(records)}
    told = f"{count_text(len(records), 'record')} in {out}; `finishline proof --log {out}`."
    screen.answer(view, [told])


def write_log(path: Path, records: list[Record]) -> None:
    """Write records for `proof --log`."""
    path.write_text(json.dumps({"records": records}, ensure_ascii=False, indent=1) + "\n")


def _read_log(path: Path) -> list[Record]:
    try:
        if path.stat().st_size > LOG_LIMIT_BYTES:
            raise ValueError(f"more than {LOG_LIMIT_BYTES} bytes")
        records = read_json(path.read_bytes(), file=path.name)["records"]
        return sorted((dict(item) for item in records), key=lambda item: index(item["id"]))
    except (OSError, RuleError, KeyError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(
            f"No audit log in {path} ({why}). Expected a file written by "
            "`finishline admin audit --out`."
        ) from error


def _check_log(path: Path, head: str | None, screen: Screen) -> ExitCode:
    records = _read_log(path)
    chain = check_chain(records)
    problems = [str(problem) for problem in chain.problems]
    if head is not None and not has_head(records, head):
        problems.append(f"head {head} is not in the log: the log was cut off or rewritten")
    view = {
        "whole": not problems,
        "records": chain.records,
        "head": asdict(chain.head),
        "redacted": chain.redacted,
        "problems": problems,
    }
    told = f"{count_text(chain.records, 'record')}, head {chain.head.sha256}"
    if chain.redacted:
        told += f"; in {count_text(chain.redacted, 'record')} the name of an erased person"
    lines = [Text(f"  {problem}", style="bold red") for problem in problems]
    whole = [Text("Every record matches its hash.", style="bold green")]
    screen.answer(view, [told, *(lines or whole)])
    return ExitCode.REFUSED if problems else ExitCode.OK
