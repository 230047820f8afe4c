"""docs/settings.md is what the code says today: `python docs/write_settings.py > docs/settings.md`
makes it."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()


def test_the_page_is_what_the_code_says():
    assert runpy.run_path(str(ROOT / "docs" / "write_settings.py"))["page"]() == PAGE
