"""The picture of a grid with a row for each case."""

from pathlib import Path

import pytest

from esnlm.reporting import plots
from esnlm.studies import grid_dots, grid_plot
from tests.studies.cells import finished, grid_cell
from tests.studies.grids import grid_of

NAMES = [f"idea{i}" for i in range(len(plots.COLOURS) + 1)]


@pytest.fixture
def figure(monkeypatch):
    """Keeps the figure that is drawn, in place of its PNG."""
    pytest.importorskip("matplotlib")
    kept = []
    monkeypatch.setattr(plots, "png", lambda made: kept.append(made) or b"")
    return kept


def rows_of(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_cases_without_an_axis_are_rows_from_top_to_bottom(figure):
    cells = [grid_cell(name, {}, finished(5.0 + i, 5.2 + i), name) for i, name in enumerate(NAMES[:3])]
    assert grid_plot.plot_grid(grid_of(), cells) == b""
    [panel] = figure[0].axes
    assert rows_of(panel) == NAMES[:3]
    bottom, top = panel.get_ylim()
    assert bottom > top, "the first row stands on top"
    assert [bar.lines[0].get_xydata().tolist() for bar in panel.containers] == [
        [[pytest.approx(5.1 + i), i]] for i in range(3)
    ]


def test_the_title_names_the_folder_and_says_whether_a_dot_is_a_mean(figure):
    for losses, says in (((5.0,), "one run each"), ((5.0, 5.2), "mean and one standard error")):
        cells = [grid_cell(name, {}, finished(*losses), name) for name in NAMES[:2]]
        grid_plot.plot_grid(grid_of(out=Path("other")), cells)
        assert figure.pop().get_suptitle() == f"sweep (other): {says}"


def test_more_lines_than_colours_are_rows_whose_dots_tell_the_value_on_the_axis(figure):
    rates = (0.001, 0.004)
    cells = [
        grid_cell(f"{name}-{rate}", {"training.learning_rate": rate}, finished(5.0 + rate + i / 10), name)
        for i, name in enumerate(NAMES)
        for rate in rates
    ]
    grid_plot.plot_grid(grid_of(), cells)
    assert rows_of(figure[0].axes[0]) == NAMES
    [legend] = figure[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["learning rate 0.001", "learning rate 0.004"]
    assert len({line.get_color() for line in legend.get_lines()}) == 2


def test_each_value_on_the_axis_has_a_colour_and_a_case_without_one_is_grey(figure):
    sizes = (32, 64, 128, 256, 512, 1024)
    cells = [grid_cell(f"{n}{size}", {"size": size}, finished(5.0), n) for n in NAMES for size in sizes]
    cells += [grid_cell("peer", {}, finished(5.0))]
    grid_dots.plot_dots(grid_of(), cells)
    [legend] = figure[0].legends
    colours = [line.get_color() for line in legend.get_lines()]
    shades = [int(colour[3:5], 16) for colour in colours]
    assert len(set(colours)) == 6 and shades == sorted(shades, reverse=True), "the larger, the darker"
    assert figure[0].axes[0].containers[-1].lines[0].get_color() == grid_dots.OFF_AXIS not in colours


def test_a_dot_far_from_the_others_is_an_arrow_at_the_edge(figure):
    cells = [grid_cell(name, {"rank": 1}, finished(5.0 + i / 10), name) for i, name in enumerate(NAMES)]
    cells += [grid_cell(f"{NAMES[0]}-worse", {"rank": 2}, finished(40.0), NAMES[0])]
    grid_dots.plot_dots(grid_of(), cells)
    panel = figure[0].axes[0]
    assert panel.get_xlim()[1] < 7
    assert [line.get_marker() for line in panel.lines if line.get_marker() in "<>"] == [">"]


def test_accuracies_have_a_panel_of_their_own_and_their_best_is_the_highest(figure):
    cells = [
        grid_cell(name, {}, [("finished", {"val_nll": 5.0, "blimp": 50.0 + i})], name) for i, name in enumerate("abc")
    ]
    grid_dots.plot_dots(grid_of(), cells)
    assert [panel.get_xlabel() for panel in figure[0].axes] == ["val NLL", "minimal pairs, %"]


def test_one_row_or_none_is_no_picture():
    assert grid_dots.plot_dots(grid_of(), [grid_cell("a", {}, finished(5.0))]) is None
    assert grid_dots.plot_dots(grid_of(), [grid_cell("a", {}, []), grid_cell("b", {}, finished(float("inf")))]) is None
