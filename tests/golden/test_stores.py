"""Guarantee 14: the bytes of token stores, of a text and of the generated corpus."""

import hashlib

from esnlm.evaluation import minimal_pairs
from tests.golden import small

ARRAYS = ("tokens.bin", "offsets.npy", "words.npy", "bytes.npy")
# With what a splitter, a tokenizer and the lengths have to decide: abbreviations, quotes, accents,
# other scripts, empty and long lines, and text that looks like a special token.
TEXT = (
    """Dr. Smith went to Washington, D.C. on Jan. 5th. He didn't stay long! "Why not?" asked Mr. Jones.
The caf\u00e9 served cr\u00e8me br\u00fbl\u00e9e... and na\u00efve guests paid $3.50 (e.g. in cash). \u4e2d\u6587\u4e5f\u884c\u3002

<|endoftext|> is ordinary text, and so is a line without an end
Short.
"""
    + "This sentence is much too long for the limit. ".replace(". ", " ") * 9
    + "\n"
)


def digest(file) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digests(store) -> dict[str, str]:
    return {name: digest(store / name) for name in ARRAYS}


def prepare(folder, name, *how):
    (folder / "text.txt").write_bytes(TEXT.encode())
    asked = ("prepare", "--input", folder / "text.txt", "--out", folder / name, "--max-length", 64)
    assert small.esnlm(*asked, *how, "--quiet") == 0
    return digests(folder / name)


def test_a_store_of_trained_bpe(stores):
    assert digests(stores / "train") == small.recorded("stores")["train"]
    assert digests(stores / "dev") == small.recorded("stores")["dev"]


def test_lines_of_any_text(stores, tmp_path):
    how = ("--tokenizer", stores / "train" / "tokenizer", "--sentences", "line")
    assert prepare(tmp_path, "lines", *how) == small.recorded("stores")["lines"]


def test_sentences_by_punkt_and_gpt2_s_bpe(data, tmp_path):
    how = ("--tokenizer", data / "gpt2_bpe", "--punkt-data", data / "punkt_tab")
    assert prepare(tmp_path, "punkt", *how) == small.recorded("stores")["punkt"]


def test_the_grammar_s_corpus_and_pairs(quickstart):
    assert grammar_digests(quickstart) == small.recorded("stores")["grammar"]


def grammar_digests(run) -> dict[str, str]:
    found = {
        f"{name}/{file}": value
        for name in ("train", "validation")
        for file, value in digests(run / "stores" / name).items()
    }
    return found | {
        "minimal_pairs": minimal_pairs.digest(minimal_pairs.load(run / "minimal_pairs"))
    }


def record(stores, quickstart, data) -> dict:
    lines = ("--tokenizer", stores / "train" / "tokenizer", "--sentences", "line")
    punkt = ("--tokenizer", data / "gpt2_bpe", "--punkt-data", data / "punkt_tab")
    found = {"train": digests(stores / "train"), "dev": digests(stores / "dev")}
    found |= {"lines": prepare(stores, "lines", *lines), "punkt": prepare(stores, "punkt", *punkt)}
    return found | {"grammar": grammar_digests(quickstart)}
