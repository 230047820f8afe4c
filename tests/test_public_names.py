"""Names on which programs and papers rely go with a warning first (docs/stability.md)."""

from tests.public_names import RECORDED, public_names


def test_no_public_name_goes_or_comes_unnoticed():
    recorded, now = RECORDED.read_text().splitlines(), public_names()
    gone, new = set(recorded) - set(now), set(now) - set(recorded)
    assert not gone, "a name that goes is warned of in one minor version: docs/stability.md"
    assert not new, "list it: python -m tests.public_names > tests/public_names.txt"
