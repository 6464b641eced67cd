"""Templates to HTML.

Contexts (views as dicts, as the API answers them; names after "optional" may be left out):

home.html          benchmarks (BenchmarkView, "records" of the division with the lowest, "time",
                   "best_claim"), live (LiveLine), live_count, verdicts (VerdictLine); optional
                   round (an id), counts (by evidence), race (line and picture)
convergence.html   benchmark, convergence
benchmark.html     benchmark, board, filters (current query values); optional explanation (text),
                   facets (values on the whole board), problems (refused fields of a query),
                   dates (of its phases: event and moment), trainings ("trust", "runs", "halves"),
                   held (its record, where the "first" row does not hold it, or None)
board_chart.html   benchmark, chart (BoardChart), about, table, empty (why nothing is drawn,
                   or None), board (None for records), note (or None), choices, query,
                   against_links, board_link, filters
ideas.html         benchmark, board, facts, dates, trainings, filters, classes (name, lines of
                   code submissions with their "branches"), most (code submissions)
submission.html    submission, benchmark, tab, checks (verifications with reasons, newest first),
                   place (with the places "around" it, or None), shown (the verification of the
                   first tab, as verification.html has it, or None), picture (of its own runs,
                   where nothing is shown), curves (runs with "file" and "curve", an even sample),
                   entry (of a code submission: "code submission", "source", "parent", "halves",
                   "trainings", "measurements", "runs_in_short"; else None), measured, actions,
                   no_room, unable, site (an address), embargo_until, may_withdraw; optional held
                   (the record of its board, if it holds it or has a lower time, or None)
package_difference.html
                   pair, old and new (in short), files (lines with "kind" and "text")
run.html           submission, benchmark, run, picture (or None), first (a line's number), lines,
                   page, goes_on (whether there are more), is_cut (where pages end before the log)
race_page.html     verification, submission (or None), against, picture (or None)
request.html       submission, epochs_alone, expected (runs, seconds, accelerators, basis), no_room,
                   free
submissions.html   rows, filters, is_filtered, older and newest (addresses of other pages or None),
                   benchmarks (ids), address
verifications.html as submissions.html
search.html        words, groups (names with addresses by heading), near (names)
install.html       site (an address), source (an address or None), commit (or None)
docs.html          document (name, address, title, description, html, headings, is_index),
                   chapters, decisions (name, address, title)
round.html         family (Family), benchmarks (BenchmarkViews), matrix (Matrix), divisions,
                   division, show
results.html       kind (accelerator or submitter), name, results, most, benchmarks (by id), times
                   (by benchmark and division)
compare.html       ids, chosen, unknown, problem (text or None), comparison (or None), submissions,
                   pick (board entries), ranks, rows, most; with a comparison benchmark
calibrations.html  boards (id, title, calibrations with "judges"), chosen (id and title, or None)
calibration.html   calibration, comparison, benchmark, judging (an id or None), others
verification_comparison.html
                   comparison, submission, benchmark, sides (two VerificationViews)
verification.html  shown (verification, race, picture or None, ghost (its role), place (of the
                   queue: "queue" of its class and "item", or None), halves (whether a second half
                   of the test items judges an entry), untimed (names of its runs that measure no
                   time, by index)), submission (or None), benchmark_title;
                   optional against (its holder)
workers.html       workers; optional queue, readings (of speed checks, newest first, by worker)
worker.html        worker, attempts, roofline, probes
api_reference.html openapi_url, assets (where Swagger UI is served)
proof.html         keys (the JSON of /api/v1/keys)
prices.html        prices, filters (current query values), query (their text, with its "?")
join.html          code, link (InvitationView or None), typed, errors, refusal
mail_link.html     address, purpose (confirm or unsubscribe), done
error.html         status, title, detail, problems

openid.html        address (to go on to)

console/sign_in.html  provider (its name or None), registers,
                      next (where to go), out (signed out just now), error (a sentence or None)
console/*.html        account (name, role), notice (text, once_only), typed (values
                      of the fields), errors (a sentence by field), refusal (or None); and:
  account.html        me (MeView), submissions, before (whether later ones are on pages before),
                      older (address of the next page or None), tokens, quota,
                      own_token, provider (or None), session_ends_at, roles,
                      may_change (tokens)
  overview.html       pending, under_way, out (workers), failed (attempts), calibrations
  submissions.html    as submissions.html
  benchmarks.html     benchmarks (id, title, version, entries, is_added), chosen (one or None),
                      problems (of the files)
  verify.html         preview (None), benchmarks, statuses_to_choose, under_way; or
                      preview (BatchView), kind, shown (ids), back (an address)
  head_to_heads.html  head_to_heads, sides (challenger and holder, "id" and "words", or None),
                      offered (opponents: id and words), cost (of both sides chosen, or None)
  decisions.html      pending
  decision.html       submission, standing (or None), waiting, headline, rows, dots, comparison
                      (or None), next (the id of another that waits, or None), left
  calibrations.html   calibrations, benchmarks
  calibration.html    calibration
  prices.html         prices
  quotas.html         quotas (QuotaList), chosen (QuotaView or None)
  phases.html         benchmarks (id, title, phases), chosen (None, or such a one with its history)
  audit.html          rows, actions, filters, head, older (address of the next page or None)
  tokens.html         tokens, own_token, roles (that may be given), filters
  invitations.html    links (InvitationView), roles, organisations
  users.html          users (UserView), organisations, roles, filters, next_page (an address or
                      None)
  user.html           user (UserView), tokens, organisations, roles, address, is_self
  submit.html         problems (of the files), benchmarks, hosts (both to choose), preview
                      (SubmissionPreview or None) with title, unit and time_unit (of its
                      benchmark)
  notices.html        hooks, mails, kinds (name, meaning), benchmarks, sends_mail
  webhook.html        hook, deliveries
  preview.html        benchmark, board, facets, filters, kinds, problems
"""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from finishline.rules.ranking import (
    busy_words,
    check_of_row,
    check_words,
    evidence_word,
    evidence_words,
    place_words,
    ranked_seconds,
)
from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.text import count_text
from finishline.rules.verification.purposes import PURPOSES, is_in_box
from web import board_table, formats, names
from web.assets import static_url, style_ids
from web.board_marks import not_separated, time_bars
from web.board_table import target_range
from web.board_tabs import board_address, board_tabs
from web.chart_parts import left_out
from web.charts import CHARTS, curves_figure
from web.citation import bibtex, plain_citation
from web.compare import (
    LETTERS,
    against,
    compare_link,
    comparison_groups,
    only_differences,
    pair_sentence,
    probability,
    ratio,
    side_names,
)
from web.compare_chart import overlaid_curves, run_times_figure
from web.curves_chart import convergence_figure
from web.entries import determinism_words, outcome_word, says_code, trust_words
from web.factors import factor_rows
from web.home_words import (
    COUNTERS,
    console_sections_of,
    families,
    round_id,
    round_name,
    short_title,
    shown_families,
)
from web.names import (
    MEANINGS,
    accelerator_of_system,
    evidence_meaning,
    separation_words,
    tuning_words,
)
from web.progress import (
    KINDS_ASKED_FOR,
    chosen_ghost,
    claims_nothing,
    expected_evaluations,
    ghost_label,
    kind_word,
    may_cancel,
    off_class,
    progress_of,
    replay_rows,
    run_rows,
    signed,
    split_rows,
    state_sentence,
    whole_runs,
)
from web.race import whiskers
from web.records_chart import record_sparkline
from web.replay_chart import head_to_head_figure, largest_shift
from web.rounds import SHOWN
from web.run_measurements import (
    ledger_bars,
    measured_columns,
    phases_used,
    stated_settings,
    why_no_utilisation,
)
from web.stamps import TABS, place_sentence, stamp_of, subject_title
from web.steps import convergence_unit, rank_steps, shown_steps
from web.verdicts import reads_between_evaluations, standing_words, verdict_checks
from web.workers import (
    box_text,
    canary_line,
    class_sentence,
    doing_sentence,
    expected_text,
    off_text,
    queue_sentence,
    roof_name,
    roofline_figure,
    run_text,
    speed_text,
    subject_of,
    worker_state,
)

TEMPLATES = Path(__file__).parent / "templates"
SITE_SECTIONS = (
    ("home", "/", "Leaderboards"),
    ("submissions", "/submissions", "Submissions"),
    ("compare", "/compare", "Compare"),
    ("workers", "/workers", "Workers"),
    ("docs", "/docs", "Docs"),
    ("submit", "/submit", "Submit"),
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
NO_COUNTS = {"claimed": 0, "measured": 0, "contradicted": 0, "total": 0}
NO_FACTS = {"entries": 0, "measured": 0, "updated": None}
RCP_VERDICTS = {
    "pass": "passes",
    "fail": "converges faster than the reference can",
    "missing": "no reference point to compare with",
    "published": "no reference point, the factor of its scaling.json",
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
        breakable=formats.breakable,
        byline=names.byline,
        counted=count_text,
        day=formats.day,
        device_time=formats.device_time,
        duration=formats.duration,
        milliseconds=formats.milliseconds,
        minute=formats.minute,
        money=formats.money,
        number=formats.number,
        percent=formats.percent,
        price=formats.price,
        ratio=ratio,
        quality=formats.quality,
        seconds_exact=formats.seconds_exact,
        significant=formats.significant,
        small_money=formats.small_money,
        unbroken=formats.unbroken,
        visible=formats.visible,
        web_address=formats.web_address,
        web_host=formats.web_host,
    )
    made.globals.update(
        bibtex=bibtex,
        board_charts=CHARTS,
        busy_words=busy_words,
        asks_what_if=board_table.asks_what_if,
        check_of_row=check_of_row,
        check_words=check_words,
        evidence_meaning=evidence_meaning,
        evidence_meanings=MEANINGS,
        evidence_word=evidence_word,
        evidence_words=evidence_words,
        place_words=place_words,
        place_sentence=place_sentence,
        separation_words=separation_words,
        ranked_seconds=ranked_seconds,
        board_columns=board_table.board_columns,
        chosen_columns=board_table.chosen_columns,
        column_links=board_table.column_links,
        kept_by_form=board_table.KEPT_BY_FORM,
        shown_columns=board_table.shown_columns,
        board_query=board_table.board_query,
        board_sections=board_table.board_sections,
        board_address=board_address,
        why_unranked=board_table.why_unranked,
        board_tabs=board_tabs,
        box_text=box_text,
        canary_line=canary_line,
        chosen_ghost=chosen_ghost,
        claims_nothing=claims_nothing,
        class_sentence=class_sentence,
        clocks=CLOCKS,
        clock_of_packages=CLOCK_OF_PACKAGES,
        compare_letters=LETTERS,
        compare_link=compare_link,
        comparison_groups=comparison_groups,
        convergence_unit=convergence_unit,
        doing_sentence=doing_sentence,
        console_sections_of=console_sections_of,
        columns_by_name=board_table.columns_by_name,
        expected_evaluations=expected_evaluations,
        expected_text=expected_text,
        counters=COUNTERS,
        factor_rows=factor_rows,
        families=families,
        shown_families=shown_families,
        no_counts=NO_COUNTS,
        ghost_label=ghost_label,
        hardware=names.hardware,
        entry_title=names.entry_title,
        models_differ=names.models_differ,
        models_lead=names.models_lead,
        row_name=names.row_name,
        round_id=round_id,
        round_views=SHOWN,
        accelerator_of=accelerator_of_system,
        has_proof=has_proof,
        is_in_box=is_in_box,
        is_filtered=board_table.is_filtered,
        kind_link=board_table.kind_link,
        unfiltered_link=board_table.unfiltered_link,
        kind_word=kind_word,
        may_cancel=may_cancel,
        kinds_asked_for=KINDS_ASKED_FOR,
        left_out=left_out,
        largest_shift=largest_shift,
        ledger_bars=ledger_bars,
        measured_columns=measured_columns,
        metrics=board_table.METRICS,
        offered_metrics=board_table.offered_metrics,
        only_differences=only_differences,
        outcome_word=outcome_word,
        pair_seen_from=against,
        convergence_figure=convergence_figure,
        curves_figure=curves_figure,
        head_to_head_figure=head_to_head_figure,
        overlaid_curves=overlaid_curves,
        pair_sentence=pair_sentence,
        roofline_figure=roofline_figure,
        run_times_figure=run_times_figure,
        phases_used=phases_used,
        plain_citation=plain_citation,
        probability=probability,
        no_facts=NO_FACTS,
        nothing_measured=board_table.nothing_measured,
        not_separated=not_separated,
        off_class=off_class,
        off_text=off_text,
        queue_sentence=queue_sentence,
        plotly_styles=style_ids,
        pages_of=board_table.pages_of,
        present_figures=board_table.present_figures,
        reads_between_evaluations=reads_between_evaluations,
        rank_steps=rank_steps,
        rcp_verdicts=RCP_VERDICTS,
        record_sparkline=record_sparkline,
        progress_of=progress_of,
        replay_rows=replay_rows,
        run_rows=run_rows,
        roof_name=roof_name,
        round_name=round_name,
        run_text=run_text,
        short_title=short_title,
        shown_steps=shown_steps,
        shown_value=board_table.shown_value,
        says_code=says_code,
        site_sections=SITE_SECTIONS,
        side_names=side_names,
        signed=signed,
        sort_link=board_table.sort_link,
        sort_state=board_table.sort_state,
        state_sentence=state_sentence,
        speed_text=speed_text,
        split_rows=split_rows,
        stamp_of=stamp_of,
        static_url=static_url,
        submission_tabs=TABS,
        subject_title=subject_title,
        stated_settings=stated_settings,
        standing_words=standing_words,
        time=formats.SECONDS,
        time_bars=time_bars,
        time_format=formats.time_format,
        determinism_words=determinism_words,
        trust_words=trust_words,
        tuning_words=tuning_words,
        verdict_checks=verdict_checks,
        verdict_words=VERDICTS,
        waivable_rules=WAIVABLE,
        verification_words=ENDS,
        version=version("finishline-server"),
        subject_of=subject_of,
        why_no_utilisation=why_no_utilisation,
        whiskers=whiskers,
        whole_runs=whole_runs,
        worker_state=worker_state,
        target_range=target_range,
    )
    return made


def has_proof(name: str) -> bool:
    """Whether jobs of a purpose leave a proof: those whose runs measure a configuration."""
    return PURPOSES[name].fills_pool
