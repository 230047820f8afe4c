"""How long the papers' tables would take on one H100 at least, in hours: the bounds of docs/reproduce.md.

    python benchmarks/reproduce_bounds.py

It reads the studies of the tables in configs/studies, works out a bound for every run, and prints the sums. Nothing is measured,
and nothing is compiled here. Every figure is a bound [b], also those of the page, which benchmarks/compile_for.py worked out from
what it counted [c] in compiled programs:

    sparse ESN    its time step by the model of the kernel `fused` (`fused_traffic` in benchmarks/compile_for.py), or what
                  results/compile_for.h100.md has for the kernel `dense` where that is less; and its update by the same page
    ESN+i         its gradient and its step by the same page, or the next bound where that is more
    all others    what `esnlm train --plan --on h100` says of states and updates (esnlm/training/bounds.py)

The page's "us an item" are the bounds of programs that were compiled for an H100. Updates and gradients were compiled at two
sizes. For others they are taken from the straight line through both, which may be a little off. Launches of kernels,
validation, scoring and the host are in no bound. The study of Fujimaki 2026 is left out, since its readout is trained by the
host, in part.
"""

import argparse
import dataclasses
import math
from pathlib import Path

import compile_for
import measure
import targets

from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import Experiment, TrainingConfig
from esnlm.devices import DEVICES
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.tables import markdown_table
from esnlm.studies.grid import GridRun, make_runs, parse_grid
from esnlm.studies.study import read_study
from esnlm.training.bounds import bound_times

FOLDER = Path(__file__).parents[1] / "configs" / "studies"
STUDIES = ("scale_table3", "connectivity_table4", "leak_table5", "dense_frozen_table1", "radius_frozen_table2")
PAGE = measure.RESULTS / "compile_for.h100.md"
H100 = targets.TARGETS["h100"]
PRECISIONS = ("float32", "tf32")
TOKENS = 143e6  # that are predicted: about as many as 100 million words have in GPT-2's vocabulary
# Rows of an update, which are a little fewer than the tokens that it predicts: 32 of those have the state after BOS in common.
# So the bounds of LSTMs are about 5 % lower than those of ESNs, whose page counts predictions.
UPDATE = compile_for.ROWS

Figures = dict[str, float]  # us an item, by the name of the program


def main(arguments: list[str] | None = None) -> dict:
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=formatter).parse_args(arguments)
    figures = read_figures(PAGE)
    record, rows = dict[str, dict](), list[list]()
    for study in STUDIES:
        runs = read_runs(FOLDER / f"{study}.yaml")
        sums = {name: sum(bound(run.experiment, name, figures) for run in runs) / 3600 for name in PRECISIONS}
        record[study] = {"runs": len(runs), "hours": sums}
        rows.append([study, len(runs), *(f"{hours:.1f}" for hours in sums.values())])
    print("Bounds [b] for one H100, in hours for all runs of a table. Nothing was measured.\n")
    print("\n".join(markdown_table(["table", "runs", *PRECISIONS], rows, align="lr")))
    return record


def read_figures(page: Path) -> Figures:
    """Returns the column "us an item [b]" of a page that benchmarks/compile_for.py wrote."""
    head, _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    )
    column = head.index("us an item [b]")
    return {row[0].removesuffix(" *"): float(row[column].replace(",", "")) for row in rows}


def read_runs(file: Path) -> list[GridRun]:
    """Returns the runs of a study, as `esnlm study` would train them."""
    return make_runs(parse_grid(read_study(file), file))


def bound(experiment: Experiment, precision: str, figures: Figures) -> float:
    """Returns the seconds that a run takes at least, with products of a precision."""
    model, training = experiment.model, experiment.training
    assert isinstance(training, TrainingConfig), "there is no bound for a readout that the host computes in part"
    compute = choose_compute(dataclasses.replace(experiment.compute, precision=precision), model, H100.backend)
    planned = bound_times(model, compute, training, compile_for.VOCAB_SIZE, UPDATE, DEVICES["h100"])
    microseconds = 1e6 * (planned.state + planned.update / UPDATE)
    if isinstance(model, EchoStateConfig):
        size, sizes = model.reservoir.state_size, compile_for.ESN_I_SIZES
        if model.train_input:
            gradient = line(figures, "ESN+i gradient, N {:,}, " + precision, sizes, size)
            microseconds = max(microseconds, gradient + line(figures, "ESN+i step, N {:,}", sizes, size))
        elif model.readout.rank == compile_for.RANK:
            update = line(figures, "update, N {:,}, " + precision, compile_for.SIZES, size)
            # The product with a dense W_rec was compiled at two sizes. At others no study has enough connections for it.
            dense = figures.get(f"window, N {size:,}, dense", math.inf)
            microseconds = min(fused_time_step(model, compute), dense) + update
    return training.epochs * TOKENS * 1e-6 * microseconds


def line(figures: Figures, name: str, sizes: tuple[int, int], size: int) -> float:
    """Returns the figure of a program at a size, on the straight line through the two sizes at which it was compiled."""
    (low, high), (at_low, at_high) = sizes, (figures[name.format(compiled)] for compiled in sizes)
    return at_low + (at_high - at_low) * (size - low) / (high - low)


def fused_time_step(model: EchoStateConfig, compute: ComputeConfig) -> float:
    """Returns the microseconds that the kernel `fused` takes for a state, with as many nonzeros as W_rec is expected to have."""
    assert compute.batch_slots is not None, "choose_compute decides it"
    nonzeros, _ = model.recurrent_entries
    traffic = compile_for.fused_traffic(model.reservoir.state_size, nonzeros, compute.batch_slots)
    moved = traffic.bytes_read + traffic.bytes_written
    # As in benchmarks/hlo.py, what comes from the main memory passes the cache too.
    seconds = max(moved / H100.bandwidth, (moved + traffic.bytes_cached) / H100.cache_bandwidth)
    return 1e6 * seconds / compute.batch_slots


if __name__ == "__main__":
    measure.as_command(main)
