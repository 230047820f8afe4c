"""Which setting of a grid is its axis, and what is a line."""

import pytest

from esnlm.studies import grid_lines
from tests.studies.cells import finished, grid_cell


@pytest.mark.parametrize(
    "values, axis",
    [
        ([{"rank": 8}, {"rank": 16}], "rank"),
        ([{"kind": "ring"}, {"kind": "orthogonal"}], None),
        ([{"rank": None}, {"rank": 8}], None),
        ([{"rank": 8}], None),
        ([{"rank": r, "radius": rho} for r in (8, 16) for rho in (0.5, 0.9, 1.3)] + [{}], "radius"),
        ([{"train_input": False}, {"train_input": True}], None),
    ],
)
def test_the_axis_is_the_numeric_setting_with_the_most_values(values, axis):
    assert grid_lines.find_axis([grid_cell(str(i), each, []) for i, each in enumerate(values)]) == axis


def test_a_line_is_all_that_differs_in_the_axis_only():
    cells = [
        grid_cell(f"{case}{x}", {"a.rank": x}, finished(9.0 - x), case) for case in ("small", "large") for x in (2, 1)
    ]
    cells += [grid_cell("peer", {}, finished(4.0, 5.0)), grid_cell("later", {"a.rank": 3}, [])]
    lines = grid_lines.make_lines(cells, "a.rank", [grid_lines.read_mean(each, "val_nll") for each in cells])
    assert {name: [(p.x, p.mean) for p in points] for name, points in lines.items() if name != "peer"} == {
        "small": [(1.0, 8.0), (2.0, 7.0)],
        "large": [(1.0, 8.0), (2.0, 7.0)],
    }
    [peer] = lines["peer"]  # it has no place on the axis
    assert peer.measured == 2
    assert str(peer.x) == "nan" and peer.mean == 4.5 and peer.error == pytest.approx(0.5)
