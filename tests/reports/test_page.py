"""The page: what it is made of, what it refuses, and that nothing in it can run."""

import json
import re
from html.parser import HTMLParser

from esnlm import commands
from esnlm.reports.page import differences, read_study, write_page
from esnlm.reports.page_run import RunFiles
from tests.reports.conftest import ATTACK, WORSE

VOID = {"meta", "link", "br", "col"}


class Reader(HTMLParser):
    """Reads a page as a browser does: what elements it has, what text, and that each is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.elements.append(name)
        self.attributes += attributes
        self.open += [] if name in VOID else [name]

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text += data if self.open and self.open[-1] not in ("script", "style") else ""


def test_one_run(full_run, rendered, tmp_path):
    write_page([full_run], tmp_path / "page.html", made_by=f"esnlm report {ATTACK}")
    text = (tmp_path / "page.html").read_text()
    page = Reader(text)
    assert page.elements.count("script") == 1 and not {"img", "iframe", "object", "base"} & set(
        page.elements
    )
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert ATTACK in page.text and WORSE in page.text, "it is all there, as text"
    addresses = [
        value
        for name, value in page.attributes
        if name in ("src", "href", "srcset", "action", "xlink:href")
    ]
    assert all(value.startswith(("#", "data:,")) for value in addresses), "it asks for nothing"
    assert not re.findall(r"url\((?!#)", text) and "@import" not in text
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) and {
        value[1:] for value in addresses if value.startswith("#")
    } <= set(ids)


def test_several_runs_from_the_command_line(make_run, tmp_path, capsys):
    runs = [str(make_run("a", right=8)), str(make_run("b", right=3, val_nll=6.0))]
    names = [*runs, f"{runs[0]}/../a"]  # one run has two names
    assert commands.main(["report", *names, "--html", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.startswith("written: ")
    page = Reader((tmp_path / "page.html").read_text())
    assert page.elements.count("details") >= 3  # each run, and the phenomena of the comparison
    for part in (
        "2 runs",
        "Side by side",
        "By phenomenon",
        "Paired differences",
        "Each run",
        "-62.5",
        "5.500",
    ):
        assert part in page.text


def test_runs_are_compared_on_the_same_pairs(make_run, full_run):
    runs = [RunFiles(make_run(name, right=right)) for name, right in (("a", 8), ("b", 3), ("c", 8))]
    _, table, *_, left_out = differences([*runs, RunFiles(full_run)])
    rows = [[text for text, _ in row] for row in table["rows"]]
    assert [row[:2] + row[3:5] for row in rows] == [
        ["b", "-62.5", "0", "5"],
        ["c", "+0.0", "0", "0"],
    ]
    assert rows[0][5:] == ["0.062", "0.12"], (
        "p and p after Holm: 2 / 32, and twice that for two runs"
    )
    assert "a report on other pairs" in left_out["text"]


def make_study(folder, runs, rows, **tree):
    """Makes the folder of a study of finished runs, which are moved there."""
    (folder / "runs").mkdir(parents=True)
    for run in runs:
        run.rename(folder / "runs" / run.name)
    cells = [{"cell": run.name, "runs": [{"run": run.name}]} for run in runs]
    common = {
        "format": "esnlm study",
        "study": folder.name,
        "note": "",
        "command": "",
        "notes": [],
        "cells": cells,
    }
    common |= {"legend": "", "table": {"header": ["", "runs", "val NLL"], "rows": rows}}
    (folder / "table.json").write_text(json.dumps(common | tree))
    return folder


def test_a_study(make_run, tmp_path):
    runs = [make_run(f"esn-seed{seed}", seed=seed, right=6 + seed) for seed in (0, 1)]
    rows = [[f"esn {WORSE}|", "2 of 3, 1 diverged", "5.062 [5.000, 5.125]"], ["people", "", ""]]
    study_of = {
        "study": f"sizes {WORSE}",
        "note": "Does it grow?",
        "command": "esnlm study",
        "legend": "From a paper",
    }
    write_page([make_study(tmp_path / "study", runs, rows, **study_of)], tmp_path / "page.html")
    page = Reader((tmp_path / "page.html").read_text())
    for part in (
        "A study of 2 finished runs",
        "5.062 [5.000, 5.125]",
        "people",
        "esn (2 seeds)",
        f"{WORSE}|",
    ):
        assert part in page.text
    assert "2 of 3, 1 diverged" in page.text and "From a paper" in page.text
    assert read_study(tmp_path) is None and page.elements.count("script") == 1
