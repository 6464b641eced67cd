"""Templates to HTML.

Contexts (views as dicts, as the API answers them; names after "optional" may be left out):

home.html          benchmarks (BenchmarkView + "records" of the division with the lowest), live
                   (LiveLine), live_count, verdicts (VerdictLine)
convergence.html   benchmark, convergence
benchmark.html     benchmark, board, filters (current query values); optional explanation (text)
submission.html    submission; optional benchmark, curves (runs with "file" and "curve")
inference.html     submission (of inference), benchmark
verification.html  verification, submission; optional against (a duel's holder)
workers.html       workers
docs.html          document (name, address, title, description, html, headings, is_index),
                   chapters, decisions (name, address, title)
prices.html        prices, filters (current query values), query (their text, with its "?")
error.html         status, title, detail, problems

console/sign_in.html  next (where to go), out (signed out just now), error (a sentence or None)
console/*.html        account (name, role), csrf, notices (text, once_only), typed (what the fields
                      hold), errors (a sentence by field), refusal (a sentence or None); and:
  account.html        submissions, more, tokens, own_token, token_expires_at, session_ends_at
  overview.html       pending, under_way, out (workers), failed (attempts), calibrations
  verify.html         preview (None), benchmarks, statuses_to_choose, under_way; or
                      preview (BatchView), kind, shown (ids), back (an address)
  duels.html          duels
  decisions.html      pending
  decision.html       submission, standing, waiting, comparison (ComparisonView or None)
  calibrations.html   calibrations, benchmarks
  calibration.html    calibration
  prices.html         prices
  audit.html          records, actions, filters, head, older (address of the next page or None)
  tokens.html         tokens, own_token
"""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from web import board_links, formats
from web.assets import static_url
from web.console_pages import CONSOLE_PAGES
from web.families import families, short_title
from web.ledger import ledger_bars, phases_used
from web.progress import expected_evaluations, kind_word, replay_rows, side_of, state_sentence
from web.sparkline import record_sparkline

TEMPLATES = Path(__file__).parent / "templates"
SITE_SECTIONS = (
    ("home", "/", "Benchmarks"),
    ("compare", "/compare", "Compare"),
    ("workers", "/workers", "Workers"),
    ("docs", "/docs", "Docs"),
    ("api", "/docs/api", "API"),
)
CLOCKS = {
    "dawnbench": "everything counts but evaluation",
    "mlperf": "evaluation counts, preparation is free up to 30 min (closed) or 4 h (open)",
    "speedrun": "training and its data count, the clock pauses at evaluations",
}
RCP_VERDICTS = {
    "pass": "passes",
    "fail": "converges faster than the reference can",
    "missing": "no reference point to hold it against",
}


def render(template: str, **context: Any) -> str:
    """The page of a template. Raises jinja2.UndefinedError if the context lacks a name."""
    return environment().get_template(template).render(context)


@cache
def environment() -> Environment:
    """The one environment of the process: escapes everything, compiles each template once."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        age=formats.age,
        day=formats.day,
        duration=formats.duration,
        milliseconds=formats.milliseconds,
        minute=formats.minute,
        money=formats.money,
        number=formats.number,
        percent=formats.percent,
        price=formats.price,
        quality=formats.quality,
        seconds_exact=formats.seconds_exact,
        small_money=formats.small_money,
        web_address=formats.web_address,
        web_host=formats.web_host,
    )
    made.globals.update(
        board_query=board_links.board_query,
        clocks=CLOCKS,
        console_pages=CONSOLE_PAGES,
        expected_evaluations=expected_evaluations,
        families=families,
        group_leaders=board_links.group_leaders,
        interval=formats.interval,
        is_filtered=board_links.is_filtered,
        kind_link=board_links.kind_link,
        kind_word=kind_word,
        ledger_bars=ledger_bars,
        metrics=board_links.METRICS,
        phases_used=phases_used,
        rank_label=formats.rank_label,
        rcp_verdicts=RCP_VERDICTS,
        record_sparkline=record_sparkline,
        replay_rows=replay_rows,
        short_title=short_title,
        side_of=side_of,
        site_sections=SITE_SECTIONS,
        sort_link=board_links.sort_link,
        sort_state=board_links.sort_state,
        state_sentence=state_sentence,
        static_url=static_url,
        statuses=board_links.STATUSES,
        version=version("finishline"),
    )
    return made
