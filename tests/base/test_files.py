"""A reader finds the old file or folder or the new one, never a part, and nothing unfinished stays
for ever."""

import json
import math
import os
import stat

import pytest

from esnlm.base.errors import InputError
from esnlm.base.files import (
    NewFolder,
    add_seal,
    remove_abandoned,
    remove_seal,
    require_writable,
    write_file,
    write_files,
    write_json,
)


def names(folder):
    return sorted(os.listdir(folder))


def fail(*arguments, **options):
    raise OSError(28, "No space left on device")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    write_file(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match=f"^{tmp_path}/file: No space left on device"):
        write_file(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old" and names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "name, line", [("none/file", "No such file"), ("folder", "a folder; name a file")]
)
def test_a_path_that_no_file_can_have_is_named_and_no_file_of_its_group_is_written(
    tmp_path, name, line
):
    (tmp_path / "folder").mkdir()
    write_file(tmp_path / "old", "old")
    with pytest.raises(InputError, match=f"^{tmp_path / name}: {line}"):
        write_files({tmp_path / "old": "new", tmp_path / name: "new", tmp_path / "last": "new"})
    assert (tmp_path / "old").read_text() == "old" and names(tmp_path) == ["folder", "old"]


def test_the_files_of_a_group_take_their_names_in_order_once_all_are_on_the_disk(
    tmp_path, monkeypatch
):
    replaced, replace = [], os.replace

    def note(partial, path):
        hidden = {file.name.split(".")[1] for file in tmp_path.glob(".*.partial-*")}
        assert hidden == {"first", "last"} - set(replaced)
        replaced.append(path.name)
        replace(partial, path)

    (tmp_path / "removed").write_text("old")
    monkeypatch.setattr(os, "replace", note)
    write_files({tmp_path / "first": "1", tmp_path / "removed": None, tmp_path / "last": "2"})
    assert replaced == ["first", "last"] and names(tmp_path) == ["first", "last"]


def test_a_folder_is_there_when_it_is_committed_and_not_before(tmp_path):
    target = tmp_path / "a" / "folder"
    with NewFolder(target) as new:
        (new.path / "file").write_text("content")
        assert not target.exists()
        new.commit()
    assert (target / "file").read_text() == "content" and names(target.parent) == ["folder"]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_folder_that_is_not_committed_is_removed(tmp_path, error):
    try:
        with NewFolder(tmp_path / "folder"):
            if error:
                raise error
    except KeyboardInterrupt:
        pass
    assert names(tmp_path) == []


def test_a_folder_is_replaced_only_where_it_is_empty_or_that_is_asked_for(tmp_path):
    (tmp_path / "folder").mkdir()
    for content, replace in (("first", False), ("second", True)):
        with NewFolder(tmp_path / "folder") as new:
            (new.path / "file").write_text(content)
            new.commit(replace)
    with pytest.raises(OSError), NewFolder(tmp_path / "folder") as new:
        new.commit()
    assert (tmp_path / "folder" / "file").read_text() == "second" and names(tmp_path) == ["folder"]


def test_what_is_left_of_an_unfinished_folder_is_removed_by_the_next_one(tmp_path):
    (tmp_path / ".folder.partial-00000000").mkdir()
    (tmp_path / ".other.partial-00000000").mkdir()
    with NewFolder(tmp_path / "folder") as new:
        new.commit()
    assert names(tmp_path) == [".other.partial-00000000", "folder"]
    remove_abandoned(tmp_path)
    assert names(tmp_path) == ["folder"]


def test_a_pipe_keeps_its_name(tmp_path):
    """Else /dev/null would be a file from then on."""
    os.mkfifo(tmp_path / "pipe")
    for act in (
        lambda: write_file(tmp_path / "pipe", "new"),
        lambda: require_writable(tmp_path / "pipe"),
    ):
        with pytest.raises(InputError, match="pipe: a device or a pipe; name a file"):
            act()
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("file")
    for content in ("old", "new"):
        write_file(tmp_path / "link", content)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"


def test_any_float_is_written(tmp_path):
    write_json(tmp_path / "a", {"loss": math.nan, "best": [math.inf, -math.inf, 0.1]})
    assert json.loads((tmp_path / "a").read_text()) == {"loss": "nan", "best": ["inf", "-inf", 0.1]}


def test_a_seal_notices_any_changed_byte():
    sealed = add_seal({"a": 1, "b": "x"})
    assert remove_seal(sealed) == {"a": 1, "b": "x"}
    for position in range(len(sealed)):
        assert (
            remove_seal(sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :])
            is None
        )
    assert remove_seal(sealed + b"\n") is None
