"""Templates to HTML. The function of a page returns the context of its template."""

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from finishline.rules import ranking
from finishline.rules.benchmarks.quality import metric_words
from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.text import count_text, significant
from finishline.rules.verification.purposes import PURPOSES, is_in_box
from web import (
    assets,
    board_marks,
    board_table,
    citation,
    compare,
    entries,
    formats,
    home_words,
    names,
    progress,
    run_measurements,
    verdicts,
    workers,
)
from web.charts import CHARTS, curves, hardware, records, verification

TEMPLATES = Path(__file__).parent / "templates"
SITE_SECTIONS = (
    ("home", "/", "Benchmarks"),
    ("submissions", "/submissions", "Submissions"),
    ("compare", "/compare", "Compare"),
    ("workers", "/workers", "Workers"),
    ("docs", "/docs", "Docs"),
)
# Filters of the lists: statuses of submissions, states and outcomes of verifications.
VERDICTS = ("claimed", "verifying", "verified", "rejected", "inconclusive")
ENDS = (
    "queued",
    "running",
    "checking",
    "verified",
    "rejected",
    "inconclusive",
    "failed",
    "cancelled",
)
CLOCKS = {
    "dawnbench": "everything counts but evaluation",
    "mlperf": "evaluation counts, preparation is free up to 30 min (closed) or 4 h (open)",
    "speedrun": "training and its data count, the clock pauses at evaluations",
}
CLOCK_OF_PACKAGES = "kept outside the sandbox: data, training and evaluations count"
NO_FACTS = {"entries": 0}
RCP_VERDICTS = {
    "pass": "passes",
    "fail": "converges faster than the reference can",
    "missing": "no reference point to compare with",
    "published": "no reference point, the factor of its scaling.json",
}
# Functions that templates call by their own names.
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    assets.static_url, board_marks.board_plot, board_marks.whiskers,
    board_table.asks_what_if, board_table.board_address, board_table.board_query,
    board_table.board_tabs, board_table.column_links, board_table.is_filtered,
    board_table.kind_link, board_table.offered_columns, board_table.offered_metrics,
    board_table.pages_of, board_table.shown_columns, board_table.shown_value,
    board_table.sort_link, board_table.sort_state, board_table.target_range,
    board_table.unfiltered_link,
    board_table.why_unranked, citation.bibtex, citation.plain_citation, compare.compare_link,
    compare.comparison_groups, compare.only_differences, compare.pair_sentence, compare.probability,
    compare.side_names, curves.left_out, curves.overlaid_curves, curves.run_times_chart,
    entries.determinism_words, entries.factor_rows, entries.outcome_word, entries.says_code,
    entries.trust_words, entries.why_not_measured, formats.time_format, hardware.roofline_chart,
    home_words.console_sections_of, home_words.families, home_words.round_id, home_words.round_name,
    home_words.short_title, home_words.shown_families, is_in_box, names.entry_title,
    names.evidence_meaning, names.hardware, names.models_differ, names.models_lead, names.row_name,
    names.separation_words, names.tuning_words, progress.chosen_ghost, progress.claims_nothing,
    progress.expected_evaluations, progress.ghost_label, progress.kind_word, progress.may_cancel,
    progress.off_class, progress.progress_of, progress.run_rows, progress.signed,
    progress.split_rows, progress.state_sentence, progress.whole_runs, ranking.busy_words,
    ranking.check_of_row, ranking.check_words, ranking.evidence_word, ranking.evidence_words,
    ranking.place_words, ranking.ranked_seconds, records.board_names, records.record_sparkline,
    run_measurements.ledger_bars, run_measurements.measured_columns, run_measurements.phases_used,
    run_measurements.stated_settings, run_measurements.why_no_utilisation,
    verdicts.reads_between_evaluations, verdicts.standing_words, verdicts.verdict_checks,
    verdicts.why_not_timed, verification.convergence_chart, verification.counted_pairs,
    verification.head_to_head_chart,
    workers.box_text, workers.canary_line, workers.class_sentence, workers.doing_sentence,
    workers.expected_text, workers.off_text, workers.queue_sentence, workers.roof_name,
    workers.run_text, workers.speed_text, workers.subject_of, workers.worker_state,
)  # fmt: skip
FILTERS: tuple[Callable[..., Any], ...] = (
    formats.age, formats.breakable, formats.calendar, formats.day, formats.device_time,
    formats.duration, formats.energy, formats.milliseconds, formats.minute, formats.money,
    formats.number, formats.percent, formats.price, formats.quality, formats.seconds_exact,
    significant, formats.small_money, formats.unbroken, formats.visible, formats.web_address,
    formats.web_host, names.byline, compare.ratio,
)  # fmt: skip


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
    made.filters.update({each.__name__: each for each in FILTERS})
    made.filters.update(counted=count_text, metric=metric_words)
    made.globals.update({each.__name__: each for each in FUNCTIONS})
    made.globals.update(
        accelerator_of=names.accelerator_of_system,
        board_charts=CHARTS,
        clock_of_packages=CLOCK_OF_PACKAGES,
        clocks=CLOCKS,
        compare_letters=compare.LETTERS,
        evidence_meanings=names.MEANINGS,
        has_proof=has_proof,
        kept_by_form=board_table.KEPT_BY_FORM,
        kinds_asked_for=progress.KINDS_ASKED_FOR,
        metrics=board_table.METRICS,
        no_facts=NO_FACTS,
        pair_seen_from=compare.against,
        plotly_styles=assets.style_ids,
        rcp_verdicts=RCP_VERDICTS,
        round_views=home_words.SHOWN,
        site_sections=SITE_SECTIONS,
        time=formats.SECONDS,
        verdict_words=VERDICTS,
        verification_words=ENDS,
        version=version("finishline-server"),
        waivable_rules=WAIVABLE,
    )
    return made


def has_proof(name: str) -> bool:
    """Whether jobs of a purpose leave a proof: those whose runs measure a configuration."""
    return PURPOSES[name].fills_pool
