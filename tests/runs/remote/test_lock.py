"""The lock of a run in the cloud: who gets it, who is refused, and who takes it over."""

import json
import threading

import pytest

from esnlm.errors import InputError
from esnlm.runs.remote import lock as lock_module
from esnlm.runs.remote.lock import LOCK, Lock
from tests.runs.remote.in_memory import InMemory

ELSEWHERE = {"host": "elsewhere", "pid": 7, "since": "2026-01-01 00:00:00 UTC", "id": "theirs"}
REFUSAL = (
    "s3://bucket/runs/first: another training is writing to this run (process 7 of elsewhere, since 2026-01-01 00:00:00"
    " UTC); end it, or choose another run with --run"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Minutes become tenths of a second."""
    for name, seconds in {"RENEW": 0.02, "WATCH": 0.3, "LOOK": 0.02, "SETTLE": 0.0}.items():
        monkeypatch.setattr(lock_module, name, seconds)


def held_by(**holder):
    bucket = InMemory()
    bucket.objects[LOCK] = json.dumps(ELSEWHERE | holder).encode()
    return bucket


def test_it_is_there_while_it_is_held_and_gone_after():
    bucket = InMemory()
    with Lock(bucket).held():
        first = bucket.objects[LOCK]
        changed = threading.Event()
        bucket.watch = changed.set
        assert changed.wait(5) and bucket.objects[LOCK] != first, "it is renewed"
    assert LOCK not in bucket.objects


def test_a_second_training_is_refused_while_the_first_lives(capsys):
    bucket = held_by()
    renewals = iter(range(1000))
    read = bucket.read
    bucket.read = lambda name: read(name) if next(renewals) < 3 else read(name) + b" "
    with pytest.raises(InputError) as caught, Lock(bucket).held():
        pass
    assert str(caught.value) == REFUSAL
    assert "is locked by process 7 of elsewhere" in capsys.readouterr().err
    assert json.loads(bucket.objects[LOCK])["id"] == "theirs"


def test_a_dead_lock_is_taken_over_once_it_was_watched():
    bucket = held_by()
    with Lock(bucket).held():
        assert json.loads(bucket.objects[LOCK])["id"] != "theirs"


def test_one_that_is_given_back_meanwhile_is_taken_at_once(monkeypatch):
    monkeypatch.setattr(lock_module, "WATCH", 1000)
    bucket = held_by()
    read, looks = bucket.read, iter(range(1000))

    def read_and_give_back(name):
        if next(looks) == 3:
            del bucket.objects[LOCK]
        return read(name)

    bucket.read = read_and_give_back
    with Lock(bucket).held():
        assert json.loads(bucket.objects[LOCK])["id"] != "theirs"


def test_that_of_a_process_of_this_machine_which_has_ended_is_taken_over_at_once(monkeypatch):
    monkeypatch.setattr(lock_module, "WATCH", 1000)
    with Lock(held_by(**lock_module._this_machine(), pid=2**22 + 1)).held():
        pass


def test_that_of_a_process_of_this_machine_which_lives_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(lock_module, "WATCH", 1000)
    with (
        pytest.raises(InputError, match="another training is writing"),
        Lock(held_by(**lock_module._this_machine(), pid=1)).held(),
    ):
        pass


def test_a_holder_that_lost_it_says_so_and_leaves_it_alone(capsys):
    bucket = InMemory()
    lock = Lock(bucket)
    with lock.held():
        bucket.objects[LOCK] = json.dumps(ELSEWHERE).encode()
        for _ in range(500):
            if lock.lost:
                break
            threading.Event().wait(0.01)
    assert lock.lost and json.loads(bucket.objects[LOCK])["id"] == "theirs"
    assert (
        "another training has taken this run over; nothing more is uploaded: end one of the two"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"pid": "x"}'])
def test_a_lock_that_nobody_can_read_is_watched_like_any_other(content):
    bucket = InMemory()
    bucket.objects[LOCK] = content
    with Lock(bucket).held():
        pass


def test_a_network_that_fails_loses_no_lock():
    bucket = InMemory()
    lock = Lock(bucket)
    with lock.held():
        bucket.requests = 0
        threading.Event().wait(0.1)
    assert not lock.lost
