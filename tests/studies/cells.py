"""Cells of a grid, as a finished study has them."""

from esnlm.studies import grid, grid_table


def grid_cell(name, values, runs, case=""):
    """Returns a cell as `collect_cells` gives it.

    Args:
        runs: (status, figures by the name of their measure) of each run.
    """
    known = [
        {"run": f"{name}-seed{i}", "seed": i, "status": status, "origin": "a CPU"} | numbers
        for i, (status, numbers) in enumerate(runs)
    ]
    runs = [dict.fromkeys(grid.MEASURES) | run for run in known]
    means = {
        each: grid_table.mean_and_error([run[each] for run in runs if run[each] is not None]) for each in grid.MEASURES
    }
    return {"cell": name, "case": case, "values": values, "settings": values, "runs": runs, "means": means}


def finished(*values, measure="val_nll"):
    """Returns the runs of a cell by what was measured of each."""
    return [("finished", {measure: value}) for value in values]
