"""A data source says everything that a run asks about its data, and a new one needs one class and
one line."""

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.base.settings import Count, settings
from esnlm.data import grammar
from esnlm.data.corpus import fingerprints, open_corpus
from esnlm.data.sources import SOURCES, CorpusSize, DataSource, GrammarData, StoreData
from esnlm.data.store import StoreWriter, open_store
from esnlm.data.tokenizer import word_tokenizer
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    found.path.mkdir()
    return found


@settings
class Echoes(DataSource):
    """Sentences that say one word over and over."""

    kind: str = "echoes"
    sentences: Count = 50

    def open(self, directory, seed):
        folder = directory.stores / "train"
        if not folder.exists():
            words = np.random.default_rng(seed).choice(["ba", "da"], self.sentences)
            tokenizer = self.tokenizer()
            ids = [
                [tokenizer.bos, *tokenizer.encode(" ".join([word] * 6)), tokenizer.eos]
                for word in words
            ]
            lengths = [len(sentence) for sentence in ids]
            with StoreWriter(folder, tokenizer) as writer:
                writer.append(
                    np.concatenate(ids), lengths, [6] * len(ids), [17] * len(ids), [0] * len(ids)
                )
                writer.finish()
        return open_store(folder), None

    def size(self) -> CorpusSize:
        return CorpusSize(self.sentences, 7 * self.sentences, self.tokenizer().vocab_size)

    def tokenizer(self):
        return word_tokenizer(["ba", "da", " ba", " da"])

    def sample(self, tokenizer, sentences, seed):
        return "echoes", tokenizer.encode_framed(["ba ba"] * sentences)


def test_a_new_source_needs_one_line(directory, tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "echoes", Echoes)
    file = tmp_path / "echoes.yaml"
    file.write_text(f"run: {directory.path}\ndata: {{kind: echoes, sentences: 20}}\n")
    experiment = config_io.read(file)
    assert experiment.data == Echoes(sentences=20)
    corpus = open_corpus(experiment.data, experiment.seed, directory)
    size = experiment.data.size()
    assert (len(corpus.train), corpus.validation) == (size.sentences, None)
    assert len(corpus.train.tokens) - len(corpus.train) == size.predicted_tokens
    assert corpus.tokenizer.vocab_size == size.vocab_size


def test_the_grammar_s_corpus_is_made_once_and_is_of_its_seed(directory):
    source = GrammarData(sentences=30, validation_sentences=8, pairs=2)
    first = open_corpus(source, 3, directory)
    assert fingerprints(open_corpus(source, 3, directory)) == fingerprints(first)
    assert [len(first.train), len(first.validation)] == [30, 8]
    assert first.tokenizer.decode(first.train.sentence(0)[1:-1]) == next(grammar.sentences(1, 3))
    assert source.has_minimal_pairs and len(list(directory.minimal_pairs.glob("*.jsonl"))) > 1


def test_the_grammar_knows_the_nll_of_its_own_text(directory):
    corpus = open_corpus(
        source := GrammarData(sentences=30, validation_sentences=8, pairs=2), 0, directory
    )
    found = source.reference_nlls(corpus.validation, corpus.tokenizer)
    texts = [corpus.tokenizer.decode(sentence[1:-1]) for sentence in corpus.validation]
    tokens = len(corpus.validation.tokens) - len(corpus.validation)
    assert found["the grammar itself, on this text"] == pytest.approx(
        -sum(map(grammar.log_prob, texts)) / tokens
    )
    assert found["the grammar's entropy"] == grammar.entropy().nats_per_token


def test_a_store_is_sampled_as_it_is(directory):
    corpus = open_corpus(GrammarData(sentences=30, validation_sentences=8, pairs=2), 0, directory)
    source = StoreData(train=str(corpus.train.folder))
    name, ids = source.sample(corpus.tokenizer, 5, 0)
    assert name == str(corpus.train.folder) and np.array_equal(ids, corpus.train.tokens)
    assert source.size() == (30, len(ids) - 30, corpus.tokenizer.vocab_size)
    with pytest.raises(InputError, match="was made with tokenizer"):
        source.sample(word_tokenizer(["ba"]), 5, 0)


def test_texts_that_two_versions_of_nltk_split_are_warned_of(tmp_path, directory, capsys):
    words = word_tokenizer(["a"])
    for name, nltk in (("train", "3.9"), ("same", "3.9"), ("other", "3.10"), ("lines", None)):
        with StoreWriter(tmp_path / name, words) as writer:
            writer.append([words.bos, 97, 98, words.eos], [4], [1], [2], [0])
            writer.finish(versions={"tiktoken": "0.13"} | ({"nltk": nltk} if nltk else {}))
    for name in ("same", "lines", "other"):
        source = StoreData(train=str(tmp_path / "train"), validation=str(tmp_path / name))
        open_corpus(source, 0, directory)
        assert ("NLTK 3.9 and" in capsys.readouterr().err) == (name == "other")
