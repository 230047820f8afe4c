"""What the table and the picture of a grid say of runs that diverged, collapsed, or cannot be
compared."""

import math

import pytest

from esnlm.base.errors import InputError
from esnlm.studies import table
from esnlm.studies.study_file import MEASURES, StudyFile


def row(values, runs, case="", state="3"):
    """Returns a row of a table; each run is its status and its figures."""
    name = ",".join(
        [case] * bool(case) + [f"{key.rpartition('.')[2]}={value}" for key, value in values.items()]
    )
    known = [
        dict.fromkeys(MEASURES)
        | {"run": f"{name}-seed{i}", "seed": i, "status": status, "origin": "a CPU"}
        | figures
        for i, (status, figures) in enumerate(runs)
    ]
    return table.make_row(name, known, values, state, case=case)


def tree_of(rows, published=None, source=""):
    """Returns what table.json would hold."""
    made = table.start_tree(StudyFile(kind="grid"), "sweep", "the command", ["val_nll", "blimp"])
    runs = [run for row in rows for run in row["runs"]]
    reference = {"source": source, "cells": published or {}}
    return made | {"cells": rows, "notes": table.notes_on(runs), "reference": reference}


def page_of(rows, tmp_path, **more):
    made = tree_of(rows, **more)
    table.write_cells(tmp_path, made)
    return (tmp_path / "table.md").read_text()


def test_diverged_runs_count_and_a_collapsed_one_has_no_accuracy(tmp_path):
    fine, blown = (
        ("finished", {"val_nll": 5.0, "blimp": 57.0}),
        ("diverged", {"val_nll": 2.31e17, "blimp": None}),
    )
    rows = [
        row({"radius": 0.5}, [fine] * 3),
        row({"radius": 0.9}, [fine, fine, blown], state="3, 1 diverged"),
    ]
    page = page_of(rows, tmp_path)
    assert "| radius=0.5 | 3 | 5.000 | 57.00 |" in page  # an interval without a width is not shown
    assert "| radius=0.9 | 3, 1 diverged | 7.70e+16 [" in page and "| 57.00 of 2 |" in page
    undefined = row({"radius": 1.5}, [fine, fine, ("diverged", {"val_nll": math.inf})])["means"][
        "val_nll"
    ]
    assert (undefined["mean"], undefined["interval"], undefined["n"]) == (math.inf, None, 3)


def test_two_seeds_have_no_interval(tmp_path):
    found = row({"radius": 0.5}, [("finished", {"val_nll": 5.0}), ("finished", {"val_nll": 5.2})])[
        "means"
    ]["val_nll"]
    assert found == {"mean": pytest.approx(5.1), "se": pytest.approx(0.1), "interval": None, "n": 2}


def test_the_interval_is_over_distinct_seeds():
    from scipy import stats

    losses = [5.0, 5.2, 5.1]
    found = row({"radius": 0.5}, [("finished", {"val_nll": nll}) for nll in losses])
    expected = stats.t.interval(0.95, df=2, loc=5.1, scale=stats.sem(losses))
    assert found["means"]["val_nll"]["interval"] == pytest.approx(expected)
    with pytest.raises(
        InputError,
        match="^radius=0.5: two runs have seed 0, which means would count twice; keep one",
    ):
        table.make_row("radius=0.5", [*found["runs"], found["runs"][0]], {"radius": 0.5}, "4")


@pytest.mark.parametrize("cases", [1, 12])
def test_a_grid_has_a_picture_whether_it_has_few_lines_or_many(cases, rendered, tmp_path):
    runs = [("finished", {"val_nll": 5.0 + i / 10, "blimp": 55.0 + i}) for i in range(3)]
    rows = [
        row({"size": size}, runs, case=f"case{case}")
        for case in range(cases)
        for size in (256, 512, 4096)
    ]
    rows.append(row({}, runs, case="LSTM"))
    published = {"case0,size=256": {"val_nll": (5.25, 0.125)}, "LSTM": {"val_nll": (4.1, None)}}
    page = page_of(rows, tmp_path, published=published, source="a paper")
    assert (tmp_path / "table.png").read_bytes().startswith(
        b"\x89PNG"
    ) and "![sweep](table.png)" in page
    assert "| 5.25 (0.125) |" in page and "| 4.1 |" in page
