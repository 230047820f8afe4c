"""The papers' claims: verdicts on made-up studies, the page, and the files of the repository."""

import sys
from pathlib import Path

import pytest
import yaml

from esnlm.base.errors import InputError
from esnlm.studies.study import make_cells, read_study
from experiments.claims import __main__ as page
from experiments.claims.verdicts import DOES_NOT_HOLD, HOLDS, NOT_RESOLVED, NOT_TESTED, examine

ROOT = Path(__file__).resolve().parents[2]
STUDIES, CLAIMS, RESULTS = (
    ROOT / "configs" / "studies",
    ROOT / "experiments" / "claims",
    ROOT / "results",
)
FALLS = {
    "says": "The NLL falls.",
    "study": "size",
    "measure": "val_nll",
    "falls": {"along": "state_size"},
}
# by 0.2 at each step, whatever the seed
FALLING = (
    [5.0, 5.1, 4.9],
    [4.8, 4.9, 4.7],
    [4.61, 4.70, 4.50],
)
AGAINST = FALLING[::-1]


def cell(values, name=None, case="", status="finished", **measures):
    """Returns a row of table.json; each measure is a list of values, one a seed."""
    name = name or ",".join(
        [case] * bool(case) + [f"{key.rpartition('.')[2]}={value}" for key, value in values.items()]
    )
    runs = [
        {"seed": seed, "status": status} | {measure: its[seed] for measure, its in measures.items()}
        for seed in range(len(next(iter(measures.values()))))
    ]
    return {"cell": name, "case": case, "values": values, "runs": runs}


def sizes(*nll, case=""):
    """Returns a study of 512, 1,024, 2,048, ... units, each with its seeds' losses."""
    cells = [
        cell({"model.reservoir.state_size": 512 * 2**i}, case=case, val_nll=its)
        for i, its in enumerate(nll)
    ]
    return {"cells": cells}


@pytest.mark.parametrize(
    "nll, expected",
    [
        (FALLING, HOLDS),
        (AGAINST, DOES_NOT_HOLD),
        (([5.0, 5.1, 4.9], [4.8, 5.2, 4.7], [4.6, 4.7, 4.5]), NOT_RESOLVED),
        ([each[:2] for each in FALLING], NOT_RESOLVED),  # two seeds never resolve anything
        ((FALLING[0], [4.0, "inf", 4.1]), NOT_RESOLVED),  # nor does a run that diverged
        (([7.0] * 3, [6.0] * 3), HOLDS),
        (([7.0] * 3, [7.0] * 3), NOT_RESOLVED),
        (FALLING[:1], NOT_TESTED),
    ],
)
def test_a_sweep_is_judged_by_the_differences_of_its_neighbours(nll, expected):
    assert examine(FALLS, sizes(*nll)).verdict == expected


def test_a_difference_is_paired_by_seed():
    study = sizes([0.0, 1.0, -1.0], [-0.1, 0.9, -1.1])
    found = examine(FALLS, study)
    assert found.verdict == HOLDS and found.differences[0][0] == "1,024 - 512"
    assert found.differences[0][1] == pytest.approx([-0.1] * 3)
    study["cells"][1]["runs"][2]["seed"] = 7
    assert examine(FALLS, study).reason == "two cells share 2 seeds only"


def test_a_seed_that_a_cell_has_twice_is_refused():
    study = sizes(*FALLING)
    study["cells"][1]["runs"].append(study["cells"][1]["runs"][0])
    with pytest.raises(
        InputError, match="^state_size=1024: two runs have seed 0, which means would count twice"
    ):
        examine(FALLS, study)


def test_cells_are_compared_with_one_of_another_family_and_cases_keep_apart():
    study = {
        "cells": [*sizes(*FALLING, case="ESN")["cells"], cell({}, "LSTM", val_nll=[4.0, 4.1, 4.05])]
    }
    part = {"study": "size", "measure": "val_nll"}
    part["above"] = [{"along": "state_size", "case": "ESN", "from": 1024}, {"cells": ["LSTM"]}]
    found = examine(part, study)
    assert found.verdict == HOLDS and len(found.differences) == 2
    assert examine(part, {"cells": study["cells"][:-1]}).reason == "size has no cell LSTM"
    assert examine(FALLS, study).reason == "size has 0 cells of state_size"
    assert examine(FALLS, None).reason == "no study size"


def test_the_page_of_the_frontier_is_made_again(tmp_path, monkeypatch, capsys):
    for name in ("rates", "sizes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.json").write_bytes(
            (RESULTS / "frontier" / f"{name}.json").read_bytes()
        )
    out = tmp_path / "page.md"
    words = ["claims", str(tmp_path), "--claims", str(CLAIMS / "frontier.yaml"), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    page.main()
    assert capsys.readouterr().out == out.read_text()
    made, kept = (
        text.rpartition("\nMade by")[0]
        for text in (out.read_text(), (RESULTS / "frontier/claims.md").read_text())
    )
    assert made == kept


def parts(name):
    return [
        part
        for claim in yaml.safe_load((CLAIMS / name).read_text())["claims"]
        for part in claim["parts"]
    ]


def cells_of(part):
    check = next(value for key, value in part.items() if isinstance(value, dict | list))
    return {
        name
        for selection in (check if isinstance(check, list) else [check])
        for name in selection.get("cells", [])
    }


PAPERS = {"radius_512_tokens": "radius_frozen_table2"}


@pytest.mark.parametrize("folder", [STUDIES, STUDIES / "two_cores", STUDIES / "frontier"])
def test_the_claims_name_cells_of_the_studies(folder):
    for part in parts("frontier.yaml" if folder.name == "frontier" else "papers.yaml"):
        file = folder / f"{PAPERS.get(part.get('study'), part.get('study'))}.yaml"
        if "measure" in part:
            assert cells_of(part) <= {each.name for each in make_cells(read_study(file), file)}, (
                part["says"]
            )
