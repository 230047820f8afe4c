"""A grid without its file."""

from pathlib import Path

from esnlm.studies.grid import MEASURES, Grid


def grid_of(out=Path("out"), columns=tuple(MEASURES), published=None):
    """Returns a grid that says nothing of its cells."""
    return Grid(
        file=Path("sweep.yaml"),
        cells=(),
        seeds=(0, 1, 2),
        out=out,
        blimp=None,
        note="",
        source="",
        published=published or {},
        columns=columns,
    )
