"""JSON and YAML: what is read, and what is refused in one line."""

import json
import math

import pytest

from esnlm.base.errors import InputError
from esnlm.base.files import add_seal, remove_seal, write_json
from esnlm.base.yaml_file import read_tree


def test_any_float_is_written(tmp_path):
    write_json(tmp_path / "a", {"loss": math.nan, "best": [math.inf, -math.inf, 0.1]})
    assert json.loads((tmp_path / "a").read_text()) == {"loss": "nan", "best": ["inf", "-inf", 0.1]}


def test_a_seal_notices_any_changed_byte():
    sealed = add_seal({"a": 1, "b": "x"})
    assert remove_seal(sealed) == {"a": 1, "b": "x"}
    for position in range(len(sealed)):
        assert (
            remove_seal(sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :])
            is None
        )
    assert remove_seal(sealed + b"\n") is None


@pytest.mark.parametrize(
    "text, line",
    [
        ("a: 1\nb: {c: 2, c: 3}", "not a YAML file: c stands twice"),
        ("a: [1", "not a YAML file: while parsing a flow sequence"),
        ("a: \xff", "not a YAML file: 'utf-8' codec can't decode"),
    ],
)
def test_yaml_that_is_refused_names_its_file(tmp_path, text, line):
    (tmp_path / "a.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=f"^{tmp_path}/a.yaml: {line}"):
        read_tree(tmp_path / "a.yaml", "give one")
    with pytest.raises(InputError, match="^none.yaml: No such file or directory; give one$"):
        read_tree((tmp_path / "none.yaml").relative_to(tmp_path), "give one")
