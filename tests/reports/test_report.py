"""A report is checked before the work and written after it; tables in Markdown and CSV."""

import json

import pytest

from esnlm.base.errors import InputError
from esnlm.base.files import seal
from esnlm.reports.report import Report, csv_table, markdown_table


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


def test_a_report_is_checked_before_it_replaces_a_file(tmp_path):
    report = Report(tmp_path / "new" / "figures.json")
    report.check(overwrite=False)  # makes the folder
    report.write({"nll": 2.0})
    report.check()
    with pytest.raises(InputError, match="figures.json: exists; name another file"):
        report.check(overwrite=False)
    with pytest.raises(InputError, match="figures.txt: the report must be a file whose name ends"):
        Report(tmp_path / "figures.txt").check()


def test_a_report_has_a_page_a_picture_and_its_provenance(tmp_path):
    report = Report(tmp_path / "curve.json", "esnlm curve")
    line = report.write({"nll": float("inf")}, "# A curve\n", b"a picture", sealed=True)
    assert line == f"written: {tmp_path / 'curve.json'} (and .md, .png beside it)"
    result = json.loads((tmp_path / "curve.json").read_text())
    assert result["nll"] == "inf" and result["sha256"] == seal(result)
    assert result["provenance"].keys() == {"command", "versions", "machine", "device"}
    page = (tmp_path / "curve.md").read_text()
    assert page.startswith("# A curve\n\n## Origin\n\n- command: esnlm curve\n- machine: ")
    assert (tmp_path / "curve.png").read_bytes() == b"a picture"


def test_a_table_of_runs_has_no_provenance_of_its_own(tmp_path):
    report = Report(tmp_path / "table.json", measured=False)
    report.write([{"run": "a"}], "a table\n", others={tmp_path / "table.csv": "run\na\n"})
    assert json.loads((tmp_path / "table.json").read_text()) == [{"run": "a"}]
    assert (tmp_path / "table.md").read_text() == "a table\n"
    assert (tmp_path / "table.csv").read_text() == "run\na\n"
