"""Work in another thread: its outcome is as of a call, and a signal does not wait for it."""

import signal
import subprocess
import sys
import threading

import pytest

from esnlm import background


def test_the_outcome_is_that_of_a_call():
    assert background.run(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        background.run(lambda: 1 / 0)


def test_work_that_was_begun_goes_on_beside_the_caller_until_it_is_asked_for():
    go_on = threading.Event()
    waits, fails = background.begin(lambda: go_on.wait() and 3), background.begin(lambda: 1 / 0)
    assert not waits.done()
    go_on.set()
    assert waits.result() == 3
    with pytest.raises(ZeroDivisionError):
        fails.result()


def test_the_end_of_a_process_does_not_wait_for_work_that_was_begun():
    program = "import threading; from esnlm import background; background.begin(threading.Event().wait)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_slow_work_is_announced_once(monkeypatch):
    monkeypatch.setattr(background, "SLOW", 0.01)
    go_on, said = threading.Event(), []

    def slow():
        said.append("slow")
        go_on.set()

    assert background.run(go_on.wait, slow) is True
    assert background.run(lambda: 1, slow) == 1
    assert said == ["slow"]


def test_a_signal_does_not_wait_for_the_work():
    go_on, here = threading.Event(), threading.get_ident()

    def work():
        signal.pthread_kill(here, signal.SIGINT)
        go_on.wait()

    with pytest.raises(KeyboardInterrupt):
        background.run(work)
    assert len(background._unfinished) == 1
    go_on.set()
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.main_thread() and "keep" in thread.name:
            thread.join()
    assert background._unfinished == set() and background.leave(7) == 7


PROGRAM = """
import signal, threading, time
from esnlm import background

def work():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(60)

try:
    background.run(work)
except KeyboardInterrupt:
    print("left behind")
background.leave(75)
print("the end")
"""


def test_a_process_ends_beside_work_that_it_left_behind():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (75, "left behind\n", "")
