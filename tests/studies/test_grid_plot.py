"""The picture of a grid with lines along its axis."""

import pytest

from esnlm.reporting import plots
from esnlm.studies import grid_plot
from tests.studies.cells import finished, grid_cell
from tests.studies.grids import grid_of


def test_a_level_has_a_band_of_one_standard_error_and_the_mark_of_diverged_runs(monkeypatch):
    pytest.importorskip("matplotlib")
    kept = []
    monkeypatch.setattr(plots, "png", lambda made: kept.append(made) or b"")
    cells = [grid_cell(f"a{size}", {"size": size}, finished(6.0, 6.1), "a") for size in (32, 64)]
    level = [(status, {"val_nll": value}) for status, value in (("finished", 5.0), ("diverged", 5.2))]
    grid_plot.plot_grid(grid_of(), [*cells, grid_cell("peer", {}, level)])
    [axes] = kept[0].axes
    [band] = axes.patches
    box = band.get_extents().transformed(axes.transData.inverted())
    assert (box.y0, box.y1) == (pytest.approx(5.0), pytest.approx(5.2)), "5.1 and its standard error, 0.1"
    assert "with diverged runs" in axes.get_legend_handles_labels()[1]


def test_lines_and_rows_are_rendered(rendered):
    pytest.importorskip("matplotlib")
    lines = [grid_cell(f"a{size}", {"size": size}, finished(6.0, 6.1), "a") for size in (32, 64)]
    rows = [grid_cell(name, {}, finished(5.0, 5.2), name) for name in ("light", "wide")]
    for cells in (lines, rows):
        picture = grid_plot.plot_grid(grid_of(), cells)
        assert picture is not None and len(picture) > 10_000
