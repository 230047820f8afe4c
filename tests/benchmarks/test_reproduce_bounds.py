"""The bounds of the papers' tables: runs worked out by hand, and docs/reproduce.md, which must show what the command prints."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import compile_for
import reproduce_bounds

from esnlm.compute import ComputeConfig, choose_compute

FIGURES = reproduce_bounds.read_figures(reproduce_bounds.PAGE)


def bound_of(study: str, cell: str, precision: str) -> float:
    """Returns the bound of a cell's first run, in seconds."""
    runs = reproduce_bounds.read_runs(reproduce_bounds.FOLDER / f"{study}.yaml")
    return reproduce_bounds.bound(next(run for run in runs if run.cell == cell).experiment, precision, FIGURES)


def test_figures_are_those_of_the_page():
    assert FIGURES["update, N 4,096, float32"] == 2.86  # marked with * there
    assert FIGURES["ESN+i step, N 2,048"] == 2.62


def test_a_sparse_run_by_hand():
    # The page has 0.112 us for a time step with `fused`, and 2.86 for the update. 143 million tokens take 425 s.
    found = bound_of("leak_table5", "leak_min=0.0", "float32")
    assert found == pytest.approx(143 * (0.112 + 2.86), rel=1e-4)
    # With every connection, the page's 0.537 us for the kernel `dense` are less than those of 32 times as many gathers.
    found = bound_of("connectivity_table4", "connectivity=1.0", "tf32")
    assert found == pytest.approx(143 * (0.537 + 0.87))
    # 8,192 is a fifteenth of the way from 4,096 to 65,536, and a time step takes twice as long as with 4,096 units.
    found = bound_of("scale_table3", "state_size=8192", "tf32")
    assert found == pytest.approx(143 * (2 * 0.112 + 0.87 + (1.65 - 0.87) / 15), rel=1e-3)


def test_an_esn_i_by_hand():
    found = bound_of("radius_frozen_table2", "spectral_radius=1.0", "float32")
    assert found == pytest.approx(143 * (2.71 + 0.656))
    # The line through the sizes of the page falls below the products of the smallest readout, forward and back in tf32, and
    # AdamW's 28 bytes for each of 2 x 64 x 50,257 + 50,257 parameters. What W_rec adds to the products is less than a hundredth.
    products, adamw = 6 * 64 * 50_257 / 494.7e6, 28 * 129 * 50_257 / 656 / 3.35232e6  # us
    found = bound_of("dense_frozen_table1", "ESN+i,state_size=64", "tf32")
    assert found == pytest.approx(143 * (products + adamw), rel=1e-2)


@pytest.mark.parametrize(("precision", "flops"), [("float32", 66.9e6), ("tf32", 494.7e6)])  # operations a us
def test_an_lstm_by_hand(precision: str, flops: float):
    # W_ih, W_hh and the readout, forward and back: 6 operations an entry. AdamW: 28 bytes a parameter and update.
    products = 6 * (8 * 512 * 512 + 512 * 50_257) / flops
    parameters = 2 * 512 * 50_257 + 50_257 + 8 * 512 * 513
    adamw = 28 * parameters / 656 / 3.35232e6
    assert bound_of("scale_table3", "LSTM", precision) == pytest.approx(143 * (products + adamw))


def test_time_steps_are_those_of_the_page():
    for size in compile_for.SIZES:
        model = compile_for.sparse_model(size)
        found = reproduce_bounds.fused_time_step(model, choose_compute(ComputeConfig(), model, "gpu"))
        assert found == pytest.approx(FIGURES[f"window, N {size:,}, fused"], rel=5e-3)  # it has three figures


def test_the_documentation_has_what_is_printed(capsys):
    record = reproduce_bounds.main([])
    printed = capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    row = r"\| (\d+) \| `esnlm study configs/studies/(\w+)\.yaml --blimp blimp` \| ([\d.]+) \| ([\d.]+) \|"
    documented = [f"| {study} | {runs} | {float32} | {tf32} |" for runs, study, float32, tf32 in re.findall(row, page)]
    assert printed.splitlines()[4:] == documented
    assert list(record) == list(reproduce_bounds.STUDIES)
