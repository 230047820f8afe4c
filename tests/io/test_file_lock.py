"""Locks of files: one holder at a time, and none where the file system has no locks."""

import errno
import fcntl

import pytest

from esnlm.errors import InputError
from esnlm.io import file_lock


def test_a_second_one_is_told_until_the_first_closes_the_file(tmp_path):
    path = tmp_path / ".lock"
    with open(path, "a") as second:
        with open(path, "a") as first:
            assert file_lock.lock(first, "taken") is None
            with pytest.raises(InputError, match="^taken$"):
                file_lock.lock(second, "taken")
        assert file_lock.lock(second, "taken") is None


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with open(tmp_path / ".lock", "a") as file:
        assert file_lock.lock(file, "taken").strerror == "No locks available"
        assert file_lock.lock(file).errno == errno.ENOLCK
