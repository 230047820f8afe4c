"""Figures of one style, and what happens without matplotlib."""

import sys

from esnlm.reporting import plots


def test_a_figure_is_saved_as_png_in_a_folder_that_need_not_exist(tmp_path, rendered):
    figure, axes = plots.figure(3, 2, rows=1, columns=2)
    assert axes.shape == (1, 2)
    plots.save_png(figure, tmp_path / "plots" / "a.png")
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["a.png"]
    assert (tmp_path / "plots" / "a.png").read_bytes().endswith(b"IEND\xaeB`\x82")


def test_without_matplotlib_there_is_no_figure(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plots.figure(3, 2) is None
