"""How a process finds its place among others, and what it does if it is alone. tests/reliability
has several real processes."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from esnlm.base import processes
from esnlm.base.errors import InputError

ROOT = Path(__file__).parents[2]
# What `srun` sets in a step of several tasks.
STEP = {
    "SLURM_JOB_ID": "4097",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}


class Began(Exception):
    """JAX would wait for the other processes now."""


@pytest.fixture
def begun(monkeypatch):
    """What JAX's own start is called with, which then finds nobody."""
    found = {}

    def initialize(*place, **options):
        found["given"] = place[:3]
        raise Began

    monkeypatch.setattr(processes, "_end_at_abort", lambda status, line: None)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    return found


@pytest.mark.parametrize(
    "environment, options, given",
    [
        (STEP, (None, None, None), (None, 4, None)),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, (None, None, None), (None, 2, None)),
        ({}, ("auto", None, None), (None, None, None)),
        (STEP, ("node1:29500", 2, 1), ("node1:29500", 2, 1)),
    ],
)
def test_the_options_or_a_launcher_say_that_there_are_several_processes(
    environment, options, given, begun, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Began):
        processes.join(*options, wait=1, stops_together=True)
    assert begun["given"] == given


@pytest.mark.parametrize(
    "environment, asked",
    [
        ({}, None),
        (STEP, 1),
        (
            STEP | {"SLURM_STEP_NUM_TASKS": "1"},
            None,
        ),  # srun -n 1, and a shell that salloc started with srun
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"}, None),  # salloc, without srun
    ],
)
def test_one_process_waits_for_nobody(environment, asked, begun, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    processes.join(None, asked, None, wait=1, stops_together=True)
    assert not begun and processes.count() == 1


@pytest.mark.parametrize("options", [("node1:29500", 2, None), (None, 2, 0), ("node1", 2, 0)])
def test_wrong_options_are_refused(options):
    with pytest.raises(InputError, match="^--coordinator"):
        processes.join(*options, wait=1, stops_together=True)


def test_processes_that_do_not_meet_are_refused_in_the_last_line(tmp_path):
    place = ["--coordinator", "127.0.0.1:9", "--processes", "2", "--process", "1"]
    command = [sys.executable, "-m", "esnlm", "train", "--wait", "1", *place]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith(
        "error: --coordinator 127.0.0.1:9: "
    )


def test_a_process_alone_is_the_first_and_waits_for_nobody():
    assert (processes.index(), processes.count(), processes.is_rank0()) == (0, 1, True)
    assert (
        processes.broadcast((1, 2)) == (1, 2)
        and processes.any_asked_to_stop(True)
        and not processes.any_asked_to_stop(False)
    )
    with processes.rank0_first(), processes.written_by_first() as writes:
        assert writes
    processes.barrier()
    processes.finish()
    processes.fail("wrong")
