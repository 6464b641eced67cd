"""`finishline check-proof` and `audit-log`: check that a proof or a log is consistent."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from finishline.cli.bundles import (
    BUNDLE_LIMIT_BYTES,
    Checked,
    check_bundle,
    check_export,
    keys_in,
    read_file,
    read_keys,
)
from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.listings import table_of
from finishline.cli.options import DEFAULT_URL, Json, Limit, Token, Url
from finishline.cli.screen import Screen, open_screen
from finishline.cli.tables import make_table, status_text
from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError, StatisticsMissingError
from finishline.rules.proof.hash_chain import check_chain, has_head
from finishline.rules.text import count_text

IN_BROWSER = (
    "Without it the server's page /proof checks signature, hashes and seal, but no verdict."
)
FILE_ENDINGS = (".zip", ".json")
WHERE_THEY_ARE = "`finishline show SUBMISSION` lists a submission's verifications."
LOG_LIMIT_BYTES = 1024 * 1024 * 1024
PAGE = 1000
Record = dict[str, Any]
# Checks that derive figures by rules; at the verdict other rules may have been in force.
DERIVED = frozenset({"score", "band", "verdict"})


def check_proof_of(
    proof: Annotated[
        str | None,
        typer.Argument(
            metavar="VERIFICATION|FILE|FOLDER",
            help="Id of a verification, its proof in a file, or the folder of an export.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The server's public key: hex, or the JSON of /api/v1/keys."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", help="Check an audit log instead, written by `audit-log --out`."),
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", help="Head of the log, noted earlier.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Check that a verdict follows from its evidence. A file is checked offline.

    For a file, pass the server's public key with --key; for an id, proof and keys come from the
    server. A server's export is checked file by file against what was signed. The exit code is 0 if
    no check fails, else 1.
    """
    if (proof is None) == (log is None):
        raise CliError(
            "Pass a verification id, a proof file, or an audit log with --log.",
            exit_code=ExitCode.USAGE,
        )
    if log is not None:
        return _check_log(log, head, open_screen(as_json=as_json))
    assert proof is not None  # noqa: S101  exactly one of the two is given
    keys = read_keys(key) if key is not None else []
    if Path(proof).is_dir():
        checked = check_export(Path(proof), keys)
        head_of_log = checked.document.get("audit_head")
        noted = head_of_log.get("sha256") if isinstance(head_of_log, Mapping) else "?"
        made = str(checked.document.get("made_at"))[:40]
        told = f"Export of {made}, head of the audit log {str(noted)[:64]}"
        return _answer(checked, Text(told), as_json=as_json)
    offline = is_file(proof)
    if offline:
        content = read_file(Path(proof))
    else:
        content, listed = _fetch(url, token, proof, with_keys=key is None)
        keys = keys or listed
    try:
        checked = check_bundle(content, keys)
    except StatisticsMissingError as error:
        told = f"Nothing was checked. {error} {IN_BROWSER}"
        raise CliError(told, exit_code=ExitCode.SERVER) from error
    if not offline:
        _require_asked_for(checked.document, proof)
    return _answer(checked, _headline(checked.document), as_json=as_json)


def _answer(checked: Checked, headline: Text, *, as_json: bool) -> int:
    view = {
        "passed": not checked.failed,
        "checks": [asdict(check) for check in checked.checks],
    }
    open_screen(as_json=as_json).answer(view, [headline, *_lines(checked)])
    return int(ExitCode.REFUSED if checked.failed else ExitCode.OK)


def is_file(name: str) -> bool:
    """Whether a name is a file's and not an id: an id has neither a slash nor an ending."""
    return name.endswith(FILE_ENDINGS) or "/" in name or Path(name).is_file()


def _fetch(
    url: str, token: str | None, verification: str, *, with_keys: bool
) -> tuple[bytes, list[bytes]]:
    with ServerClient(url, token) as server:
        path = f"/verifications/{segment(verification)}/proof"
        try:
            content = server.download(path, limit_bytes=BUNDLE_LIMIT_BYTES)
        except CliError as error:
            if error.exit_code is ExitCode.NOT_FOUND:
                error.message += f" {WHERE_THEY_ARE}"
            raise
        listed = server.get("/keys") if with_keys else {"keys": []}
    try:
        keys = keys_in(listed)
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(
            f"{url} did not return valid public keys ({error!r}).", exit_code=ExitCode.SERVER
        ) from error
    return content, keys


def _require_asked_for(document: Mapping[str, Any], verification: str) -> None:
    """Raise CliError if a server gave the proof of another verification, however sound it is."""
    part = document.get("verification")
    found = part.get("id") if isinstance(part, Mapping) else verification
    if found != verification:
        raise CliError(
            f"The server gave the proof of verification {str(found)[:60]!r}; expected that of "
            f"{verification!r}.",
            exit_code=ExitCode.SERVER,
        )


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
            lines.append(_judged_by(checked.document))
    else:
        lines.append(Text("Every check that could be made passed.", style="bold green"))
    return lines


def waiver_lines(document: Mapping[str, Any]) -> list[Text]:
    """Rules that organisers waived for the submission, as the proof tells them."""
    submission = document.get("submission")
    waivers = submission.get("waivers") if isinstance(submission, Mapping) else None
    listed = waivers if isinstance(waivers, list) else []
    told = [each for each in listed if isinstance(each, Mapping)]
    return [
        Text(
            f"Waived by {each.get('by')}: {each.get('rule')}. {each.get('reason')}", style="yellow"
        )
        for each in told
    ]


def _judged_by(document: Mapping[str, Any]) -> Text:
    """Advice on a proof that is whole but follows from other rules than these."""
    code = document.get("code")
    told = code if isinstance(code, Mapping) else {}
    commit = f", commit {str(told['commit'])[:60]}" if told.get("commit") else ""
    return Text(
        "The signed evidence is intact, but these rules lead to another result. The verdict was "
        f"reached by Finishline {str(told.get('version'))[:60]}{commit}; check with that one too."
    )


def _headline(document: Mapping[str, Any]) -> Text:
    def word(part: str, name: str) -> str:
        table = document.get(part)
        return str(table.get(name))[:60] if isinstance(table, dict) else "?"

    return Text(
        f"Verification {word('verification', 'id')} of submission {word('submission', 'id')}, "
        f"{word('benchmark', 'id')}: {word('verdict', 'outcome')}"
    )


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
            screen.answer(page, [table_of("records", page["records"])])
            return int(ExitCode.OK)
        page = server.get("/audit", limit=PAGE)
        records = page["records"]
        while page["next_before"] is not None:
            page = server.get("/audit", before=page["next_before"], limit=PAGE)
            records += page["records"]
    write_log(out, records[::-1])
    view = {"file": str(out), "records": len(records)}
    told = f"{count_text(len(records), 'record')} in {out}; `finishline check-proof --log {out}`."
    screen.answer(view, [told])
    return int(ExitCode.OK)


def write_log(path: Path, records: list[Record]) -> None:
    """Keep records in a file that `audit --log` reads. Raises CliError."""
    try:
        path.write_text(json.dumps({"records": records}, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise CliError(
            f"Cannot write {path} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error


def _read_log(path: Path) -> list[Record]:
    """The records in a file, oldest first. Raises CliError."""
    try:
        if path.stat().st_size > LOG_LIMIT_BYTES:
            raise ValueError(f"more than {LOG_LIMIT_BYTES} bytes")
        records = read_json(path.read_bytes(), file=path.name)["records"]
        return sorted((_record(item) for item in records), key=lambda item: int(item["id"]))
    except (OSError, RuleError, KeyError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(
            f"No audit log in {path} ({why}). Expected a file written by "
            "`finishline audit-log --out`.",
            exit_code=ExitCode.REFUSED,
        ) from error


def _record(item: object) -> Record:
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), int):
        raise ValueError("a record without an id")
    return dict(item)


def _check_log(path: Path, head: str | None, screen: Screen) -> int:
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
    return int(ExitCode.REFUSED if problems else ExitCode.OK)
