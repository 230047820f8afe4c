"""How several processes become one run: who started them, where they meet, and JAX's own start.

They meet at the coordinator's address before JAX's coordination service begins. So a process that does not come, a number
that is given twice and the like are told of in a line. JAX's own client would abort the process with a page of text.
"""

import importlib.util
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.distributed import group
from esnlm.distributed.channel import Channel, let_abort_wait
from esnlm.errors import InputError
from esnlm.versions import version

WAIT = 300.0  # seconds, where the command line says nothing
LONGEST_WAIT = 10_000_000  # seconds: what a socket takes for a time
ALONE = "to run alone, give --processes 1"


@dataclass(frozen=True)
class Place:
    """A process's place among those of a run."""

    host: str  # of process 0
    port: int  # at which it awaits the others
    count: int
    index: int
    devices: list[int] | None = None  # numbers of this machine's devices that are this process's; None: all


def join(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None, wait: float = WAIT
) -> None:
    """Makes this process one of those of a run, where it was started as one of several. It comes before JAX is used.

    Args:
        coordinator: HOST:PORT of process 0. It, `processes` and `process` are given together, or none of them: then the
            environment decides, as SLURM, Open MPI, Kubernetes and TPU slices set it.
        processes: how many there are; 1 alone: this process is alone, whatever the environment says.
        process: the number of this one.
        wait: seconds in which all must come.

    Raises:
        InputError: the numbers are wrong, or the processes do not come together.
    """
    if (place := find_place(coordinator, processes, process, wait)) is not None:
        _start(place, wait)


def find_place(coordinator: str | None, processes: int | None, process: int | None, wait: float) -> Place | None:
    """Returns the place of this process, or None where it is alone. See `join`."""
    if not 0 <= wait <= LONGEST_WAIT:
        raise InputError(f"--wait is {wait:g}: it must be seconds from 0 to {LONGEST_WAIT:,}")
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in given.items() if value is None]
    if processes == 1 and process in (None, 0):
        return None
    if len(missing) == len(given):
        launcher = find_launcher(os.environ)
        return None if launcher is None else _ask_jax(launcher, wait)
    if missing:
        raise InputError(f"{', '.join(given)} belong together: give {' and '.join(missing)} too")
    assert coordinator is not None and processes is not None and process is not None
    if processes < 1:
        raise InputError(f"--processes is {processes}: it must be at least 1")
    if not 0 <= process < processes:
        raise InputError(f"--process is {process}: {processes} processes have the numbers 0 to {processes - 1}")
    return Place(*_read_address(coordinator), processes, process)


def find_launcher(environment: Mapping[str, str]) -> str | None:
    """Returns what has started this process as one of several, or None where it is alone.

    JAX would find SLURM in an interactive allocation too, where this may be the only process, and wait there for the
    others. What counts is therefore the number of processes that were started with this one.
    """
    if _number(environment, "OMPI_COMM_WORLD_SIZE") > 1:
        if "OMPI_MCA_orte_hnp_uri" not in environment:
            raise InputError(
                "Open MPI started several processes but does not say where they meet, as version 5 does not: give --coordinator"
                " HOST:PORT --processes $OMPI_COMM_WORLD_SIZE --process $OMPI_COMM_WORLD_RANK; " + ALONE
            )
        return "Open MPI"
    if _number(environment, "SLURM_STEP_NUM_TASKS") > 1 and "SLURM_PROCID" in environment:
        return "SLURM"
    workers = environment.get("TPU_PROCESS_ADDRESSES", environment.get("TPU_WORKER_HOSTNAMES", ""))
    several = "," in workers or _number(environment, "MEGASCALE_NUM_SLICES") > 1
    if _is_tpu_machine(environment) and (several or not workers):
        return "a TPU slice"
    in_kubernetes = {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= environment.keys()
    return "Kubernetes" if in_kubernetes and importlib.util.find_spec("kubernetes") else None


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() else 1


def _is_tpu_machine(environment: Mapping[str, str]) -> bool:
    """Returns whether JAX would ask Google's metadata server, or the environment, which worker of a slice this is."""
    has_device = Path("/dev/accel0").exists() or Path("/dev/vfio/0").exists()
    asked_for = environment.get("JAX_PLATFORMS", "tpu").split(",")
    return (
        has_device
        and "tpu" in asked_for
        and "TPU_SKIP_MDS_QUERY" not in environment
        and importlib.util.find_spec("libtpu") is not None
    )


def _ask_jax(launcher: str, wait: float) -> Place | None:
    """Returns the place that JAX reads from the environment of a launcher."""
    from jax._src import clusters  # no public function tells it without starting JAX's service

    find = clusters.ClusterEnv.auto_detect_unset_distributed_params
    try:
        address, count, index, devices = find(None, None, None, None, None, int(wait))
        if address is None:
            raise ValueError("the environment names no machine")
    except Exception as error:  # whatever a metadata server, an interface of Kubernetes or an odd environment leads to
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{launcher} started this process as one of several, but where they meet is not known ({reason}): give"
            f" --coordinator, --processes and --process; {ALONE}"
        ) from None
    host, port = _read_address(address)
    if launcher == "SLURM":
        count = _number(os.environ, "SLURM_STEP_NUM_TASKS")  # of this step; JAX takes that of the job
    if not count or index is None or count == 1:
        return None
    if chosen := os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        numbers = [number.strip() for number in chosen.split(",")]
        line = f"JAX_LOCAL_DEVICE_IDS is {chosen!r}: give numbers of devices with commas between them, such as 0,1,2,3"
        if not all(number.isdecimal() for number in numbers):
            raise InputError(line)
        devices = [int(number) for number in numbers]
    return Place(host, port, count, index, None if devices is None else list(devices))


def _read_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (bool(host) and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise InputError(
            f"--coordinator is {address!r}: give the name or address of the machine of process 0 and a free port there, as"
            " HOST:PORT"
        )
    return host.strip("[]"), int(port)


# ---- the meeting ----


def _start(place: Place, wait: float) -> None:
    deadline = time.monotonic() + wait
    about = {name: version(name) for name in ("esnlm", "jax")}
    meet = _receive_others if place.index == 0 else _go_to_first
    connections, port = meet(place, about, deadline, wait)
    channel = Channel(place.index, place.count, connections)
    if place.index != 0:
        let_abort_wait()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the libraries below JAX print lines of their own

    import jax

    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours to handle
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # where the devices are CPUs
    jax.distributed.initialize(
        f"[{place.host}]:{port}" if ":" in place.host else f"{place.host}:{port}",
        place.count,
        place.index,
        local_device_ids=place.devices,
        cluster_detection_method="deactivate",
        coordinator_bind_address=f"127.0.0.1:{port}" if _is_loopback(place.host) else None,
    )
    group.enter(channel, jax.distributed.shutdown)
    try:
        jax.devices()  # The processes tell each other of their devices, so all do it now.
    except RuntimeError as error:
        raise InputError(f"process {place.index}: {str(error).partition('(set JAX_PLATFORMS')[0]}") from None


def _receive_others(
    place: Place, about: Mapping[str, str], deadline: float, wait: float
) -> tuple[dict[int, socket.socket], int]:
    """Waits, in process 0, until all others have come. Returns their connections, and a free port for JAX's service."""
    address = f"--coordinator {place.host}:{place.port}"
    found: dict[int, socket.socket] = {}
    try:
        server = _listen(place)
    except OSError as error:
        raise InputError(f"{address}: process 0 cannot wait there: {error.strerror}; give another port") from None
    with server:
        while len(found) < place.count - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection = server.accept()[0]
            except TimeoutError:
                missing = sorted(set(range(1, place.count)) - found.keys())
                many = f"process {missing[0]}" if len(missing) == 1 else f"processes {', '.join(map(str, missing))}"
                line = f"{address}: {many} of {place.count} did not come within {wait:g} s; {ALONE}"
                raise _refused(line, found) from None
            try:
                said = _receive(connection, time.monotonic() + 5)
                if not _is_hello(said):
                    raise ValueError("no hello")
            except (OSError, ValueError, RecursionError):  # somebody else knocked at the port
                connection.close()
                continue
            _drop_those_who_left(found)
            if (objection := _objection(said, place, about, found)) is not None:
                raise _refused(objection, found | {-1: connection})
            found[said["process"]] = connection
        port = _free_port(place)
        for connection in found.values():
            try:
                _send(connection, {"port": port})
            except OSError:
                line = f"{address}: a process ended before all had begun; start them again"
                raise _refused(line, found) from None
    return found, port


def _is_hello(said: Mapping[str, Any]) -> bool:
    """Returns whether a message is one with which a process of esnlm comes."""
    number, count = said.get("process"), said.get("processes")
    return (
        isinstance(number, int)
        and isinstance(count, int)
        and 0 <= number < count
        and isinstance(said.get("about"), dict)
    )


def _drop_those_who_left(found: dict[int, socket.socket]) -> None:
    """Takes out the processes that have ended while they waited, so that others can come in their place."""
    for number, connection in list(found.items()):
        connection.setblocking(False)
        try:
            has_left = not connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # It waits, and has nothing to say.
            has_left = False
        except OSError:
            has_left = True
        connection.setblocking(True)
        if has_left:
            found.pop(number).close()


def _objection(said: Any, place: Place, about: Mapping[str, str], found: Mapping[int, Any]) -> str | None:
    """Returns what is wrong with a process that has come, in a line, or None."""
    number, count = said.get("process"), said.get("processes")
    if count != place.count:
        return f"process {number} was started as one of {count} processes and process 0 as one of {place.count}"
    if number in found:
        return f"two processes were started as process {number} of {count}: give each --process of its own"
    for package, ours in about.items():
        if said["about"].get(package) != ours:
            theirs = said["about"].get(package)
            return f"process {number} has {package} {theirs} and process 0 has {ours}: install the same one everywhere"
    return None


def _refused(line: str, found: Mapping[int, socket.socket]) -> InputError:
    for connection in found.values():
        with suppress(OSError):
            _send(connection, {"refused": line})
        connection.close()
    return InputError(line)


def _go_to_first(
    place: Place, about: Mapping[str, str], deadline: float, wait: float
) -> tuple[dict[int, socket.socket], int]:
    """Connects with process 0, which may begin later. Returns the connection and the port of JAX's service."""
    address = f"--coordinator {place.host}:{place.port}"
    while True:
        try:
            connection = socket.create_connection((place.host, place.port), max(0.1, deadline - time.monotonic()))
            break
        except OSError as error:
            if time.monotonic() + 0.5 > deadline:
                raise InputError(
                    f"{address}: process {place.index} did not reach process 0 there within {wait:g} s"
                    f" ({error.strerror or error}); {ALONE}"
                ) from None
            time.sleep(0.3)
    try:
        _send(connection, {"process": place.index, "processes": place.count, "about": dict(about)})
        said = _receive(connection, deadline + 5)
        if not ("refused" in said or isinstance(said.get("port"), int)):
            raise ValueError("no answer")
    except TimeoutError:
        connection.close()
        raise InputError(
            f"{address}: process 0, or another program, is there, but did not say within {wait:g} s that all"
            f" {place.count} processes had come; {ALONE}"
        ) from None
    except (OSError, ValueError, RecursionError):
        connection.close()
        raise InputError(f"{address}: process 0 ended, or is another program, before all processes had come") from None
    if "refused" in said:
        connection.close()
        raise InputError(str(said["refused"]))
    return {0: connection}, said["port"]


def _listen(place: Place) -> socket.socket:
    if _is_loopback(place.host):
        return socket.create_server(("127.0.0.1", place.port))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", place.port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", place.port))


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "127.0.0.1")


def _free_port(place: Place) -> int:
    with socket.create_server(("127.0.0.1" if _is_loopback(place.host) else "", 0)) as server:
        return server.getsockname()[1]


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall((json.dumps(message) + "\n").encode())


def _receive(connection: socket.socket, deadline: float) -> Any:
    """Returns one message, read byte by byte: what comes after it is the channel's."""
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        byte = connection.recv(1)
        if not byte or len(line) > 10_000:
            raise ValueError("no message")
        line += byte
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError("no message")
    return said
