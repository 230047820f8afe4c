"""`esnlm report RUN ... --html FILE`: one HTML file about runs and studies, with its styles and its
script.

Sections are blocks of plain data (blocks.py), which the template `page.html` shows; Jinja escapes
all text. `sections.py` has the sections of a run, and `several.py` the sections that compare runs
or show a study.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esnlm.base.console import say
from esnlm.base.errors import InputError
from esnlm.base.files import write_file
from esnlm.reports.html import several
from esnlm.reports.html.blocks import Section
from esnlm.reports.html.sections import SECTIONS, RunFiles
from esnlm.reports.run_groups import distinct_runs, tell_apart

MOST_LOADED = 4  # maximum number of runs whose models the page loads, for samples


def write_page(
    paths: Sequence[Path],
    out: Path,
    by_seed: bool = False,
    scoring: str = "paper",
    made_by: str | None = None,
) -> str:
    """Writes the page about run directories and the runs of studies. Returns a line to print.

    Args:
        by_seed: whether runs that differ only in their seed share one row of the tables.
        scoring: the convention of the minimal-pair report to show in full,
            evaluation/blimp-SCORING.json.
        made_by: the command, which the page shows.
    """
    studies = {
        folder: study for folder in paths if (study := several.read_study(folder)) is not None
    }
    found = [run for path in paths for run in (studies[path].runs if path in studies else [path])]
    folders = distinct_runs(found)
    if not folders:
        raise InputError(
            f"{paths[0]}: a study without a finished run: continue it with its command first"
        )
    runs = [RunFiles(folder, scoring, may_load=len(folders) <= MOST_LOADED) for folder in folders]
    tell_apart([run.row for run in runs], folders)

    shared = [(f"Study {study.name}", study.blocks) for study in studies.values()]
    if len(runs) > 1:
        # a study may have several seeds per cell
        shared += several.sections(runs, by_seed or bool(studies))
    content: dict[str, Any] = {"title": runs[0].name, "lead": runs[0].row["model"], "folded": []}
    if shared:
        content["title"] = (
            ", ".join(study.name for study in studies.values()) or f"{len(runs)} runs"
        )
        content["lead"] = (
            f"A study of {len(runs)} finished runs"
            if studies
            else ", ".join(run.name for run in runs)
        )
        content["folded"] = [(run.name, run.row["model"], _sections(run)) for run in runs]
    content["sections"] = shared or _sections(runs[0])
    try:
        import jinja2
    except ImportError:
        raise InputError("--html: needs Jinja (pip install 'esnlm[plots]')") from None
    settings: dict[str, Any] = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "undefined": jinja2.StrictUndefined,
    }
    loader = jinja2.PackageLoader("esnlm.reports", "html")
    template = jinja2.Environment(loader=loader, autoescape=True, **settings).get_template(
        "page.html"
    )
    # a path need not be Unicode
    page = template.render(**content, made_by=made_by).encode(errors="replace")
    write_file(out, page)
    return f"written: {out} ({len(page) / 1e3:,.0f} kB)"


def _sections(run: RunFiles) -> list[Section]:
    """Returns the sections of a run."""
    say(f"{run.name}: reading")
    found = [(title, render(run)) for title, render in SECTIONS.items()]
    return [(title, blocks) for title, blocks in found if blocks]
