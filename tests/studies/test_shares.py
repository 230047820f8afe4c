"""A machine is divided into equal shares, whatever is left to do."""

import os

import pytest

from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.studies import shares
from esnlm.studies.shares import Devices, Share, divide
from esnlm.training import plan

GIGABYTE = 10**9
CPU = Devices("cpu", 1)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores, 32 GB."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(shares, "total_memory", lambda: 32 * GIGABYTE)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_cores_are_divided_into_equal_shares():
    assert divide(2, 9, GIGABYTE, CPU) == [Share(frozenset(range(4))), Share(frozenset(range(4, 8)))]
    assert [share.cores for share in divide(3, 9, GIGABYTE, CPU)] == [{0, 1}, {2, 3}, {4, 5}], "two are left idle"
    assert [share.cores for share in divide(10, 9, GIGABYTE, CPU)][-3:] == [{7}, {0}, {1}], "two are shared"


@pytest.mark.parametrize("runs, need, count", [(100, 1, 8), (3, 1, 3), (100, 7, 4), (100, 40, 1)])
def test_auto_is_what_the_machine_and_the_study_have_room_for(runs, need, count):
    assert len(divide("auto", runs, need * GIGABYTE, CPU)) == count


def test_one_job_has_all_of_the_machine():
    assert divide(1, 9, GIGABYTE, CPU) == [Share()] == divide("auto", 9, GIGABYTE, Devices("tpu", 4))


def test_each_job_gets_a_gpu_of_its_own(monkeypatch):
    gpus = Devices("gpu", 2)
    assert divide("auto", 9, GIGABYTE, gpus) == [
        Share(frozenset(range(4)), "0"),
        Share(frozenset(range(4, 8)), "1"),
    ]
    assert len(divide(5, 9, GIGABYTE, gpus)) == 2, "never two on one"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-3a")
    assert [share.device for share in divide(2, 9, GIGABYTE, gpus)] == ["5", "GPU-3a"]


def test_a_share_is_given_back(monkeypatch):
    given = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: given.append(set(cores)))
    with Share(frozenset({3}), "1").given():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1" and given == [{3}]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ and given == [{3}, set(range(8))]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with Share(None, "1").given():
        pass
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_the_memory_of_a_run_is_that_of_its_plan():
    experiment = Experiment()
    [need] = shares.memory_needs([experiment], CPU)
    assert need == shares.PROCESS_BYTES + plan.memory(experiment, "cpu").total
    assert shares.memory_needs([experiment], Devices("gpu", 1)) == [shares.PROCESS_BYTES]


@pytest.mark.parametrize("text, jobs", [("3", 3), ("auto", "auto"), (None, None)])
def test_jobs_are_read(text, jobs):
    assert shares.parse_jobs(text) == jobs


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "", "²"])
def test_no_number_of_jobs_is_refused(text):
    with pytest.raises(InputError, match=f"^--jobs is {text}: give a number from 1 up, or auto$"):
        shares.parse_jobs(text)
