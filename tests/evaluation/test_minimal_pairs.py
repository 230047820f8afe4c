"""Reading pairs: what is accepted, in which order, and what is refused, with BLiMP's own traps."""

import json

import pytest

from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs


def write(path, *lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


GOOD = {"sentence_good": "He left.", "sentence_bad": "Him left.", "UID": "case"}


def test_a_folder_is_read_in_order_of_paradigms(tmp_path):
    full = {"linguistics_term": "binding", "field": "syntax", "pairID": "17"}
    write(tmp_path / "a.jsonl", GOOD | full, "\n", GOOD | {"sentence_bad": "Him go."} | full)
    write(tmp_path / "be.jsonl", {"sentence_good": "I am.", "sentence_bad": "I is."})
    write(tmp_path / "._a.jsonl", "what some archives leave behind")
    assert minimal_pairs.load(tmp_path) == [
        ("be", 0, "I am.", "I is.", "unknown", "unknown", "0"),
        ("case", 0, "He left.", "Him left.", "binding", "syntax", "17"),
        ("case", 1, "He left.", "Him go.", "binding", "syntax", "17"),
    ]


def test_the_digest_does_not_depend_on_how_pairs_are_spread_over_files(tmp_path):
    case, other = GOOD, GOOD | {"UID": "another"}
    one = minimal_pairs.load(write(tmp_path / "one.jsonl", case, other))
    two = minimal_pairs.load([write(tmp_path / "a.jsonl", case), write(tmp_path / "b.jsonl", other)])
    assert minimal_pairs.digest(one) == minimal_pairs.digest(two)
    assert minimal_pairs.digest(one) != minimal_pairs.digest(one[:1])


def test_only_a_newline_ends_a_line(tmp_path):
    sentence = "One\u2028line\x85of\x0btext."
    text = json.dumps(GOOD | {"sentence_good": sentence}, ensure_ascii=False)
    [found] = minimal_pairs.load(write(tmp_path / "a.jsonl", text))
    assert found.good == sentence


@pytest.mark.parametrize(
    "lines, message",
    [
        ([""], "a.jsonl: the file is empty: one JSON object a line is needed"),
        ([GOOD, "good, bad"], "a.jsonl:2: not JSON (Expecting value, column 1): one object a line"),
        (["[1]\n"], "a.jsonl:1: a JSON list, not an object with sentence_good, sentence_bad"),
        ([{"sentence_good": "a"}], "a.jsonl:1: field 'sentence_bad' is missing"),
        ([GOOD | {"sentence_good": 3}], "a.jsonl:1: field 'sentence_good' is 3, not a string"),
        ([GOOD | {"UID": None}], "a.jsonl:1: field 'UID' is null, not a string"),
        ([GOOD | {"field": ["syntax"]}], "a.jsonl:1: field 'field' is [\"syntax\"], not a string"),
        ([GOOD | {"UID": "\ud800"}], "a.jsonl:1: field 'UID' has half a surrogate pair, which is no text"),
        (
            [GOOD, GOOD | {"linguistics_term": "binding"}],
            "a.jsonl:2: field 'linguistics_term' is 'binding', and 'unknown' earlier for the same UID 'case': "
            "a paradigm belongs to one phenomenon",
        ),
    ],
)
def test_what_is_no_pair_is_named_by_line_and_field(tmp_path, lines, message):
    write(tmp_path / "a.jsonl", *lines)
    with pytest.raises(InputError) as error:
        minimal_pairs.load(tmp_path)
    assert str(error.value) == f"{tmp_path}/{message}"


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json.dumps(GOOD).encode() + b'\n{"UID": "\xff"}\n')
    with pytest.raises(InputError) as error:
        minimal_pairs.load(tmp_path)
    assert str(error.value) == f"{tmp_path}/a.jsonl:2: not UTF-8 (byte 9 of the line)"


def test_a_paradigm_in_two_files_is_refused(tmp_path):
    a, b = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", GOOD)
    for files in ([a, b], [a, a]):
        with pytest.raises(InputError) as error:
            minimal_pairs.load(files)
        assert str(error.value) == f"{files[1]}:1: UID 'case' is also in {a}: give every paradigm once"


def test_nothing_to_read_is_named(tmp_path):
    for path, message in [
        (tmp_path, "no .jsonl file in this folder: give the folder that holds the pairs, or its files"),
        (tmp_path / "none", "no such file or folder of minimal pairs"),
    ]:
        with pytest.raises(InputError) as error:
            minimal_pairs.load(path)
        assert str(error.value) == f"{path}: {message}"


@pytest.fixture(scope="module")
def blimp(blimp_dir):
    return minimal_pairs.load(blimp_dir)


def test_blimp_has_67_paradigms_12_phenomena_and_7_identical_pairs(blimp):
    size, identical, phenomena = {}, {}, {}
    for one in blimp:
        size[one.uid] = size.get(one.uid, 0) + 1
        phenomena.setdefault(one.phenomenon, set()).add(one.uid)
        if one.good == one.bad:
            identical[one.uid] = identical.get(one.uid, 0) + 1
    assert len(size) == 67 and set(size.values()) == {1000}
    assert identical == {"principle_A_case_2": 5, "passive_1": 2}
    assert len(phenomena) == 12 and len(phenomena["argument_structure"]) == 9
    assert {one.field for one in blimp} == {"morphology", "semantics", "syntax", "syntax/semantics"}
