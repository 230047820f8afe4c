"""Puts the page together: one file, with its styles and its script in it, that asks for nothing outside."""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.atomic import write_file
from esnlm.io.console import say
from esnlm.reporting.html import several, study
from esnlm.reporting.html.blocks import Section
from esnlm.reporting.html.files import RunFiles
from esnlm.reporting.html.sections import SECTIONS
from esnlm.reporting.run_groups import tell_apart

MOST_LOADED = 4  # runs of a page whose models are loaded, for samples and eigenvalues
# Characters that no text needs and that HTML forbids, and half surrogate pairs, which UTF-8 cannot write.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def write_page(
    paths: Sequence[Path], out: Path, by_seed: bool = False, scoring: str = "paper", made_by: str | None = None
) -> str:
    """Writes the page of run directories, and of studies, which stand for their runs. Returns the line that says so.

    Args:
        by_seed: whether the table of several runs makes one row of those that differ in nothing but their seed.
        scoring: which report on minimal pairs is shown in full, evaluation/blimp-SCORING.json.
        made_by: the command, to stand on the page.
    """
    studies = {folder: tree for folder in paths if (tree := study.read(folder)) is not None}
    found = [run for path in paths for run in (studies[path]["runs"] if path in studies else [path])]
    folders = list({folder.resolve(): folder for folder in found}.values())  # each once
    if not folders:
        raise InputError(f"{paths[0]}: a study without a finished run: go on with its command first")
    runs = [RunFiles(folder, scoring, may_load=len(folders) <= MOST_LOADED) for folder in folders]
    tell_apart([run.row for run in runs], folders)

    shared = [Section(f"Study {tree['study']}", study.render(tree)) for tree in studies.values()]
    if len(runs) > 1:
        # A study asks for several seeds of each cell, so its table has a row a cell. Trials of a search stand alone.
        is_search = any(tree.get("kind") == "search" for tree in studies.values())
        shared += several.sections(runs, not is_search and (by_seed or bool(studies)))
    content: dict[str, Any] = {"title": runs[0].name, "lead": runs[0].row["model"], "folded": []}
    if shared:
        content["title"] = ", ".join(tree["study"] for tree in studies.values()) or f"{len(runs)} runs"
        content["lead"] = f"A study of {len(runs)} finished runs" if studies else ", ".join(run.name for run in runs)
        content["folded"] = [(run.name, run.row["model"], _sections(run)) for run in runs]
    content["sections"] = shared or _sections(runs[0])
    page = str(_template().render(**content, made_by=made_by)).lstrip()
    write_file(out, page)
    return f"written: {out} ({len(page.encode()) / 1e3:,.0f} kB)"


def _sections(run: RunFiles) -> list[Section]:
    """Returns the sections of a run."""
    say(f"{run.name}: reading")
    found = [Section(title, render(run)) for title, render in SECTIONS.items()]
    run.__dict__.pop("loaded", None)  # gives back the memory of the model
    return [each for each in found if each.blocks]


def _template() -> Any:
    """Returns the template, with styles and script. The page's policy lets a browser run this script only."""
    try:
        import jinja2
    except ImportError:
        raise InputError("--html: needs Jinja (pip install 'esnlm[plots]')") from None
    folder = resources.files(__package__)
    style, script, page = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js", "page.html"))

    def writable(value: object) -> object:
        return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value

    settings: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(autoescape=True, finalize=writable, **settings)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(style=style, script=script, digest=digest)
    return environment.from_string(page)
