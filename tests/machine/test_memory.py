"""How much memory there is, and how much is in use, is found out."""

import jax

from esnlm.machine import memory
from esnlm.machine.memory import MemoryUse


class Fake:
    """A device that says what a GPU says of its memory."""

    def __init__(self, **statistics):
        self.statistics = statistics

    def memory_stats(self):
        return self.statistics or None


def test_a_cpu_tells_the_peak_of_the_process():
    found = memory.memory_use()
    assert found.now is None and 1 << 20 < found.peak < memory.total_memory()
    assert found.values == {"peak_memory_bytes": found.peak}


def test_the_fullest_device_counts_for_use_and_the_smallest_for_what_is_there(monkeypatch):
    devices = [
        Fake(bytes_in_use=3, peak_bytes_in_use=7, bytes_limit=50),
        Fake(bytes_in_use=5, peak_bytes_in_use=6, bytes_limit=40),
    ]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert memory.memory_use() == MemoryUse(5, 7) and memory.device_memory() == 40
    assert memory.memory_use().values == {"memory_bytes": 5, "peak_memory_bytes": 7}
