"""Which processes belong together, and how they meet."""

import json
import socket
import threading
import time

import pytest

from esnlm.distributed import start
from esnlm.distributed.start import Place, find_launcher, find_place
from esnlm.errors import InputError

ABOUT = {"esnlm": "1", "jax": "2"}
# What `srun` sets in a step of several tasks.
STEP = {
    "SLURM_JOB_ID": "4097",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}


@pytest.mark.parametrize(
    "environment, launcher",
    [
        ({}, None),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "a"}, None),  # salloc, without srun
        (STEP | {"SLURM_STEP_NUM_TASKS": "1"}, None),  # srun -n 1, and a shell that salloc started with srun
        (STEP, "SLURM"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:1"}, "Open MPI"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),  # any pod
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, None),  # a machine without a TPU
    ],
)
def test_only_several_processes_that_were_started_together_are_several(environment, launcher):
    assert find_launcher(environment) == launcher


def test_a_tpu_machine_asks_for_its_slice(monkeypatch):
    monkeypatch.setattr(start, "_is_tpu_machine", lambda environment: True)
    assert find_launcher({"TPU_WORKER_HOSTNAMES": "a,b"}) == find_launcher({}) == "a TPU slice"
    assert find_launcher({"TPU_WORKER_HOSTNAMES": "a"}) is None


def test_jax_says_where_the_tasks_of_slurm_meet(monkeypatch):
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    assert find_place(None, None, None, 1) == Place("node07", 61441, 4, 3, [1])
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "0,1,2,3")
    assert find_place(None, None, None, 1).devices == [0, 1, 2, 3]
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "0,1,")
    with pytest.raises(
        InputError, match="^JAX_LOCAL_DEVICE_IDS is '0,1,': give numbers of devices with commas between"
    ):
        find_place(None, None, None, 1)
    assert find_place(None, 1, None, 1) is None, "--processes 1"
    monkeypatch.delenv("SLURM_STEP_NODELIST")
    with pytest.raises(InputError, match="^SLURM started this process as one of several, but where they meet is not"):
        find_place(None, None, None, 1)


@pytest.mark.parametrize(
    "given, line",
    [
        (
            ("a:1", None, None),
            "--coordinator, --processes, --process belong together: give --processes and --process too",
        ),
        (("a:1", 2, None), "--coordinator, --processes, --process belong together: give --process too"),
        (("a:1", 2, 2), "--process is 2: 2 processes have the numbers 0 to 1"),
        (("a:1", 0, 0), "--processes is 0: it must be at least 1"),
        (
            ("a", 2, 0),
            "--coordinator is 'a': give the name or address of the machine of process 0 and a free port there, as HOST:PORT",
        ),
    ],
)
def test_what_cannot_be_is_refused(given, line):
    with pytest.raises(InputError) as refused:
        find_place(*given, 1)
    assert str(refused.value) == line


def test_open_mpi_5_is_told_what_to_give():
    with pytest.raises(InputError, match="give --coordinator HOST:PORT --processes .OMPI_COMM_WORLD_SIZE --process"):
        find_launcher({"OMPI_COMM_WORLD_SIZE": "2"})


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def meeting(*others, count=3, wait=1.0):
    """What process 0 finds, and what each of the others does: (connections, port), or the line of its refusal."""
    port, found = free_port(), {}

    def go(key, meet, place, about):
        limit = wait if key < 0 else wait + 30  # process 0 is to be the first to lose patience
        try:
            found[key] = meet(place, about, time.monotonic() + limit, limit)
        except InputError as error:
            found[key] = str(error)

    threads = [threading.Thread(target=go, args=(-1, start._receive_others, Place("127.0.0.1", port, count, 0), ABOUT))]
    for key, (process, processes, about) in enumerate(others):
        place = Place("127.0.0.1", port, processes, process)
        threads.append(threading.Thread(target=go, args=(key, start._go_to_first, place, about)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found.values():
        for connection in each[0].values() if isinstance(each, tuple) else ():
            connection.close()
    return [found[key] for key in sorted(found)]


def test_all_who_come_learn_the_port_of_the_service():
    first, one, two = meeting((1, 3, ABOUT), (2, 3, ABOUT), wait=10)
    assert sorted(first[0]) == [1, 2] and first[1] == one[1] == two[1]


@pytest.mark.parametrize(
    "other, line",
    [
        ((1, 4, ABOUT), "process 1 was started as one of 4 processes and process 0 as one of 2"),
        (
            (1, 2, ABOUT | {"jax": "3"}),
            "process 1 has jax 3 and process 0 has 2: install the same one everywhere",
        ),
    ],
)
def test_one_who_does_not_belong_there_ends_all(other, line):
    assert meeting(other, count=2, wait=10) == [line, line]


def test_two_of_one_number_end_all():
    line = "two processes were started as process 1 of 3: give each --process of its own"
    assert meeting((1, 3, ABOUT), (1, 3, ABOUT), wait=10) == [line] * 3


def test_one_who_does_not_come_is_named():
    first, one = meeting((1, 3, ABOUT), wait=0.5)
    assert (
        first.endswith(": process 2 of 3 did not come within 0.5 s; to run alone, give --processes 1") and one == first
    )


def knock(port, line):
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(line + b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b'{"process": 1, "processes": 2}',
        b'{"process": 1, "processes": 2, "about": null}',
        b'{"process": 7, "processes": 2, "about": {"esnlm": "1", "jax": "2"}}',
        b'{"process": [1], "processes": 2, "about": {"esnlm": "1", "jax": "2"}}',
        b'{"process": ' + 9000 * b"[",
    ],
)
def test_a_stranger_at_the_port_is_passed_over(line):
    port = free_port()
    with pytest.raises(InputError, match="process 1 of 2 did not come within 0.5 s"):
        threading.Timer(0.1, knock, [port, line]).start()
        start._receive_others(Place("127.0.0.1", port, 2, 0), ABOUT, time.monotonic() + 0.5, 0.5)


def test_one_who_waits_in_vain_does_not_take_process_0_for_ended(monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(
        start, "_receive", lambda connection, deadline, read=start._receive: read(connection, now + 0.3)
    )
    with socket.create_server(("127.0.0.1", 0)) as server:  # process 0, which waits for process 2
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError) as refused:
            start._go_to_first(Place("127.0.0.1", server.getsockname()[1], 3, 1), ABOUT, now + 0.3, 0.3)
    assert str(refused.value) == (
        f"--coordinator {address}: process 0, or another program, is there, but did not say within 0.3 s that all 3 processes had"
        " come; to run alone, give --processes 1"
    )


def test_one_who_left_again_is_not_counted_and_may_come_again():
    port, found = free_port(), {}

    def come(process):
        place = Place("127.0.0.1", port, 3, process)
        found[process] = start._go_to_first(place, ABOUT, time.monotonic() + 5, 5)

    def leave_and_come():
        knock(port, json.dumps({"process": 1, "processes": 3, "about": ABOUT}).encode())
        for thread in others:
            thread.start()

    others = [threading.Thread(target=come, args=[process]) for process in (2, 1)]
    first = threading.Timer(0.1, leave_and_come)
    first.start()
    found[0] = start._receive_others(Place("127.0.0.1", port, 3, 0), ABOUT, time.monotonic() + 5, 5)
    for thread in (first, *others):
        thread.join()
    assert sorted(found[0][0]) == [1, 2] and len({service for _, service in found.values()}) == 1
    for connections, _ in found.values():
        for connection in connections.values():
            connection.close()


def test_nobody_at_the_coordinator_is_told_within_the_time():
    place, began = Place("127.0.0.1", free_port(), 2, 1), time.monotonic()
    with pytest.raises(InputError, match="process 1 did not reach process 0 there within 0.4 s .Connection refused."):
        start._go_to_first(place, ABOUT, began + 0.4, 0.4)
    assert time.monotonic() - began < 2
