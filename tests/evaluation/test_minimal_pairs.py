"""Reading pairs: what is accepted, in which order, and what is refused, with BLiMP's own traps."""

import gzip
import json
import lzma

import pytest

from esnlm.base.errors import InputError
from esnlm.evaluation import minimal_pairs


def write(path, *lines):
    path.write_text(
        "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines),
        "utf-8",
    )
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
    two = minimal_pairs.load(
        [write(tmp_path / "a.jsonl", case), write(tmp_path / "b.jsonl", other)]
    )
    assert minimal_pairs.digest(one) == minimal_pairs.digest(two)
    assert minimal_pairs.digest(one) != minimal_pairs.digest(one[:1])


def test_a_paradigm_in_two_files_is_refused(tmp_path):
    a, b = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", GOOD)
    with pytest.raises(InputError, match="b.jsonl:1: UID 'case'"):
        minimal_pairs.load([a, b])


def test_nothing_to_read_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file or folder of minimal pairs"):
        minimal_pairs.load(tmp_path)
    with pytest.raises(InputError, match="none: no such file or folder of minimal pairs"):
        minimal_pairs.load(tmp_path / "none")


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


# Other forms than BLiMP's.


def test_columns_of_tables_and_fields_can_be_named(tmp_path):
    columns = minimal_pairs.Columns("right", ("wrong",), "kind")
    expected = [("b", 0, "He left.", "Him left.", "unknown", "unknown", "0")]
    (tmp_path / "a.tsv").write_text("kind\tright\twrong\nb\tHe left.\tHim left.\n")
    (tmp_path / "a.csv").write_text("right,wrong,kind\nHe left.,Him left.,b\n")
    write(tmp_path / "a.jsonl", {"right": "He left.", "wrong": "Him left.", "kind": "b"})
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        assert minimal_pairs.load(tmp_path / name, columns) == expected
    (tmp_path / "b.tsv").write_text("sentence_good\tsentence_bad\nHe left.\tHim left.\n")
    assert [pair.uid for pair in minimal_pairs.load(tmp_path / "b.tsv")] == ["b"]


def test_several_wrong_sentences_are_a_set(tmp_path):
    (tmp_path / "a.csv").write_text("good,one,two\na,b,c\n")
    write(tmp_path / "b.jsonl", {"sentence_good": "a", "sentence_bad": ["b", "c"]})
    table = minimal_pairs.load(tmp_path / "a.csv", minimal_pairs.Columns("good", ("one", "two")))
    [found] = minimal_pairs.load(tmp_path / "b.jsonl")
    assert table[0].bad == found.bad == ("b", "c") and minimal_pairs.sentences_of(found) == (
        "a",
        "b",
        "c",
    )
    [pair] = minimal_pairs.load(
        write(tmp_path / "c.jsonl", {"sentence_good": "a", "sentence_bad": ["b"]})
    )
    assert pair.bad == "b"
    # A table may fill its columns with one sentence again, which is one to be above all the same.
    (tmp_path / "d.csv").write_text("good,one,two,three\na,b,c,b\na,b,b,b\n")
    items = minimal_pairs.load(
        tmp_path / "d.csv", minimal_pairs.Columns("good", ("one", "two", "three"))
    )
    assert [item.bad for item in items] == [("b", "c"), "b"]


def test_zorro_has_the_ungrammatical_sentence_first(tmp_path):
    (tmp_path / "island-effects-adjunct_island.txt").write_text(
        "bad one .\ngood one .\nbad two .\ngood two .\n\n \n"
    )
    assert minimal_pairs.load(tmp_path) == [
        (
            "island-effects-adjunct_island",
            0,
            "good one .",
            "bad one .",
            "island-effects",
            "unknown",
            "0",
        ),
        (
            "island-effects-adjunct_island",
            1,
            "good two .",
            "bad two .",
            "island-effects",
            "unknown",
            "1",
        ),
    ]


def test_labels_before_tabs_say_which_sentence_is_right(tmp_path):
    """As in CLAMS and in Marvin and Linzen's files. Read in Zorro's order, each answer would be
    turned round."""
    (tmp_path / "agreement.txt").write_text(
        "True\tThe cats sleep.\nFalse\tThe cats sleeps.\n0\tHim left.\n1\tHe left.\n"
    )
    found = [(pair.good, pair.bad) for pair in minimal_pairs.load(tmp_path)]
    assert found == [("The cats sleep.", "The cats sleeps."), ("He left.", "Him left.")]
    for lines in ("The cats\tsleep.\nThe cats\tsleeps.\n", "True\ta\nTrue\tb\n", "True\ta\nb\n"):
        (tmp_path / "agreement.txt").write_text(lines)
        with pytest.raises(InputError, match="agreement.txt:1: .* labels are true and false"):
            minimal_pairs.load(tmp_path)


def test_a_table_may_have_a_row_for_each_sentence(tmp_path):
    rows = (
        "item,ok,sentence,phenomenon\n1,1,He left.,case\n2,no,They sleeps.,number\n1,0,Him"
        " left.,case\n"
    )
    (tmp_path / "long.csv").write_text(
        rows + "2,yes,They sleep.,number\n2,no,They is sleep.,number\n"
    )
    columns = minimal_pairs.Columns("sentence", group="phenomenon", label="ok", pair="item")
    assert minimal_pairs.load(tmp_path / "long.csv", columns) == [
        ("case", 0, "He left.", "Him left.", "case", "unknown", "1"),
        ("number", 0, "They sleep.", ("They sleeps.", "They is sleep."), "number", "unknown", "2"),
    ]
    for rows, wrong in (
        ("1,1,a,x\n1,1,b,x\n", "item 1 has 2 good and 0 bad"),
        ("1,maybe,a,x\n", "ok is 'maybe'"),
        (",1,a,x\n,0,b,x\n", "item is empty"),
    ):
        (tmp_path / "long.csv").write_text("item,ok,sentence,phenomenon\n" + rows)
        with pytest.raises(InputError, match=f"long.csv:2: {wrong}"):
            minimal_pairs.load(tmp_path / "long.csv", columns)


@pytest.mark.parametrize("paradigm", ["kind", "Paradigm"])
def test_items_may_start_again_in_each_paradigm(tmp_path, paradigm):
    rows = [
        "case,1,1,He left.",
        "case,1,0,Him left.",
        "number,1,1,They sleep.",
        "number,1,0,They sleeps.",
    ]
    header = f"{paradigm},item,ok,sentence"
    columns = minimal_pairs.Columns(
        "sentence", group="kind" if paradigm == "kind" else None, label="ok", pair="item"
    )
    path = tmp_path / "long.csv"
    path.write_text("\n".join([header, *rows]))
    assert [(pair.uid, pair.good, pair.bad) for pair in minimal_pairs.load(path, columns)] == [
        ("case", "He left.", "Him left."),
        ("number", "They sleep.", "They sleeps."),
    ]
    # What is left of two pairs is not a pair.
    path.write_text("\n".join([header, rows[0], rows[3]]))
    with pytest.raises(InputError, match="long.csv:2: item 1 has 1 good and 0 bad"):
        minimal_pairs.load(path, columns)
    # Without the column of the paradigm, the message names its option.
    path.write_text("\n".join(["kind,item,ok,sentence", *rows]))
    with pytest.raises(
        InputError,
        match="item 1 has 2 good and 2 bad: .* item starts again in each paradigm, give --g",
    ):
        minimal_pairs.load(path, columns._replace(group=None))


def test_the_rows_of_a_pair_are_in_one_phenomenon(tmp_path):
    path = tmp_path / "long.csv"
    columns = minimal_pairs.Columns("sentence", label="ok", pair="item")
    for phenomena in (("case", ""), ("", "case")):
        rows = [
            f"1,{ok},{text}.,{name}"
            for ok, text, name in zip("10", ("He left", "Him left"), phenomena, strict=True)
        ]
        path.write_text("\n".join(["item,ok,sentence,phenomenon", *rows]))
        [pair] = minimal_pairs.load(path, columns)
        assert (pair.good, pair.bad, pair.phenomenon) == ("He left.", "Him left.", "case")
    # What is left of two pairs is not a pair.
    path.write_text("item,ok,sentence,phenomenon\n1,1,He left.,case\n1,0,They sleeps.,number\n")
    with pytest.raises(
        InputError, match="long.csv:2: item 1 is in the phenomena case and number: .* give --group"
    ):
        minimal_pairs.load(path, columns)


@pytest.mark.parametrize(
    "good, bad", [("1.0", "0.0"), ("Correct", "incorrect"), ("ok", "*"), ("right", "wrong")]
)
def test_labels_of_other_programs_are_known(tmp_path, good, bad):
    (tmp_path / "long.csv").write_text(
        f"item,label,sentence\n1,{bad},Him left.\n1,{good},He left.\n"
    )
    [pair] = minimal_pairs.load(
        tmp_path / "long.csv", minimal_pairs.Columns("sentence", label="label", pair="item")
    )
    assert (pair.good, pair.bad) == ("He left.", "Him left.")


def test_names_of_fields_may_have_other_capitals(tmp_path):
    record = {
        "Sentence_Good": "He left.",
        "Sentence_Bad": "Him left.",
        "uid": "case",
        "Phenomenon": "binding",
    }
    write(tmp_path / "a.jsonl", record | {"Field": "syntax", "PairID": 7})
    expected = [("case", 0, "He left.", "Him left.", "binding", "syntax", "7")]
    assert minimal_pairs.load(tmp_path / "a.jsonl") == expected
    (tmp_path / "b.csv").write_text(
        "Sentence_Good,SENTENCE_BAD,Paradigm,Phenomenon,Field,PairID\nHe left.,Him"
        " left.,case,binding,syntax,7\n"
    )
    assert minimal_pairs.load(tmp_path / "b.csv") == expected


@pytest.mark.parametrize(
    "names, paradigm",
    [(("uid", "Paradigm"), "second"), (("paradigm", "UID"), "second"), (("uid", "field"), "first")],
)
def test_the_paradigm_is_preferred_to_uid_in_other_capitals(tmp_path, names, paradigm):
    sentences = {"sentence_good": "He left.", "sentence_bad": "Him left."}
    path = write(
        tmp_path / "a.jsonl", sentences | dict(zip(names, ("first", "second"), strict=True))
    )
    assert [pair.uid for pair in minimal_pairs.load(path)] == [paradigm]


def test_compressed_files_are_read_as_the_files_in_them(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "packed").mkdir()
    record = {"sentence_good": "He left.", "sentence_bad": "Him left."}
    for name, text in {
        "a.jsonl": json.dumps(record) + "\n",
        "b.csv": "sentence_good,sentence_bad\nHe left.,Him left.\n",
        "c.txt": "ok\tHe left.\n*\tHim left.\n",
    }.items():
        (tmp_path / "plain" / name).write_text(text)
        (tmp_path / "packed" / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        (tmp_path / "packed" / f"{name}.xz").write_bytes(lzma.compress(text.encode()))
        plain = minimal_pairs.load(tmp_path / "plain" / name)
        assert [pair.uid for pair in plain] == [name[0]]
        for suffix in (".gz", ".xz"):
            assert minimal_pairs.load(tmp_path / "packed" / f"{name}{suffix}") == plain
    (tmp_path / "packed" / "a.jsonl.xz").unlink()
    for folder in (tmp_path / "packed", tmp_path / "packed" / "a"):
        assert minimal_pairs.load(folder) == minimal_pairs.load(tmp_path / "plain")
    (tmp_path / "packed" / "a.jsonl.gz").write_bytes(b"\x1f\x8b not gzip")
    with pytest.raises(InputError, match="a.jsonl.gz: damaged"):
        minimal_pairs.load(tmp_path / "packed")


def test_line_ends_in_quoted_cells_are_read_as_in_json_lines(tmp_path):
    """As in BLiMP's supplement, whose sentences are dialogues."""
    record = {
        "sentence_good": "A: Who?\nB: He, I think.",
        "sentence_bad": "A: Who?\nB: Here, I think.",
        "UID": "qa",
    }
    write(tmp_path / "a.jsonl", record)
    header, cells = ",".join(record), ",".join(f'"{cell}"' for cell in record.values())
    (tmp_path / "a.csv").write_text(f"{header}\n{cells}\n")
    assert minimal_pairs.load(tmp_path / "a.csv") == minimal_pairs.load(tmp_path / "a.jsonl")
    # A quotation mark of the text, which joins rows of a TSV file; `esnlm blimp` has no
    # --no-quotes.
    (tmp_path / "a.tsv").write_text(
        'sentence_good\tsentence_bad\n"He left.\tHim left.\nI am."\tI is.\n'
    )
    with pytest.raises(
        InputError, match="a.tsv:3: a line end or a tab in .* double the inner ones$"
    ):
        minimal_pairs.load(tmp_path / "a.tsv")


def test_a_name_in_a_folder_stands_for_its_paradigms(tmp_path):
    for uid, phenomenon, field in [
        *(("wh_island", "island_effects", "syntax"), ("npi_1", "npi_licensing", "semantics")),
        *(
            ("npi_2", "npi_licensing", "syntax_semantics"),
            ("case", "anaphor_agreement", "morphology"),
        ),
    ]:
        write(
            tmp_path / f"{uid}.jsonl",
            GOOD | {"UID": uid, "linguistics_term": phenomenon, "field": field},
        )

    def uids(*names):
        return [pair.uid for pair in minimal_pairs.load([tmp_path / name for name in names])]

    assert uids("wh_island") == ["wh_island"]
    assert uids("npi_licensing") == uids("NPI licensing") == ["npi_1", "npi_2"]
    assert uids("anaphor_agreement", "island_effects", "npi_2") == ["case", "npi_2", "wh_island"]
    assert uids("syntax_semantics") == ["npi_2"] and uids("syntax") == ["wh_island"]
    # What another folder has of this name is no excuse.
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "x.jsonl", GOOD | {"UID": "x"})
    with pytest.raises(
        InputError, match="other/npi_licensing: .* no paradigm, phenomenon or field"
    ):
        uids("npi_licensing", "other/npi_licensing")


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("a.jsonl", "\n", ": "),
        ("a.jsonl", lines(GOOD) + "good, bad", ":2: "),
        ("a.jsonl", "[1]\n", ":1: "),
        ("a.jsonl", lines({"sentence_good": "a"}), ":1: field 'sentence_bad'"),
        (
            "a.jsonl",
            lines({"sentence_good": "a", "sentence_bad": ["b", 3]}),
            ":1: field 'sentence_bad'",
        ),
        ("a.jsonl", lines(GOOD | {"sentence_good": " "}), ":1: field 'sentence_good'"),
        ("a.jsonl", lines(GOOD, GOOD | {"sentence_good": "He left. "}), ":2: "),
        (
            "a.jsonl",
            lines({"sentence_good": "Das Caf\u00e9.", "sentence_bad": "Das Cafe\u0301."}),
            ":1: ",
        ),
        (
            "a.jsonl",
            lines(GOOD, GOOD | {"linguistics_term": "x"}),
            (
                ":2: the phenomenon is 'x', and 'unknown' earlier for UID 'case': name the column"
                " of the paradigm with --g"
            ),
        ),
        ("a.tsv", "good\tsentence_bad\nx\ty\n", ": no column 'sentence_good'"),
        ("a.csv", "UID,sentence_good,sentence_bad\nx,a,b\n,c,d\n", ":3: field 'UID'"),
        ("a.txt", "a\nb\nc\n", ": "),
    ],
)
def test_what_is_no_pair_is_named_by_line(tmp_path, name, text, line):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        minimal_pairs.load(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}{line}")
