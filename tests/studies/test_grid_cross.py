"""The tables of a grid that have a row for each line and a column for each value on its axis."""

from esnlm.studies import grid_table
from esnlm.studies.grid_cross import cross_tables
from tests.studies.cells import finished, grid_cell
from tests.studies.grids import grid_of

RATES = {"training.learning_rate": 0.001}, {"training.learning_rate": 0.01}


def cells_of(case, *values, measure="val_nll"):
    return [grid_cell(f"{case}-{i}", RATES[i], finished(*each, measure=measure), case) for i, each in enumerate(values)]


def test_the_lowest_loss_of_each_row_is_bold():
    cells = [
        *cells_of("small", [5.0, 5.2], [5.5]),
        *cells_of("large", [6.0], [4.0]),
        grid_cell("peer", {}, finished(1.0)),
    ]
    assert cross_tables(grid_of(), cells) == [
        "",
        "## val NLL by learning rate",
        "",
        "The best mean of each row is bold. Only means of the largest number of runs are compared.",
        "",
        "|  | learning rate 0.001 | learning rate 0.01 |",
        "| --- | ---: | ---: |",
        "| small | **5.100 (0.100)** | 5.500 of 1 |",
        "| large | 6.000 | **4.000** |",
    ]


def test_large_values_that_differ_have_different_columns():
    sizes = [{"model.reservoir.state_size": size} for size in (1_048_576, 1_048_577)]
    cells = [grid_cell(f"{case}-{i}", sizes[i], finished(5.0), case) for case in ("a", "b") for i in (0, 1)]
    assert "|  | state size 1048576 | state size 1048577 |" in cross_tables(grid_of(), cells)


def test_the_survivors_of_collapsed_seeds_are_no_best_ones():
    """A mean of fewer runs than others of its row may be that of the seeds that did well."""
    lines = [
        grid_cell("small-0", RATES[0], finished(60.0, 61.0, 62.0, measure="blimp"), "small"),
        grid_cell("small-1", RATES[1], [("finished", {"blimp": 66.0}), ("finished", {}), ("finished", {})], "small"),
        *cells_of("large", [54.0], [53.0], measure="blimp"),
    ]
    assert cross_tables(grid_of(), lines)[-2] == "| small | **61.0 (0.6)** | 66.0 of 1 |"


def test_a_diverged_cell_has_its_figure_and_is_never_bold():
    cells = [*cells_of("small", [5.0], [float("inf")]), *cells_of("large", [6.0], [4.0])]
    assert cross_tables(grid_of(), cells)[-2:] == ["| small | **5.000** | inf |", "| large | 6.000 | **4.000** |"]


def test_a_case_without_the_axis_is_no_point_of_the_line_of_its_name():
    cells = [
        grid_cell("small", {}, finished(1.0), "small"),
        *cells_of("small", [5.0], [5.5]),
        *cells_of("large", [6.0], [4.0]),
    ]
    assert cross_tables(grid_of(), cells)[-2:] == ["| small | **5.000** | 5.500 |", "| large | 6.000 | **4.000** |"]


def test_the_highest_accuracy_of_each_row_is_bold():
    cells = [*cells_of("small", [51.0], [52.0], measure="blimp"), *cells_of("large", [54.0], [53.0], measure="blimp")]
    assert cross_tables(grid_of(), cells)[-2:] == ["| small | 51.0 | **52.0** |", "| large | **54.0** | 53.0 |"]


def test_a_line_with_a_single_value_has_no_row_and_a_missing_value_no_figure():
    one = cells_of("one", [5.0])
    three = [grid_cell("three", {"training.learning_rate": 0.1}, finished(7.0), "three"), *cells_of("three", [8.0])]
    lines = cross_tables(grid_of(), [*cells_of("small", [5.0], [5.5]), *one, *three])
    assert lines[-2:] == ["| small | **5.000** | 5.500 |  |", "| three | 8.000 |  | **7.000** |"]


def test_there_is_no_such_table_of_one_line_or_of_a_measure_that_the_study_does_not_show():
    cells = [*cells_of("small", [5.0], [5.5]), *cells_of("large", [6.0], [4.0])]
    assert cross_tables(grid_of(), cells[:2]) == []
    assert cross_tables(grid_of(), [grid_cell("a", {}, finished(5.0)), grid_cell("b", {}, finished(5.0))]) == []
    assert cross_tables(grid_of(columns=("blimp",)), cells) == []


def test_the_page_of_a_study_has_them(tmp_path):
    cells = [*cells_of("small", [5.0], [5.5]), *cells_of("large", [6.0], [4.0])]
    page = grid_table.write_table(grid_of(out=tmp_path), cells, "the command", None)
    assert "| large | 6.000 | **4.000** |" in page and page.index("| large-1 |") < page.index("## val NLL by")
