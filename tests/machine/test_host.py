"""Freed memory is kept, so that taking it again costs no page faults."""

import subprocess
import sys

import pytest


def printed(program: str) -> list[int]:
    """Runs a program in a process of its own, and returns the numbers that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return [int(line) for line in done.stdout.split()]


IN_MAIN_THREAD = """
import resource
import numpy as np
from esnlm.machine.host import keep_freed_memory

if not {keep} or keep_freed_memory():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.empty(100 << 20, np.uint8).fill(1)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_memory_that_was_freed_comes_back_without_page_faults():
    kept = printed(IN_MAIN_THREAD.format(keep=True))
    if not kept:
        pytest.skip("this C library has no mallopt")
    # 100 MiB are 25,600 pages of 4 KiB, or 50 of 2 MiB where the system maps large ones by itself.
    assert min(printed(IN_MAIN_THREAD.format(keep=False))) > 10 * max(kept[1:], default=0)
    assert kept[0] > 10 * kept[1]


HOLES = """
import sys
from pathlib import Path
from esnlm.machine.host import return_freed_memory, keep_freed_memory

if keep_freed_memory():
    blocks = [bytes([i % 256]) * 100_000 for i in range(1000)]
    del blocks[::2]  # what is left keeps the heap from getting shorter
    for act in (lambda: None, return_freed_memory):
        act()
        status = Path("/proc/self/status").read_text()
        print(status.partition("VmRSS:")[2].split()[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_trim is glibc's")
def test_pages_that_are_free_go_back_even_from_between_others():
    found = printed(HOLES)
    if not found:
        pytest.skip("this C library has no mallopt")
    before, after = found
    assert before - after > 40_000  # kB, of the 50,000 that are free
