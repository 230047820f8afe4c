"""Decisions, and the end of one process, between processes that are threads here. tests/reliability has real ones."""

import errno
import os
import socket
import threading
import time

import numpy as np
import pytest

from esnlm import process
from esnlm.distributed import channel, group
from esnlm.distributed.channel import PROCESS_LOST, STOPPED, Channel, ProcessEnded
from esnlm.errors import InputError
from esnlm.io.console import say
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.runs.metrics import Metrics
from esnlm.training.state import restore_newest


@pytest.fixture
def three(monkeypatch, left):
    """The channels of three processes."""
    monkeypatch.setattr(channel, "GRACE", 0.3)
    monkeypatch.setattr(channel, "FAREWELL", 0.2)
    pairs = {peer: socket.socketpair(socket.AF_UNIX) for peer in (1, 2)}
    monkeypatch.setattr(channel, "_keep_alive", lambda connection: None)
    found = [Channel(0, 3, {peer: pair[0] for peer, pair in pairs.items()})]
    found += [Channel(peer, 3, {0: pair[1]}) for peer, pair in pairs.items()]
    yield found
    for each in found:
        each._finished = True  # or they would take each other for lost
    for each in found:
        each.close()


@pytest.fixture(autouse=True)
def left(monkeypatch):
    """How processes have left: [(status, line)]."""
    found, lines = [], []

    def leave(status):
        found.append((status, lines.pop()))
        threading.Event().wait()  # A process that has left does nothing more.

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(os, "write", lambda number, line: lines.append(line.decode()))
    return found


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_process_0_decides(three):
    first, *others = three
    assert [first.agree(value) for value in (1, {"a": [2]}, None)] == [1, {"a": [2]}, None], "it waits for nobody"
    for other in others:
        assert [other.agree("mine") for _ in range(3)] == [1, {"a": [2]}, None]


def test_one_who_was_asked_to_stop_tells_process_0(three):
    first, one, _ = three
    one.ask_to_stop()
    wait_for(lambda: first.stop_asked)


def test_input_that_another_process_refuses_is_refused_by_process_0_and_ends_the_third(three, left):
    first, one, two = three
    one.fail(2, "store: damaged")
    with pytest.raises(InputError, match="^process 1 of 3: store: damaged$"):
        first.await_message("done with it")
    wait_for(lambda: left)
    assert left == [(2, "error: process 1 of 3: store: damaged\n")], "process 2 leaves"
    assert two.index == 2


def test_a_lost_process_ends_process_0_where_it_waits(three, left):
    first, one, _ = three
    one._connections[0].shutdown(socket.SHUT_RDWR)  # as the system does where a process is killed
    with pytest.raises(ProcessEnded, match="^process 1 of 3 was lost: it was killed, or") as ended:
        first.await_message("done with it")
    assert ended.value.status == PROCESS_LOST
    wait_for(lambda: len(left) == 2)  # the lost one's thread believes that process 0 is lost


def test_a_lost_process_ends_process_0_also_where_it_does_not_wait(three, left):
    first, one, _ = three
    one._finished = True
    one._connections[0].shutdown(socket.SHUT_RDWR)
    wait_for(lambda: len(left) == 2)
    assert [status for status, _ in left] == [PROCESS_LOST] * 2
    assert all(line.startswith("error: process 1 of 3 was lost: ") for _, line in left)


def test_what_is_valuable_comes_to_its_end(three, left):
    first, one, _ = three
    one._finished = True
    with first.valuable():
        one._connections[0].shutdown(socket.SHUT_RDWR)
        time.sleep(0.6)
        assert [line for _, line in left] and len(left) == 1, "process 2 has left, and process 0 writes on"
    wait_for(lambda: len(left) == 2)


def test_all_end_together(three, left):
    threads = [threading.Thread(target=each.finish) for each in three]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for each in three:
        each.close()
    time.sleep(0.1)  # A reader that took an end for a loss would have left by now.
    assert left == []


def test_a_process_alone_is_the_first_and_waits_for_nobody():
    assert (group.index(), group.count(), group.writes()) == (0, 1, True)
    assert group.agree((1, 2)) == (1, 2) and group.any_asked_to_stop(True) and not group.any_asked_to_stop(False)
    with group.in_turn(), group.written_by_first() as writes:
        assert writes
    group.meet()
    group.finish()
    group.fail(2, "wrong")
    assert not group.left() and group.reason() is None


@pytest.fixture
def first_of_three(three, monkeypatch):
    """This process is process 0, for as long as the test runs."""
    monkeypatch.setattr(group, "_channel", three[0])
    monkeypatch.setattr(group, "_ended", False)
    return three


def fail(error):
    raise error


@pytest.mark.parametrize(
    "error, status, line",
    [
        (InputError("store: damaged"), 2, "store: damaged"),
        (OSError(errno.ENOSPC, "No space left on device", "run"), 2, "run: No space left on device; free some space"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("by 0"), 1, "ZeroDivisionError: by 0"),
    ],
)
def test_whatever_ends_a_command_ends_the_others(first_of_three, left, monkeypatch, capsys, error, status, line):
    monkeypatch.setattr(group, "reason", lambda: None)
    assert process._run(lambda: fail(error)) == status
    wait_for(lambda: len(left) == 2)
    assert {each[0] for each in left} == {status}
    assert all(each[1].startswith(f"error: process 0 of 3: {line}") for each in left)


def test_a_fault_that_a_lost_process_has_caused_is_told_as_what_it_is(first_of_three, left, capsys):
    first, one, _ = first_of_three
    one._finished = True

    def collective():
        one._connections[0].shutdown(socket.SHUT_RDWR)
        raise ValueError("Gloo all-reduce failed")

    assert process._run(collective) == PROCESS_LOST
    said = capsys.readouterr().err
    assert said.startswith("error: process 1 of 3 was lost: ") and said.count("\n") == 1


def test_a_fault_that_a_stopped_process_has_caused_is_a_stop(first_of_three, left, capsys):
    """One that is asked to stop before the first update is compiled leaves at once, and a sum over all processes fails."""
    first_of_three[1].fail(STOPPED, "stopped")

    def collective():
        raise ValueError("Gloo all-reduce failed")

    assert process._run(collective) == STOPPED
    assert capsys.readouterr().err == "stopped\n"


def test_only_process_0_writes_and_speaks(three, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(group, "_channel", three[1])
    say("a line")
    with Metrics(None, 0) as metrics:
        metrics.write(step=1)
    with RunDirectory(tmp_path).locked(), RunDirectory(tmp_path).begin():
        pass
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr() == ("", "")


def test_the_others_take_the_checkpoint_that_process_0_found(three, monkeypatch, tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path / str(step), {"a": np.arange(step)}, {})
    three[0].agree(1)  # 2 was damaged where process 0 looked
    monkeypatch.setattr(group, "_channel", three[1])
    step, arrays, _ = restore_newest(tmp_path)
    assert step == 1 and arrays["a"].tolist() == [0]
