"""Templates to HTML. The function of a page returns the context of its template."""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from finishline.rules import ranking
from finishline.rules.benchmarks.quality import metric_words
from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.text import count_text, significant
from finishline.rules.verification.purposes import ASKED_FOR, PURPOSES, is_in_box
from web import (
    assets,
    board_table,
    citation,
    compare,
    entries,
    formats,
    home_words,
    marks,
    names,
    progress,
    run_measurements,
)
from web.charts import curves, hardware, records, verification

TEMPLATES = Path(__file__).parent / "templates"
# Templates call the public functions of these modules by their own names.
MODULES = (
    assets, board_table, citation, compare, curves, entries, formats, hardware, home_words,
    marks, names, progress, ranking, records, run_measurements, verification,
)  # fmt: skip


def render(template: str, **context: Any) -> str:
    """The page of a template. Raises jinja2.UndefinedError if the context lacks a name."""
    return environment().get_template(template).render(context)


@cache
def environment() -> Environment:
    """The environment of the process: escapes everything, compiles each template once."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(_functions(formats), byline=names.byline, significant=significant)
    made.filters.update(counted=count_text, metric=metric_words)
    for module in MODULES:
        made.globals.update(_functions(module))
    made.globals.update(
        accelerator_of=names.accelerator_of_system,
        is_in_box=is_in_box,
        kept_by_form=board_table.KEPT_BY_FORM,
        kinds_asked_for=[
            (name, progress.kind_word({"kind": name}).capitalize(), PURPOSES[name].words.about)
            for name in ASKED_FOR
        ],
        metrics=board_table.METRICS,
        plotly_styles=assets.style_ids,
        purposes=PURPOSES,
        round_views=home_words.SHOWN,
        time=formats.SECONDS,
        version=version("finishline-server"),
        waivable_rules=WAIVABLE,
    )
    return made


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    """The public functions that a module defines, by name."""
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, FunctionType)
        and found.__module__ == module.__name__
        and not name.startswith("_")
    }
