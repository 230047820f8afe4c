"""Text encoded in memory is what a token store of the same text is."""

import numpy as np

from esnlm.data import grammar
from esnlm.data.encode import encode_file, encode_sentences
from esnlm.data.prepare import prepare
from esnlm.data.tokenizer import word_tokenizer

TOKENIZER = word_tokenizer(grammar.words())
SENTENCES = ["The cats sleep.", "Naïve — 眠る", "a", "<|endoftext|> is ordinary text"]


def arrays(store):
    return [
        np.asarray(array).tolist()
        for array in (store.tokens, store.offsets, store.words, store.bytes)
    ]


def test_a_file_is_encoded_as_prepare_encodes_it(tmp_path):
    TOKENIZER.save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("\r\n\n  ".join(SENTENCES) + "\n\n", "utf-8")
    settings = {"tokenizer": tmp_path / "tokenizer", "sentences": "line", "min_length": 3}
    store = prepare([tmp_path / "text.txt"], tmp_path / "store", **settings)
    text = encode_file(tmp_path / "text.txt", TOKENIZER)
    assert arrays(text) == arrays(store) == arrays(encode_sentences(SENTENCES, TOKENIZER))
    assert text.tokens_sha256 == store.tokens_sha256
    assert [ids.tolist() for ids in text] == [ids.tolist() for ids in store]
    assert text.lengths.tolist() == store.lengths.tolist()
    text.check_tokenizer(store.tokenizer())
    assert text.tokens.dtype.itemsize == 4, "arrays, and no lists of Python's"


def test_sentences_are_taken_as_they_are():
    text = encode_sentences([" The cats", "", "\ud800"], TOKENIZER)
    # an unpaired surrogate is U+FFFD
    assert text.words.tolist() == [2, 0, 1] and text.bytes.tolist() == [9, 0, 3]
    assert text.sentence(1).tolist() == [TOKENIZER.bos, TOKENIZER.eos]
