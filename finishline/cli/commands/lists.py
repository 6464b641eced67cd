"""`finishline admin invite add`, `admin price add` and the price of an owned system.

Organisers keep lists in files: a class to invite, and a book of prices.
"""

import csv
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from finishline.api.people import Role
from finishline.cli.client import ServerClient, View
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import shows
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen, as_it_is
from finishline.client.errors import Problem
from finishline.rules.benchmarks.prices import Price
from finishline.rules.errors import RuleError
from finishline.rules.logs.source import read_csv
from finishline.rules.table import read_table
from finishline.rules.text import count_text

LIMIT_BYTES = 16 * 1024 * 1024
MOST_PEOPLE = 2000
DELIMITERS = (",;\t",)
NAMES = ("name", "full name", "student", "user", "login")
EMAILS = ("email", "e-mail", "mail", "e-mail address", "email address")
EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;]+")
NOT_IN_A_NAME = re.compile(r"[^\w.@ -]+")
LONGEST_NAME = 100
NUMBERS = {"usd_per_hour": float, "supersedes": int}
HOURS_PER_YEAR = 8760


def read_rows(path: Path) -> Iterator[tuple[int | None, dict[str, str]]]:
    """Yield each row's line and filled cells by the header. Raises CliError or RuleError."""
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise ValueError(f"more than {LIMIT_BYTES} bytes")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(f"Cannot read {path} ({why}). Expected a CSV with a header.") from error
    table = read_csv(content, file=path.name, separators=DELIMITERS, fewest=1)
    if twice := sorted(table.repeated - {""}):
        found, expected = f"{twice[0]!r} twice", "a name for each column"
        raise RuleError(found, file=path.name, line=1, expected=expected)
    for row in table.rows:
        yield row.line, {name.casefold(): str(cell) for name, cell in row.cells.items()}


Student = tuple[str | None, str | None]  # A name to propose, a mail address, or both.


def read_class(path: Path, *, domain: str | None = None) -> tuple[list[Student], list[str]]:
    """Read people by `name` and `email`, and report omissions. Raises CliError with all faults."""
    students: list[Student] = []
    notes, problems = [], []
    seen: dict[str, int | None] = {}
    for line, row in read_rows(path):
        email = next((row[column] for column in EMAILS if column in row), None)
        named = next((row[column] for column in NAMES if column in row), "")
        # A name as accounts have one: other characters become spaces.
        plain = " ".join(NOT_IN_A_NAME.sub(" ", named).split()).lstrip(".")
        name = plain[:LONGEST_NAME].strip() or None
        if email is not None and not EMAIL.fullmatch(email):
            problems.append(Problem(f"{email!r}", path.name, line, "email", "one mail address"))
        elif email and domain and not email.lower().endswith(f"@{domain.lower()}"):
            problems.append(Problem(f"{email!r}", path.name, line, "email", f"one at {domain}"))
        elif email is None and name is None:
            expected = "a value in a column name or email"
            problems.append(Problem("neither name nor address", path.name, line, None, expected))
        elif (key := (email or name or "").casefold()) in seen:
            notes.append(f"line {line} repeats line {seen[key]} ({email or name})")
        else:
            seen[key] = line
            students.append((name, email))
    if problems or not students or len(students) > MOST_PEOPLE:
        why = "" if problems else f" It names {len(students)} people; expected 1 to {MOST_PEOPLE}."
        raise CliError(f"Nobody was invited from {path}.{why}", problems=problems)
    return students, notes


@asks_server
def invite(
    server: ServerClient,
    screen: Screen,
    role: Annotated[Role, Option(help="Role of people who join.")] = "submitter",
    uses: Annotated[int, Option(min=1, help="How many people may join.")] = 1,
    until: Annotated[
        str | None, Option(metavar="DATE", help="Last day (default: in 7 days).")
    ] = None,
    domain: Annotated[str | None, Option(help="Domain of their mail addresses.")] = None,
    organisation: Annotated[str | None, Option(help="Organisation to join.")] = None,
    name: Annotated[str | None, Option(help="Name proposed to a single person.")] = None,
    approve: Annotated[
        bool, Option("--approve", help="Approve everyone who joins, as `admin user approve` does.")
    ] = False,
    file: Annotated[
        Path | None,
        Option("--from", metavar="FILE", help="CSV with name and email: a link for each."),
    ] = None,
) -> None:
    """Make a link by which one person joins, or a class (organisers). It is shown only once.

    With --from each person of a list gets a link, as CSV to send by mail merge.
    """
    if file is not None and name is not None:
        raise UsageError("Give --from or --name, not both.")
    asked = {"last_day": until, "mail_domain": domain, "organisation": organisation, "name": name}
    body: dict[str, object] = {"role": role} | ({"known": True} if approve else {})
    body |= {key: value for key, value in asked.items() if value is not None}
    if file is not None:
        _invite_class(server, file, body, screen)
        return
    view = server.post("/invitations", body | {"uses": uses})
    screen.answer(view, [as_it_is(view["link"])])
    _warn(view, screen)


def _invite_class(
    server: ServerClient, file: Path, body: Mapping[str, object], screen: Screen
) -> None:
    """Make a link for each person of a list. Each is written at once, because it is shown once."""
    domain = body.get("mail_domain")
    students, notes = read_class(file, domain=str(domain) if domain else None)
    made: list[View] = []
    table = csv.writer(sys.stdout, lineterminator="\n")
    if not screen.as_json:
        for note in notes:
            typer.echo(f"{file.name} {note}: left out.", err=True)
        table.writerow(("name", "email", "link"))
    for name, email in students:
        named = {} if name is None else {"name": name}
        view = server.post("/invitations", {**body, **named})
        made.append({"name": name, "email": email, "link": view["link"]})
        if not screen.as_json:
            table.writerow((name, email, view["link"]))
            sys.stdout.flush()
        if len(made) == 1:
            _warn(view, screen)
    if screen.as_json:
        screen.answer({"invitations": made, "left_out": notes}, [])


def _warn(view: View, screen: Screen) -> None:
    """Show the server's remark on a link on stderr, because stdout may go to a file."""
    if view.get("remark") and not screen.as_json:
        typer.echo(f"warning: {view['remark']}", err=True)


def read_prices(path: Path) -> list[Price]:
    """Read the prices in a CSV. Raises CliError, or RuleError with the place of a wrong price."""
    prices = []
    for line, row in read_rows(path):
        table = {name: _value(name, cell) for name, cell in row.items()}
        prices.append(read_table(Price, table, file=path.name, line=line))
    if not prices:
        raise RuleError("no prices", file=path.name, expected="at least one price")
    return prices


def _value(name: str, cell: str) -> object:
    """Convert a cell to its type. The rule refuses a text in place of a number."""
    try:
        number = NUMBERS[name](cell) if name in NUMBERS else cell
    except ValueError:
        return cell
    return cell if isinstance(number, float) and not math.isfinite(number) else number


@asks_server
def add_prices(
    server: ServerClient,
    screen: Screen,
    path: Annotated[Path, Argument(help="CSV with a header.")],
) -> None:
    """Add the prices of a file if all are valid (organisers only). Known prices are skipped."""
    bodies = [price.model_dump(mode="json") for price in read_prices(path)]
    view = server.post("/prices/import", {"prices": bodies})
    added = count_text(len(view["added"]), "price")
    told = f"{added} added, {view['already_there']} skipped as already known."
    screen.answer(view, [told])


@shows
def owned(
    screen: Screen,
    *,
    purchase_usd: Annotated[float, Option(min=0, max=1e10, help="US dollars of the purchase.")],
    years: Annotated[float, Option(min=0.01, max=100, help="Years until it is written off.")],
    utilisation: Annotated[float, Option(min=0.001, max=1, help="Fraction of the hours it works.")],
    watts: Annotated[float, Option(min=0, max=1e8, help="Power of the system at work.")],
    pue: Annotated[float, Option(min=1, max=10, help="Building power / system power.")],
    usd_per_kwh: Annotated[float, Option(min=0, max=1000, help="US dollars per kWh.")],
) -> None:
    """Print the price per hour of a system you own, and its formula, without storing it."""
    hours = years * HOURS_PER_YEAR * utilisation
    usd_per_hour = purchase_usd / hours + watts / 1000 * pue * usd_per_kwh
    formula = (
        f"{purchase_usd:.12g} / ({years:.12g} * {HOURS_PER_YEAR} * {utilisation:.12g})"
        f" + {watts:.12g} / 1000 * {pue:.12g} * {usd_per_kwh:.12g}"
    )
    screen.answer(
        {"usd_per_hour": usd_per_hour, "formula": formula},
        [f"{usd_per_hour:.6g} USD per hour = {formula}"],
    )
