"""docs/settings.md is what the code says today: `python docs/write_settings.py > docs/settings.md` makes it."""

import runpy
from pathlib import Path

from esnlm.config import Experiment, as_dict, flatten

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()


def test_the_page_is_what_the_code_says():
    assert runpy.run_path(str(ROOT / "docs" / "write_settings.py"))["page"]() == PAGE


def test_every_setting_of_an_experiment_has_a_row_with_its_default():
    chosen = {
        "data.kind",
        "model.family",
        "model.reservoir.topology.kind",
        "model.reservoir.continuous",
        "training.kind",
    }
    for key, value in flatten(as_dict(Experiment())).items():
        if key not in chosen:
            shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
            assert f"| `{key}` | `{shown}` |" in PAGE, key


def test_what_a_setting_may_be_is_what_its_check_says():
    assert "| `model.dropout` | `0.0` | a number, at least 0 and below 1 |" in PAGE
    assert "| `compute.precision` | `float32` | float32, tf32, bf16 |" in PAGE
