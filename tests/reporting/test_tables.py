"""The writer of Markdown tables."""

from esnlm.reporting.tables import markdown_table


def test_a_table_is_aligned_by_letters_and_the_last_one_goes_on():
    assert markdown_table(["run", "NLL", "BLiMP"], [["small", 2.5, 94], ["large", "", None]], align="lr") == [
        "| run | NLL | BLiMP |",
        "| --- | ---: | ---: |",
        "| small | 2.5 | 94 |",
        "| large |  | None |",
    ]


def test_a_table_without_rows_has_its_header():
    assert markdown_table(["", "p"], []) == ["|  | p |", "| --- | --- |"]


def test_a_name_with_a_bar_stays_in_its_cell():
    assert markdown_table(["a|b"], [["|h|"]])[::2] == ["| a&#124;b |", "| &#124;h&#124; |"]
