"""Names on which programs and papers rely are not removed without a warning (docs/stability.md)."""

from tests.public_names import RECORDED, public_names


def test_no_public_name_is_removed_or_added_unnoticed():
    recorded, now = RECORDED.read_text().splitlines(), public_names()
    gone, new = set(recorded) - set(now), set(now) - set(recorded)
    assert not gone, "before a name is removed, one minor version warns: docs/stability.md"
    assert not new, "list new names: python -m tests.public_names > tests/public_names.txt"
