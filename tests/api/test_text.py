"""Tokenizers and token stores of sentences in Python."""

import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.store import open_store

SENTENCES = ["the cats sleep.", "a dog barks, and the cats sleep.", "was she there?"]


def test_words_are_one_id_each_and_other_text_is_spelled():
    tokenizer = esnlm.tokenizer("words", SENTENCES)
    for sentence in SENTENCES:
        assert tokenizer.decode(tokenizer.encode(sentence)) == sentence
    assert len(tokenizer.encode("the cats sleep.")) == 4
    assert len(tokenizer.encode("zebra")) == 5
    # "the", "a" and "was" begin a sentence; "a" and marks are bytes
    words = {"the", " cats", " sleep", " dog", " barks", " and", " the", "was", " she", " there"}
    assert tokenizer.vocab_size == 256 + len(words) + 1
    assert esnlm.tokenizer(tokenizer) is tokenizer


def test_a_vocabulary_is_trained():
    tokenizer = esnlm.tokenizer("train:265", 3 * SENTENCES)
    assert tokenizer.vocab_size == 265


def test_a_store_is_written_and_not_over_another(tmp_path):
    store = esnlm.prepare(SENTENCES, tmp_path / "store", tokenizer="words")
    read = open_store(tmp_path / "store")
    tokenizer = read.tokenizer()
    assert [tokenizer.decode(sentence[1:-1]) for sentence in read] == SENTENCES
    assert store.words.tolist() == [3, 7, 3]
    with pytest.raises(InputError, match="store: exists; name another folder for the store"):
        esnlm.prepare(SENTENCES, tmp_path / "store", tokenizer="words")
    assert (
        len(esnlm.prepare(SENTENCES[:2], tmp_path / "store", tokenizer="words", overwrite=True))
        == 2
    )
