"""The folder of a study belongs to one study, and one process at a time writes its table."""

import json
import threading

import pytest

from esnlm.errors import InputError
from esnlm.studies import folder


def test_a_second_process_waits_while_the_table_is_written(tmp_path):
    entered = threading.Event()

    def write_too():
        with folder.held(tmp_path):
            entered.set()

    with folder.held(tmp_path):
        other = threading.Thread(target=write_too)
        other.start()
        assert not entered.wait(0.2)
    other.join(10)
    assert entered.is_set()


def test_a_folder_that_another_process_has_just_begun_is_no_other_studys(tmp_path):
    folder.require_own(tmp_path / "new", "radius")
    with folder.held(tmp_path):
        folder.require_own(tmp_path, "radius")  # nothing but the lock is there
        (tmp_path / "table.md").write_text("")
        (tmp_path / "whole").write_text(json.dumps({"study": "radius"}))  # A table appears whole, as a study writes it.
        threading.Timer(0.2, (tmp_path / "whole").rename, (tmp_path / "table.json",)).start()
        checked = threading.Thread(target=folder.require_own, args=(tmp_path, "radius"))
        checked.start()
        checked.join(0.1)
        assert checked.is_alive(), "it waits for the table"
        while not (tmp_path / "table.json").exists():
            pass
    checked.join(10)
    folder.require_own(tmp_path, "radius")
    with pytest.raises(InputError, match="holds something else than the grid other; choose another folder with --out"):
        folder.require_own(tmp_path, "other")
    with pytest.raises(
        InputError, match="holds something else than the search radius; choose another folder with --out"
    ):
        folder.require_own(tmp_path, "radius", kind="search")
