"""Processes side by side: each with its share, none stopping the others."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from esnlm.errors import InputError
from esnlm.studies.jobs import Job, Pool
from esnlm.studies.shares import Share

ROOT = Path(__file__).resolve().parents[2]


def tell_share(file: Path) -> int:
    """A fake run that writes what it was given."""
    file.write_text(json.dumps([os.environ.get("CUDA_VISIBLE_DEVICES"), sorted(os.sched_getaffinity(0))]))
    return 0


def fail(line: str) -> int:
    raise InputError(line)


def end(code: int) -> int:
    os._exit(code)


def wait_for_all(pool):
    found = {}
    while pool.running:
        found |= {ended.job.name: ended for ended in pool.wait(60)}
    return found


def test_a_process_sees_its_own_device_and_cores(tmp_path):
    core = min(os.sched_getaffinity(0))
    shares = [Share(frozenset({core}), "3"), Share(None, "4")]
    with Pool(shares, memory=0) as pool:
        for name in ("a", "b"):
            pool.start(Job(name, tell_share, (tmp_path / name,)))
            assert pool.running
        assert {ended.status for ended in wait_for_all(pool).values()} == {0}
    found = [json.loads((tmp_path / name).read_text()) for name in ("a", "b")]
    assert found == [["3", [core]], ["4", sorted(os.sched_getaffinity(0))]]


def test_one_that_fails_leaves_its_line_and_the_others_alone(tmp_path):
    with Pool([Share()] * 3, memory=0) as pool:
        pool.start(Job("a", fail, ("store: missing",), log=tmp_path / "a.log"))
        pool.start(Job("b", end, (7,), log=tmp_path / "b.log"))
        pool.start(Job("c", tell_share, (tmp_path / "c",), log=tmp_path / "c.log"))
        ended = wait_for_all(pool)
    assert (tmp_path / "a.log").read_text() == "error: store: missing\n"
    assert (ended["a"].status, ended["a"].reason) == (2, "store: missing")
    assert (ended["b"].status, ended["b"].reason) == (7, f"ended with status 7 ({tmp_path / 'b.log'})")
    assert ended["c"].status == 0 and (tmp_path / "c").exists()


def test_as_many_run_as_the_memory_and_the_shares_allow_and_all_are_stopped():
    began, before = time.monotonic(), signal.getsignal(signal.SIGTERM)
    with Pool([Share()] * 2, memory=10) as pool:
        assert pool.has_room(99), "the first one always can"
        pool.start(Job("a", time.sleep, (300,), memory=6))
        assert pool.has_room(4) and not pool.has_room(5)
        pool.start(Job("b", time.sleep, (300,), memory=4))
        assert not pool.has_room(0)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        ended = wait_for_all(pool)
        assert pool.asked and len(ended) == 2 and not pool.has_room(0)
    assert time.monotonic() - began < 200 and signal.getsignal(signal.SIGTERM) is before


def work_on(folder: Path) -> int:
    """A fake run that tells its process, and that it was asked to stop."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    (folder / "process").write_text(str(os.getpid()))
    if stopped.wait(120):
        (folder / "stopped").write_text("")
    return 75


STUDY = """
import sys
from pathlib import Path
from esnlm.studies.jobs import Job, Pool
from esnlm.studies.shares import Share
from tests.studies.test_jobs import work_on

if __name__ == "__main__":
    with Pool([Share()], memory=0) as pool:
        pool.start(Job("a", work_on, (Path(sys.argv[1]),)))
        pool.wait(None)
"""


def test_a_run_saves_and_stops_when_its_study_is_killed(tmp_path):
    """Else the same command could not go on: the run that is left would hold its folder."""
    (tmp_path / "study.py").write_text(STUDY)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen([sys.executable, str(tmp_path / "study.py"), str(tmp_path)], env=environment)
    deadline = time.monotonic() + 100
    try:
        while not (tmp_path / "process").exists():
            assert killed.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        killed.kill()
        killed.wait()
    while not (tmp_path / "stopped").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_leaving_stops_what_is_running():
    with Pool([Share()], memory=0) as pool:
        pool.start(Job("a", time.sleep, (300,)))
    assert not pool.running and not pool.asked
