"""The papers' claims: verdicts on made-up outcomes of studies, the page, and the file of the repository."""

import json
import math
import re
from pathlib import Path

import pytest

from esnlm.commands import main
from esnlm.errors import InputError
from esnlm.studies import claims_file, claims_page, grid, outcomes
from esnlm.studies.claims import examine
from esnlm.studies.study import read_study
from esnlm.studies.verdict import Verdict

STUDIES = Path(__file__).resolve().parents[2] / "configs" / "studies"
CLAIMS = """
kind: claims
claims:
- claim: More units are better.
  source: a paper, table 1
  parts:
  - says: The NLL falls.
    paper: "5.0, 4.9, 4.8"
    study: size
    measure: val_nll
    falls: {along: state_size}
  - says: BLiMP rises from 1,024 units on.
    paper: "56, 57"
    study: size
    measure: blimp
    rises: {along: state_size, from: 1024}
  - says: Every ESN is below the LSTM.
    paper: yes, it is
    study: size
    measure: val_nll
    above: [{along: state_size}, {cells: [LSTM]}]
- claim: Some radii blow up.
  source: a paper, table 2
  parts:
  - says: All draws of 1.6 do.
    paper: "1e17"
    study: radius
    measure: train_nll
    over: {cells: [radius=1.6], limit: 100}
"""


def cell(values, name=None, case="", **measures):
    """Returns a cell of table.json; each measure is a list of values, one a seed."""
    name = name or ",".join(
        [case] * bool(case) + [f"{key.rpartition('.')[2]}={value}" for key, value in values.items()]
    )
    n = len(next(iter(measures.values())))
    runs = [
        {"run": f"{name}-seed{seed}", "seed": seed, "status": "finished", "origin": "a CPU x 1, 2 cores", "words": 1000}
        | {"vocab_size": 300, "epochs": 1, "learning_rate": 0.001, "seconds": 90.0}
        | dict.fromkeys(("val_nll", "train_nll", "blimp"))
        | {measure: each[seed] for measure, each in measures.items()}
        for seed in range(n)
    ]
    return {"cell": name, "case": case, "values": values, "settings": values, "runs": runs, "means": {}}


def write_study(folder, cells, note=""):
    tree = {"format": "esnlm study", "study": folder.name, "note": note, "command": f"esnlm study {folder.name}.yaml"}
    tree |= {"units": "", "columns": {}, "cells": cells, "reference": {"source": "", "cells": {}}}
    folder.mkdir(parents=True)
    (folder / "table.json").write_text(json.dumps(tree))


def sizes(*nll, blimp=None):
    """Returns cells of 512, 1,024, 2,048, ... units, each with its seeds' losses."""
    scores = blimp or [[50.0] * len(each) for each in nll]
    return [
        cell({"model.reservoir.state_size": 512 * 2**i}, val_nll=each, blimp=score)
        for i, (each, score) in enumerate(zip(nll, scores, strict=True))
    ]


@pytest.fixture
def claims(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIMS)
    return file


def parts(file):
    return [part for claim in claims_file.read_claims(file) for part in claim.parts]


def verdict_of(part, tmp_path, cells):
    write_study(tmp_path / "study", cells)
    return examine(part, outcomes.read(tmp_path / "study"))


FALLING = ([5.0, 5.1, 4.9], [4.8, 4.9, 4.7], [4.61, 4.70, 4.50])  # by 0.2 at each step, whatever the seed


@pytest.mark.parametrize(
    "losses, expected",
    [
        (FALLING, Verdict.HOLDS),
        (FALLING[::-1], Verdict.DOES_NOT_HOLD),
        (([5.0, 5.1, 4.9], [4.8, 5.2, 4.7], [4.6, 4.7, 4.5]), Verdict.NOT_RESOLVED),
        ([each[:2] for each in FALLING], Verdict.NOT_RESOLVED),
        (FALLING[:1], Verdict.NOT_TESTED),
    ],
)
def test_each_verdict_comes_from_outcomes(claims, tmp_path, losses, expected):
    found = verdict_of(parts(claims)[0], tmp_path, sizes(*losses))
    assert found.verdict == expected
    if len(losses) > 1:
        names = [each.name for each in found.differences]
        assert names == ["1,024 - 512", "2,048 - 1,024"]
    if len(losses[0]) == 2:
        assert found.reason == "fewer than 3 seeds"


def test_a_missing_study_is_not_tested(claims):
    found = examine(parts(claims)[0], None)
    assert (found.verdict, found.reason) == (Verdict.NOT_TESTED, "no study size")


def test_missing_cells_and_measures_are_not_tested(claims, tmp_path):
    falls, rises, above, over = parts(claims)
    study = sizes(*FALLING[:2], blimp=[[50.0] * 3, [None] * 3])
    write_study(tmp_path / "study", study)
    outcome = outcomes.read(tmp_path / "study")
    assert examine(rises, outcome).reason == "study has 1 cell of state_size from 1,024".replace("study", "size")
    assert examine(above, outcome).reason == "size has no cell LSTM"
    assert examine(over, outcome).reason == "radius has no cell radius=1.6"
    without = sizes(*FALLING, blimp=[[50.0] * 3, [50.0] * 3, [None] * 3])  # as of a model that has collapsed
    write_study(tmp_path / "other", without)
    found = examine(rises, outcomes.read(tmp_path / "other"))
    assert (found.verdict, found.reason) == (Verdict.NOT_TESTED, "no minimal pairs, % of state_size=2048")


def test_runs_that_are_left_out_of_a_verdict_are_told(claims, tmp_path):
    accuracies = [[50.0, 50.1, 50.2, 50.3], [52.0, 52.1, 52.2, 52.3], [54.0, None, 54.2, 54.3]]
    found = verdict_of(parts(claims)[1], tmp_path, sizes(*[[5.0] * 4] * 3, blimp=accuracies))
    assert found.verdict == Verdict.HOLDS and found.reason == "1 run without this measure is left out"
    assert [" of " in text for text in found.here] == [False, True] and "(3 of 4 runs)" in found.here[-1]
    assert [len(each.values) for each in found.differences] == [3]


def test_diverged_runs_below_a_verdict_are_told(claims, tmp_path):
    cells = sizes(*FALLING)
    for run in cells[0]["runs"]:
        run["status"] = "diverged"
    found = verdict_of(parts(claims)[0], tmp_path, cells)
    assert found.reason == f"{len(FALLING[0])} runs diverged"


def test_cells_are_compared_with_one_of_another_family(claims, tmp_path):
    found = verdict_of(parts(claims)[2], tmp_path, [*sizes(*FALLING), cell({}, "LSTM", val_nll=[4.1, 4.2, 4.0])])
    assert found.verdict == Verdict.HOLDS and len(found.differences) == 3
    assert found.differences[0].name == "state_size=512 - LSTM"
    assert found.differences[0].mean == pytest.approx(0.9)


def test_cells_that_differ_in_another_setting_are_no_sequence(claims, tmp_path):
    """The effect of the learning rate would else decide a sentence about the size."""
    cells = [
        cell({"model.reservoir.state_size": size, "training.learning_rate": rate}, val_nll=[5.0 + 10 * rate] * 3)
        for size in (512, 1024)
        for rate in (0.001, 0.01)
    ]
    found = verdict_of(parts(claims)[0], tmp_path, cells)
    assert (found.verdict, found.differences) == (Verdict.NOT_TESTED, ())
    assert found.reason == "the cells of state_size in size differ in training.learning_rate, too: name them with cells"


def test_an_axis_that_two_settings_end_in_is_named_in_full(tmp_path):
    """The values of the first would stand for both, and the second would be no difference."""
    file = tmp_path / "claims.yaml"
    values = [(a, b) for a in (10, 20) for b in (1, 2)]
    cells = [
        cell({"model.width": a, "model.readout.recent_tokens.width": b}, val_nll=[5.0 + i] * 3)
        for i, (a, b) in enumerate(values)
    ]
    file.write_text(CLAIMS.replace("falls: {along: state_size}", "falls: {along: width}"))
    found = verdict_of(parts(file)[0], tmp_path, cells)
    assert found.verdict == Verdict.NOT_TESTED
    assert (
        found.reason
        == "width is the end of model.readout.recent_tokens.width and model.width in size: name one of them in full"
    )


def test_cells_that_share_few_seeds_are_told_of(claims, tmp_path):
    cells = sizes(*FALLING)
    for run in cells[1]["runs"]:
        run["seed"] += 2
    found = verdict_of(parts(claims)[0], tmp_path, cells)
    assert (found.verdict, found.reason) == (Verdict.NOT_RESOLVED, "two cells share 1 seed only")


def test_a_number_that_yaml_reads_as_a_text_is_a_number(claims, tmp_path):
    cells = [
        cell({"model.reservoir.state_size": size}, val_nll=[nll] * 3)
        for size, nll in (("5e2", 4.0), (600, 5.0), (700, 4.9))
    ]
    found = verdict_of(parts(claims)[0], tmp_path, cells)
    assert found.verdict == Verdict.DOES_NOT_HOLD and [each.name for each in found.differences] == [
        "600 - 500",
        "700 - 600",
    ]


def test_one_cell_is_no_sequence(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIMS.replace("falls: {along: state_size}", "falls: {cells: [state_size=512]}"))
    found = verdict_of(parts(file)[0], tmp_path, sizes(*FALLING))
    assert found.verdict == Verdict.NOT_TESTED
    assert found.reason == "size has 1 cell, and a sentence about a sequence needs two"


def test_a_case_chooses_its_own_cells(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIMS.replace("falls: {along: state_size}", "falls: {along: state_size, case: ESN+i}"))
    other = [cell({"state_size": n}, case="ESN", val_nll=[9.0] * 3) for n in (1, 2, 3)]
    own = [cell({"state_size": n}, case="ESN+i", val_nll=[float(9 - n)] * 3) for n in (1, 2, 3)]
    found = verdict_of(parts(file)[0], tmp_path, other + own)
    assert found.verdict == Verdict.HOLDS and [each.mean for each in found.differences] == [-1.0, -1.0]


@pytest.mark.parametrize(
    "losses, expected, here",
    [
        ([2e17, "inf", "nan", 1e5], Verdict.HOLDS, "radius=1.6: 4 of 4 over 100, 1e+05 .. 2e+17"),
        ([6.0, 6.1, 6.2, 6.3], Verdict.DOES_NOT_HOLD, "radius=1.6: 0 of 4 over 100, 6 .. 6.3"),
        ([6.0, 6.1, 6.2, 1e9], Verdict.NOT_RESOLVED, "radius=1.6: 1 of 4 over 100, 6 .. 1e+09"),
        (["inf", "inf"], Verdict.NOT_RESOLVED, "radius=1.6: 2 of 2 over 100, none of them finite"),
    ],
)
def test_runs_that_blow_up_are_counted(claims, tmp_path, losses, expected, here):
    found = verdict_of(parts(claims)[3], tmp_path, [cell({"radius": 1.6}, train_nll=losses)])
    assert (found.verdict, found.here) == (expected, (here,))


def test_diverged_runs_resolve_no_difference(claims, tmp_path):
    found = verdict_of(parts(claims)[0], tmp_path, sizes(FALLING[0], [4.0, "inf", 4.1]))
    assert found.verdict == Verdict.NOT_RESOLVED


def test_slopes_of_alignment_are_flat_or_not(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(
        "kind: claims\nclaims:\n- claim: It is flat.\n  source: a thesis\n  parts:\n"
        "  - {says: flat, paper: '0', study: slopes, flat: {case: dynamic, within: 0.1}}\n"
        "  - {says: steep, paper: not 0, study: slopes, steep: {case: spectral, within: 0.1}}\n"
        "  - {says: flat, paper: '0', study: slopes, flat: {case: muP, within: 0.1}}\n"
    )
    layers = {"dynamic": [-0.02, 0.01], "spectral": [-1.2, -0.9]}
    report = {
        case: {"alignment": [{"slope": s, "low": s - 0.05, "high": s + 0.05, "constant": 0.0} for s in slopes]}
        for case, slopes in layers.items()
    }
    settings = {"seeds": 30, "note": "Figure 3.3.", "images": {"folder": None}}
    command = "python -m experiments.bottleneck a.yaml --out slopes"
    record = {"study": settings, "command": command, "cells": {}, "report": report}
    (tmp_path / "slopes").mkdir()
    (tmp_path / "slopes" / "alignment.json").write_text(json.dumps(record))
    outcome = outcomes.read(tmp_path / "slopes")
    assert outcome.command == command and outcome.note == "Figure 3.3. The images are generated."
    found = [examine(part, outcome) for part in parts(file)]
    assert [each.verdict for each in found] == [Verdict.HOLDS, Verdict.HOLDS, Verdict.NOT_TESTED]
    assert found[0].here == ("layer 1: -0.02 [-0.07, +0.03]", "layer 2: +0.01 [-0.04, +0.06]")
    del record["report"]
    (tmp_path / "slopes" / "alignment.json").write_text(json.dumps(record))
    assert outcomes.read(tmp_path / "slopes") is None, "it has not come to its end"


def test_the_page_says_what_was_made_from_what_and_what_holds(claims, tmp_path, capsys):
    write_study(tmp_path / "studies" / "size", sizes(*FALLING), "Another text than the paper's.")
    out = tmp_path / "page.md"
    assert main(["claims", str(tmp_path / "studies"), "--claims", str(claims), "--out", str(out)]) == 0
    page = capsys.readouterr().out
    assert out.read_text() == page and page.startswith("# Claims\n")
    assert "| size | 9 | 1,000 | 300 | 1 | 0.001 | 0, 1, 2 | 0.2 |" in page  # 9 runs of 90 s
    assert "\nsize: Another text than the paper's.\n" in page and "\n- on a CPU x 1, 2 cores\n" in page
    assert "\n- `esnlm study size.yaml`\n" in page
    assert "| 1 | More units are better. | **not resolved** | 2 of 3 |" in page
    assert "| 2 | Some radii blow up. | **not tested** | 0 of 1 |" in page
    se = math.sqrt(0.01 / 3)
    row = f"| 1a | The NLL falls. | 5.0, 4.9, 4.8 | size: 512: 5.000 ({se:.3f}); 1,024: 4.800 ({se:.3f}); "
    assert row in page and re.search(r"\| 1a \| The NLL falls. .* \| \*\*holds\*\* \|\n", page)
    assert "| 1a | 1,024 - 512 | -0.200 | -0.200 .. -0.200 | 3 |" in page
    assert "| 1c | Every ESN is below the LSTM. |" in page and "**not tested**: size has no cell LSTM |" in page
    assert main(["claims", str(tmp_path / "studies"), "--claims", str(claims), "--out", str(out)]) == 0, "made again"


def test_claims_of_no_paper_have_no_column_for_its_numbers(claims, tmp_path):
    write_study(tmp_path / "size", sizes(*FALLING))
    file = tmp_path / "own.yaml"
    file.write_text(
        "kind: claims\nclaims:\n- claim: More units are better.\n  source: a page\n  parts:\n"
        "  - {says: The NLL falls., study: size, measure: val_nll, falls: {along: state_size}}\n"
    )
    page = claims_page.write_page(tmp_path, file, None, "")
    assert "|  | sentence | here | verdict |" in page and "| 1a | The NLL falls. | size: 512: 5.000" in page
    assert "easily predicted. The tables" in page and "the papers" not in page


def test_the_page_of_the_repository_has_the_rules_that_the_command_writes():
    page = (STUDIES.parents[1] / "results" / "two_cores" / "claims.md").read_text()
    assert page.startswith(claims_page.TITLE + "\n") and claims_page.RULES in page and claims_page.OF_PAPERS in page


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return str(caught.value)


def test_a_folder_without_studies_and_a_file_of_something_else_are_refused(claims, tmp_path):
    line = refusal(claims_page.write_page, tmp_path, claims, None, "")
    assert line == f"{tmp_path}: has none of the studies size, radius; name the folder in which their folders lie"
    none, one = tmp_path / "none", tmp_path / "lone" / "size"
    one.mkdir(parents=True)
    line = refusal(claims_page.write_page, none, claims, None, "")
    assert line == f"{none}: no such folder; name the one in which the folders of the studies lie"
    line = refusal(claims_page.write_page, one, claims, None, "")
    assert line == f"{one}: the folder of one study; name the one in which it lies"
    write_study(tmp_path / "size", sizes(*FALLING))
    (tmp_path / "notes.md").write_text("# Claims of mine\n")
    line = refusal(claims_page.write_page, tmp_path, claims, tmp_path / "notes.md", "")
    assert line == f"{tmp_path}/notes.md: exists and is no page of claims; name another file with --out"
    assert (tmp_path / "notes.md").read_text() == "# Claims of mine\n"
    (tmp_path / "old.md").write_text("# The papers' claims\n")  # the title of earlier versions
    assert claims_page.write_page(tmp_path, claims, tmp_path / "old.md", "") == (tmp_path / "old.md").read_text()


def test_a_table_with_another_value_than_a_number_is_refused(tmp_path):
    write_study(tmp_path / "size", sizes(["many", 5.0, 5.0]))
    line = refusal(outcomes.read, tmp_path / "size")
    assert line == f"{tmp_path}/size/table.json: not as a study writes it now; the study's command makes it again"


def test_a_search_is_refused_as_one(tmp_path):
    write_study(tmp_path / "find", [])
    file = tmp_path / "find" / "table.json"
    columns = {"val_nll": {"title": "val NLL", "digits": 3}}
    search = {"kind": "search", "trials": [], "objective": "val_nll", "columns": columns, "settings": {}}
    file.write_text(json.dumps(json.loads(file.read_text()) | search))
    line = f"{tmp_path}/find: a search; claims are about grids, so move it elsewhere or name another folder"
    assert refusal(outcomes.read, tmp_path / "find") == line


@pytest.mark.parametrize("damage", ["{", '{"format": "esnlm study"}', '{"format": "esnlm study", "cells": [{}]}'])
def test_a_damaged_table_is_refused(claims, tmp_path, damage):
    write_study(tmp_path / "size", sizes(*FALLING))
    (tmp_path / "size" / "table.json").write_text(damage)
    line = refusal(claims_page.write_page, tmp_path, claims, None, "")
    assert line.startswith(
        f"{tmp_path}/size/table.json: not as esnlm study writes it now; the study's command makes it again"
    )


PART = "says: a, paper: b, study: c"


@pytest.mark.parametrize(
    "text, line",
    [
        ("kind: grid", "kind is 'grid': a file of claims has kind: claims"),
        ("[]", "kind is None: a file of claims has kind: claims"),
        ("kind: claims", "claims is None: it must be a list of claims"),
        ("{kind: claims, claim: []}", "unknown key claim: choose from kind, claims"),
        ("{kind: claims, claims: [3]}", "claims.1 is 3: it must hold claim, source and parts"),
        ("{kind: claims, claims: [{claim: a}]}", "claims.1.source is None: it must be a text"),
        ("{kind: claims, claims: [{claim: a, source: b}]}", "claims.1.parts is None: it must be a list of parts"),
    ],
)
def test_a_mistake_in_a_file_of_claims_is_named(tmp_path, text, line):
    (tmp_path / "claims.yaml").write_text(text)
    assert refusal(claims_file.read_claims, tmp_path / "claims.yaml") == f"{tmp_path}/claims.yaml: {line}"


@pytest.mark.parametrize(
    "part, line",
    [
        ("3", " is 3: it must hold says and a check"),
        ("{says: a, sayings: b}", ".: unknown key".replace(".: unknown key", "")),
        (
            f"{{{PART}}}",
            ": it has no check: give one of falls, rises, below, above, under, over, flat, steep, or why without one",
        ),
        (
            f"{{{PART}, falls: {{}}, rises: {{}}}}",
            ": it has falls and rises: give one of falls, rises, below, above, under, over, flat, steep, or why without one",
        ),
        ("{says: a, paper: 5.0, why: b}", ".paper is 5.0: it must be a text"),
        ("{says: a, paper: b, falls: {along: n}}", ".study is None: it must be a text"),
        (
            f"{{{PART}, measure: nll, falls: {{along: n}}}}",
            f".measure is 'nll': choose from {', '.join(grid.MEASURES)}",
        ),
        (
            f"{{{PART}, measure: blimp, below: {{along: n}}}}",
            ".below is {'along': 'n'}: it must be a list of two selections of cells",
        ),
        (
            f"{{{PART}, measure: blimp, falls: [n]}}",
            ".falls is ['n']: it must hold cells, a list of names, or along, an axis",
        ),
        (
            f"{{{PART}, measure: blimp, falls: {{cells: n}}}}",
            ".falls.cells is 'n': it must be a list of names of cells",
        ),
        (
            f"{{{PART}, measure: [blimp], falls: {{along: n}}}}",
            f".measure is ['blimp']: choose from {', '.join(grid.MEASURES)}",
        ),
        (
            f"{{{PART}, measure: blimp, falls: {{cells: [n], from: 5}}}}",
            ".falls.from: it is of cells on an axis; leave it out beside cells",
        ),
        (f"{{{PART}, measure: blimp, falls: {{along: n, from: a}}}}", ".falls.from is 'a': it must be a number"),
        (f"{{{PART}, measure: blimp, falls: {{along: 3}}}}", ".falls.along is 3: it must be a text"),
        (f"{{{PART}, measure: blimp, over: {{along: n}}}}", ".over.limit is None: it must be a number"),
        (f"{{{PART}, flat: 3}}", ".flat is 3: it must hold case and within"),
        (f"{{{PART}, flat: {{case: a}}}}", ".flat.within is None: it must be a number"),
        (f"{{{PART}, flat: {{within: 1}}}}", ".flat.case is None: it must be a text"),
    ],
)
def test_a_mistake_in_a_part_is_named(tmp_path, part, line):
    text = f"{{kind: claims, claims: [{{claim: a, source: b, parts: [{part}]}}]}}"
    (tmp_path / "claims.yaml").write_text(text)
    found = refusal(claims_file.read_claims, tmp_path / "claims.yaml")
    if line:
        assert found == f"{tmp_path}/claims.yaml: claims.1.parts.1{line}"
    else:
        assert found.startswith(
            f"{tmp_path}/claims.yaml: unknown key claims.1.parts.1.sayings: choose from says, paper,"
        )


PAPERS = {"radius_512_tokens": "radius_frozen_table2"}


def test_the_papers_numbers_in_the_claims_are_those_of_its_table():
    """Every number that stands as the paper's is among the published values of the study and the measure."""
    for part in parts(STUDIES / "claims.yaml"):
        if not part.measure or part.study in PAPERS:
            continue
        file = STUDIES / f"{part.study}.yaml"
        published = grid.parse_grid(read_study(file), file).published
        known = {values[part.measure][0] for values in published.values() if part.measure in values}
        text = re.sub(r"[\d,^-]+:", "", part.paper)  # names of cells, such as 1,024: and 2^-8:
        numbers = [float(number) for number in re.findall(r"\d+\.\d+(?:e\+\d+)?", text)]
        assert numbers and set(numbers) <= known, f"{part.says}: {set(numbers) - known}"


def test_the_claims_name_cells_of_both_the_papers_studies_and_those_for_two_cores():
    named, sides = {}, {}
    for part in parts(STUDIES / "claims.yaml"):
        for selection in part.selections:
            named.setdefault(PAPERS.get(part.study, part.study), set()).update(selection.cells)
    for folder in (STUDIES, STUDIES / "two_cores"):
        for study, cells in named.items():
            file = folder / f"{study}.yaml"
            sides[folder.name, study] = {cell.name for cell in grid.parse_grid(read_study(file), file).cells}
            assert cells <= sides[folder.name, study], f"{file}: {cells - sides[folder.name, study]}"
    assert len(sides) == 10


def test_the_claims_of_the_frontier_name_cells_of_its_studies():
    named = {
        (part.study, name)
        for part in parts(STUDIES / "frontier" / "claims.yaml")
        for each in part.selections
        for name in each.cells
    }
    files = {name: STUDIES / "frontier" / f"{name}.yaml" for name in ("rates", "sizes")}
    cells = {
        (name, cell.name) for name, file in files.items() for cell in grid.parse_grid(read_study(file), file).cells
    }
    assert named and named <= cells, named - cells


def test_ten_claims_are_there():
    assert len(claims_file.read_claims(STUDIES / "claims.yaml")) == 10
