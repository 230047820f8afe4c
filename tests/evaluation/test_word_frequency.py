"""Word frequencies against counts of a few sentences by hand."""

import math

import pytest

from esnlm.data.encode import encode_sentences
from esnlm.data.tokenizer import train_bpe
from esnlm.evaluation import words
from esnlm.evaluation.words import count_forms, log_frequencies, word_form

SENTENCES = ["The cats sleep.", "“The” cats don't -- run!", "Über Übung?", "Zoë 😀 the", "end"]
TOKENIZER = train_bpe(SENTENCES * 3, 290)
COUNTS = {"the": 3, "cats": 2, "sleep": 1, "don't": 1, "run": 1, "über": 1, "übung": 1}
COUNTS |= {"zoë": 1, "end": 1}


@pytest.mark.parametrize("block", [1, 2, 5, 100])
def test_words_are_counted_by_their_forms_and_end_with_their_sentence(monkeypatch, block):
    monkeypatch.setattr(words, "BLOCK_SENTENCES", block)
    store = encode_sentences(SENTENCES, TOKENIZER)
    assert count_forms(store, TOKENIZER) == COUNTS


def test_frequencies_are_on_the_zipf_scale():
    """12 words of 9 forms: log10((c + 1) / (12 + 9) 10^6) + 3, also for a word that is unseen."""
    store = encode_sentences(SENTENCES, TOKENIZER)
    per_million = 1e6 / (12 + 9)
    expected = [math.log10((count + 1) * per_million) + 3 for count in (3, 1, 0)]
    assert log_frequencies(["the", "don't", "dogs"], store, TOKENIZER) == pytest.approx(expected)
    assert log_frequencies([""], store, TOKENIZER) == [None]


@pytest.mark.parametrize(
    "word, form",
    [("'Tis", "tis"), ("DOGS'", "dogs"), ("“well-known,”", "well-known"), ("--", ""), ("$5", "5")],
)
def test_a_form_has_no_punctuation_at_its_edges(word, form):
    assert word_form(word) == form
