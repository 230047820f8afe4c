"""Names on which programs and papers rely are not removed without a warning (docs/stability.md)."""

import subprocess
import sys

from tests.public_names import RECORDED, ROOT


def test_no_public_name_is_removed_or_added_unnoticed():
    # In a process of its own: other tests add update rules.
    program = [sys.executable, "-m", "tests.public_names"]
    found = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    recorded, now = RECORDED.read_text().splitlines(), found.stdout.splitlines()
    gone, new = set(recorded) - set(now), set(now) - set(recorded)
    assert not gone, "before a name is removed, one minor version warns: docs/stability.md"
    assert not new, "list new names: python -m tests.public_names > tests/public_names.txt"
