"""Puts the page together: one file, with its styles, its script and its pictures in it, that asks for nothing outside."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from esnlm.errors import InputError, require
from esnlm.io.atomic import write_file
from esnlm.io.console import say
from esnlm.reporting import run_groups
from esnlm.reporting.html import several, study
from esnlm.reporting.html.markup import Html, Section, command, join, note, tag
from esnlm.reporting.html.material import Material
from esnlm.reporting.html.sections import SECTIONS

GENERATOR = Html('<meta name="generator" content="esnlm report">')
MOST_LOADED = 4  # runs of a page whose models are loaded, for samples and eigenvalues


def write_page(
    paths: Sequence[Path], out: Path, by_seed: bool = False, scoring: str = "paper", made_by: str | None = None
) -> str:
    """Writes the page of runs and studies, and returns the line that says so.

    Args:
        paths: run directories, and folders of studies, which stand for their finished runs.
        out: the HTML file. An earlier page is replaced; another file is not.
        by_seed: whether the table of several runs makes one row of those that differ in nothing but their seed.
        scoring: which report on minimal pairs is shown in full, evaluation/blimp-SCORING.json.
        made_by: the command, to stand on the page.

    Raises:
        InputError: a path is neither a finished run nor a study, a file of one is damaged, or `out` cannot be written.
    """
    require(
        out.suffix.lower() in (".html", ".htm") and not out.is_dir(),
        f"{out}: no name for a page; give one such as page.html",
    )
    if out.exists() and GENERATOR.encode() not in out.read_bytes()[:4096]:
        raise InputError(f"{out}: is there, and is no page of esnlm report: name another file with --html")
    require(out.parent.is_dir(), f"{out}: No such file or directory; choose a folder that exists, or make it first")
    studies = {folder: tree for folder in paths if (tree := study.read(folder)) is not None}
    found = [run for path in paths for run in (study.runs(path, studies[path]) if path in studies else [path])]
    folders = list({folder.resolve(): folder for folder in found}.values())  # each once
    require(bool(folders), f"{paths[0]}: a study without a finished run: go on with its command first")
    materials = [Material(folder, scoring) for folder in folders]
    trials = {run for folder, tree in studies.items() if study.is_search(tree) for run in study.runs(folder, tree)}
    for material, folder in zip(materials, folders, strict=True):
        material.may_group = folder not in trials
    page = render(list(studies.values()), materials, by_seed, made_by)
    write_file(out, page)
    return f"written: {out} ({len(page.encode()) / 1e3:,.0f} kB)"


def render(studies: Sequence[dict], runs: Sequence[Material], by_seed: bool = False, made_by: str | None = None) -> str:
    """Returns the page of studies and of at least one run."""
    _tell_apart(runs)
    for run in runs:
        run.may_load = len(runs) <= MOST_LOADED
    shared = [Section(f"Study {tree['study']}", study.render(tree)) for tree in studies]
    # A study asks for several seeds of each cell, so its table has a row a cell.
    shared += several.render(runs, by_seed or bool(studies)) if len(runs) > 1 else []
    sections = shared or _sections(runs[0])
    body = [tag("section", tag("h2", section.title), section.content, id=section.id) for section in sections]
    links = [(section.title, section.id) for section in sections]
    title, lead = runs[0].name, runs[0].row["model"]
    if shared:
        title = ", ".join(tree["study"] for tree in studies) or f"{len(runs)} runs"
        lead = f"A study of {len(runs)} finished runs" if studies else ", ".join(run.name for run in runs)
        body += [tag("h2", "Each run", id="runs"), *map(_fold, runs)]
        links.append(("Each run", "runs"))
    main = [
        tag("header", tag("h1", title), tag("p", lead, class_="lead")),
        tag("nav", (tag("a", name, href=f"#{target}") for name, target in links), aria_label="Sections"),
        body,
        tag("footer", note("Made by esnlm report, from the files of its runs."), command(made_by) if made_by else None),
    ]
    return _document(title, join(main))


def _sections(run: Material) -> list[Section]:
    """Returns the sections of a run."""
    say(f"{run.name}: reading")
    found = [(module.TITLE, module.render(run)) for module in SECTIONS]
    run.release()
    return [Section(title, content) for title, content in found if content is not None]


def _fold(run: Material) -> Html:
    """Returns a run that a reader can open."""
    summary = tag("summary", tag("b", run.name), " ", tag("span", run.row["model"]))
    sections = (tag("section", tag("h3", section.title), section.content) for section in _sections(run))
    return tag("details", summary, sections, class_="run")


def _tell_apart(runs: Sequence[Material]) -> None:
    """Calls runs by their paths where two folders have one name, as the table does."""
    for run in runs:
        run.row["run"] = run.name
    run_groups.tell_apart([run.row for run in runs], [run.directory.path for run in runs])
    for run in runs:
        run.name = run.row["run"]


def _document(title: str, main: Html) -> str:
    """Returns the whole file. Its policy lets a browser run our script only, and fetch nothing."""
    style, script = (
        Html(resources.files(__package__).joinpath(name).read_text("utf-8")) for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        GENERATOR,
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – esnlm"),
        tag("link", rel="icon", href="data:,"),  # or a browser asks for one
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', main), tag('script', script)), lang='en')}\n"
