"""Tables in Markdown and CSV."""

from esnlm.reports.report import csv_table, markdown_table


def test_a_table_is_aligned_by_letters_and_the_last_one_goes_on():
    assert markdown_table(
        ["run", "NLL", "a|b"], [["small", 2.5, 94], ["large", "", None]], align="lr"
    ) == [
        "| run | NLL | a&#124;b |",
        "| --- | ---: | ---: |",
        "| small | 2.5 | 94 |",
        "| large |  | None |",
    ]


def test_a_csv_table_keeps_all_digits_and_quotes_commas():
    assert (
        csv_table(["run", "NLL"], [["a,b", 1 / 3], ["c", None]])
        == 'run,NLL\n"a,b",0.3333333333333333\nc,\n'
    )
