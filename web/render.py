"""Templates to HTML.

Contexts (views as dicts, as the API answers them; names after "optional" may be left out):

home.html          benchmarks (BenchmarkView + "records" of the division with the lowest), live
                   (LiveLine), live_count, verdicts (VerdictLine)
convergence.html   benchmark, convergence
benchmark.html     benchmark, board, filters (current query values); optional explanation (text),
                   facets (what is on the whole board), problems (what of a query was refused)
submission.html    submission; optional benchmark, curves (runs with "file" and "curve")
inference.html     submission (of inference), benchmark
verification.html  verification, submission; optional against (a duel's holder)
workers.html       workers
docs.html          document (name, address, title, description, html, headings, is_index),
                   chapters, decisions (name, address, title)
error.html         status, title, detail, problems
"""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from web import board_links, board_table, formats
from web.assets import static_url
from web.families import families, short_title
from web.ledger import ledger_bars, phases_used
from web.progress import expected_evaluations, kind_word, replay_rows, side_of, state_sentence
from web.sparkline import record_sparkline
from web.target_range import target_range

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
        energy=board_table.energy,
        milliseconds=formats.milliseconds,
        minute=formats.minute,
        money=formats.money,
        number=formats.number,
        percent=formats.percent,
        quality=formats.quality,
        rate=board_table.rate,
        seconds_exact=formats.seconds_exact,
        small_money=formats.small_money,
        web_address=formats.web_address,
    )
    made.globals.update(
        asks_what_if=board_links.asks_what_if,
        beside_hardware=board_table.beside_hardware,
        board_columns=board_table.board_columns,
        board_query=board_links.board_query,
        clocks=CLOCKS,
        columns_by_name=board_table.columns_by_name,
        expected_evaluations=expected_evaluations,
        families=families,
        group_leaders=board_table.group_leaders,
        group_starts=board_table.group_starts,
        hardware=board_table.hardware,
        interval=formats.interval,
        is_filtered=board_links.is_filtered,
        kind_link=board_links.kind_link,
        kind_word=kind_word,
        ledger_bars=ledger_bars,
        metrics=board_links.METRICS,
        pages_of=board_links.pages_of,
        phases_used=phases_used,
        present_figures=board_table.present_figures,
        rank_label=formats.rank_label,
        rcp_verdicts=RCP_VERDICTS,
        record_sparkline=record_sparkline,
        replay_rows=replay_rows,
        shared_groups=board_table.shared_groups,
        short_title=short_title,
        shown_value=board_links.shown_value,
        side_of=side_of,
        site_sections=SITE_SECTIONS,
        sort_link=board_links.sort_link,
        sort_state=board_links.sort_state,
        state_sentence=state_sentence,
        static_url=static_url,
        statuses=board_links.STATUSES,
        version=version("finishline"),
        target_range=target_range,
    )
    return made
