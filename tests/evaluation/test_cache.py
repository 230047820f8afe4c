"""The cache, against float64 NumPy that counts the tokens one by one; its weights and their file."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.encode import Encoded, encode_file, store_in_memory
from esnlm.data.sources import ImportedData
from esnlm.data.store import open_store
from esnlm.evaluation import cache
from esnlm.evaluation.surprisal import word_ends
from esnlm.models.ngrams import NgramModel
from tests import oracle
from tests.evaluation import small_run
from tests.evaluation.small_run import TOKENIZER, TOLERANCE
from tests.golden import small

V = TOKENIZER.vocab_size
BOTH = TOKENIZER.bos  # BOS and EOS of the tokenizer
APART = SimpleNamespace(bos=BOTH, eos=3)
WEIGHTS = [0.0, 0.4, 1.3]
UNIGRAM = NgramModel.from_counts(np.random.default_rng(1).integers(0, 50, V))


def text_of(documents, tokenizer):
    """A store of these documents, each a list of the lengths of its sentences, BOS and EOS
    included. Few tokens occur, so that many are repeated."""
    rng = np.random.default_rng(2)
    lengths = np.concatenate(documents)
    ids = rng.choice(30, lengths.sum(), p=np.arange(30, 0, -1) / 465) + 100
    ends = np.cumsum(lengths)
    ids[ends - lengths], ids[ends - 1] = tokenizer.bos, tokenizer.eos
    numbers = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    encoded = Encoded(ids, lengths, lengths - 2, lengths, numbers, 0)
    return store_in_memory(Path("text"), TOKENIZER, encoded)


# A document of more than 2,048 tokens beside short ones, some of one sentence.
DOCUMENTS = [[5, 9], [30] * 80, [4], [7, 3, 12], [3], *[[6]] * 20, [40] * 4]


def distributions(run, text, by_document):
    """log p of the model alone after each token that is read, (T, V), in float64."""
    weights, readout = oracle.matrices(run.model.reservoir), run.model.params["readout"]
    pieces = [text.sentence(s) for s in range(len(text))]
    if by_document:
        pieces = [
            np.concatenate([pieces[s] for s in np.flatnonzero(text.documents == d)])
            for d in dict.fromkeys(text.documents.tolist())
        ]
    return np.concatenate(
        [oracle.log_softmax(oracle.logits(readout, oracle.states(*weights, ids))) for ids in pieces]
    )


def slowly(log_p, text, tokenizer, e, group=None):
    """log p of the predicted tokens with the cache, (P,), and the distance of each from the
    beginning of its document. `e` is a function of this distance."""
    p_1, values, distances = np.exp(UNIGRAM.log_p), [], []
    document, place = None, 0
    for s in range(len(text)):
        sentence = text.sentence(s).tolist()
        if text.documents[s] != document:
            document, distance, counts = text.documents[s], 0, Counter()
            if tokenizer.bos == tokenizer.eos:
                counts[tokenizer.bos] += 1
        for target in sentence[1:]:
            o = log_p[place].copy()
            for token, count in counts.items():
                o[token] += e(distance) * math.log(1 + count / (1000 * p_1[token]))
            new = oracle.log_softmax(o)
            values.append(new[target] if group is None else math.log(np.exp(new)[group].sum()))
            distances.append(distance)
            counts[target] += 1
            distance += 1
            place += 1
        place += 1  # EOS is read in a document, and nothing is predicted after it
    return np.array(values), np.array(distances)


@pytest.fixture(scope="module")
def run():
    run = small_run.small_run()
    run.__dict__["cache_fit"] = cache.CacheFit(
        0, "", "", cache.RANGES, [], [0.4, 1.3, 0.0, 0.7, 1.0], math.nan, math.nan
    )
    return run


@pytest.fixture(autouse=True)
def own_unigram(monkeypatch, request):
    """A run without a directory has no counts of its training text."""
    if "stores" not in request.fixturenames:
        monkeypatch.setattr(esnlm.Run, "unigram", lambda run: UNIGRAM)


def cached_model(run, tokenizer=TOKENIZER):
    p_1 = np.exp(UNIGRAM.log_p)
    return cache.CachedModel(run._stream, run._readout, p_1, tokenizer, run.config.compute)


@pytest.mark.parametrize("rows", [16, 256])
@pytest.mark.parametrize("tokenizer", [TOKENIZER, APART], ids=["BOS is EOS", "BOS is not EOS"])
@pytest.mark.parametrize("by_document", [False, True], ids=["sentences", "documents"])
def test_each_weight_has_the_oracle_s_probabilities(run, by_document, tokenizer, rows, monkeypatch):
    monkeypatch.setattr(cache, "ROWS", rows)
    text = text_of(DOCUMENTS, tokenizer)
    log_p = distributions(run, text, by_document)
    parts = list(cached_model(run, tokenizer).predict(text, by_document, WEIGHTS))
    numbers = np.concatenate([part.numbers for part in parts])
    assert sorted(numbers) == list(range(len(text.tokens) - len(text)))
    for k, weight in enumerate(WEIGHTS):
        expected, distances = slowly(log_p, text, tokenizer, lambda distance: weight)  # noqa: B023
        values = np.concatenate([part.log_probs[:, k] for part in parts])
        np.testing.assert_allclose(values, expected[numbers], rtol=TOLERANCE, atol=TOLERANCE)
    ranges = np.concatenate([part.ranges for part in parts])
    for k, (first, end) in enumerate(zip(cache.RANGES, [*cache.RANGES[1:], 10**9], strict=True)):
        assert ((ranges == k) == ((first <= distances) & (distances < end))[numbers]).all()
        assert (ranges == k).any()


def test_the_weight_of_each_range_minimises_its_nll(run):
    text = text_of([[9, 9], [30] * 20, [7, 3, 12]], TOKENIZER)
    log_p = distributions(run, text, by_document=False)
    fit = cached_model(run).fit(text, by_document=False, step=7, model_sha256="digest")
    assert (fit.step, fit.model_sha256, fit.store_sha256) == (7, "digest", text.tokens_sha256)
    nats = []
    for weight in cache.GRID:
        values, distances = slowly(log_p, text, TOKENIZER, lambda distance: weight)  # noqa: B023
        ranges = np.digitize(distances, cache.RANGES) - 1
        nats.append(-np.bincount(ranges, values, 5))
    best = np.argmin(nats, axis=0)[:4]
    assert len(set(best)) == 4
    # no token lies beyond 2,048: the last weight is that of the range before
    assert fit.weights == [*cache.GRID[best], cache.GRID[best[-1]]]
    assert fit.tokens == np.bincount(ranges, minlength=5).tolist() and fit.tokens[4] == 0
    assert fit.nll == pytest.approx(np.min(nats, axis=0).sum() / len(values), rel=1e-5)
    assert fit.nll_without == pytest.approx(np.sum(nats[0]) / len(values), rel=1e-5)


SENTENCES = [
    "The cats sleep.",
    "The cat",
    "cats that sleep",
    "",
    "that cats run The cats",
    "The cats",
]
NUMBERS = [0, 0, 1, 1, 1, 2]  # of documents


@pytest.mark.parametrize("context", ["sentence", "document"])
@pytest.mark.parametrize("whitespace", ["leading", "trailing"])
def test_words_sum_to_the_likelihood_of_the_text(run, tmp_path, context, whitespace):
    if context == "document":
        other = small_run.small_run(data=small_run.OF_DOCUMENTS)
        other.__dict__["cache_fit"] = run.cache_fit
        run = other
    rows = run.surprisal(
        SENTENCES,
        unit="nats",
        context=context,
        documents=NUMBERS,
        whitespace=whitespace,
        cache=True,
    )
    lines = ["The cats sleep.", "The cat", "", "cats that sleep", "that cats run The cats", "", ""]
    (tmp_path / "text.txt").write_text("\n".join([*lines, "The cats"]))
    likelihood = run.likelihood(encode_file(tmp_path / "text.txt", TOKENIZER), cache=True)
    total = math.fsum(row["surprisal_nats"] for row in rows)
    assert total == pytest.approx(likelihood.nats, rel=1e-6)
    alone = run.surprisal(SENTENCES[-1:], unit="nats", whitespace=whitespace, cache=True)
    assert [row["surprisal_nats"] for row in rows if row["sentence"] == 5] == pytest.approx(
        [row["surprisal_nats"] for row in alone], rel=1e-5
    )
    log_p = distributions(run, encode_file(tmp_path / "text.txt", TOKENIZER), context == "document")
    expected, _ = slowly(
        log_p, encode_file(tmp_path / "text.txt", TOKENIZER), TOKENIZER, lambda distance: 0.4
    )
    assert likelihood.nats == pytest.approx(-expected.sum(), rel=1e-5)
    ends = np.cumsum(encode_file(tmp_path / "text.txt", TOKENIZER).lengths - 1) - 1
    assert likelihood.eos_nats == pytest.approx(-expected[ends].sum(), rel=1e-5)


def test_white_space_moves_by_the_probabilities_with_the_cache(run):
    text = text_of([[12, 9], [5]], TOKENIZER)
    ends = word_ends(TOKENIZER)
    expected, _ = slowly(
        distributions(run, text, False), text, TOKENIZER, lambda distance: 0.4, ends
    )
    values = run.cached_log_probs(text, by_document=False, group=ends)
    np.testing.assert_allclose(values, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_model_without_a_state_reads_single_sentences(run):
    gpt2 = small_run.small_run(small_run.GPT2)
    with (
        pytest.warns(UserWarning, match="trained on single sentences"),
        pytest.raises(InputError, match="^context is document: this model carries no state"),
    ):
        gpt2.surprisal(["The cats", "The cats"], context="document", cache=True)
    assert "cache_fit" not in gpt2.__dict__  # refused before the weights are fitted
    gpt2.__dict__["cache_fit"] = run.cache_fit
    first, second = (
        gpt2.surprisal(["The cats", "The cats"], documents=documents, eos=False, cache=True)
        for documents in ([0, 0], [0, 1])
    )
    assert first[:2] == second[:2] == [row | {"sentence": 0} for row in second[2:]]
    assert first[3]["surprisal_bits"] < first[1]["surprisal_bits"]
    assert gpt2.surprisal(["", " "], cache=True) == []


def test_the_weights_are_fitted_once_and_stored_in_the_run(
    trained, stores, tmp_path, monkeypatch, capsys
):
    folder = small.copy(trained("esn"), tmp_path / "run")
    run, dev = esnlm.load(folder), open_store(stores / "dev")
    with pytest.warns(UserWarning, match="the weights of the cache were fitted to this very text"):
        first = run.likelihood(dev, cache=True)
    fit = run.cache_fit
    assert first.nll == pytest.approx(fit.nll, rel=1e-6)
    assert run.likelihood(dev).nll == pytest.approx(fit.nll_without, rel=1e-6)
    line = f"fitting the cache at step {run.step} to {first.tokens:,} tokens in 1 document of"
    assert line in capsys.readouterr().err
    (file,) = (folder / "cache").iterdir()
    record = json.loads(file.read_text())
    assert file.name == f"{run.step}.json" and record["store_sha256"] == dev.tokens_sha256
    train = open_store(stores / "train")
    expected = run.likelihood(train, cache=True)

    class Again(Exception):
        pass

    def fail(*_, **__):
        raise Again

    monkeypatch.setattr(cache.CachedModel, "fit", fail)
    assert esnlm.load(folder).likelihood(train, cache=True) == expected
    early = min(int(each.name) for each in (folder / "checkpoints").iterdir())
    for other in (esnlm.load(folder, step=early), esnlm.load(folder, untrained=True)):
        with pytest.raises(Again):
            other.likelihood(train, cache=True)
    small.flip(file)
    with pytest.raises(Again):
        esnlm.load(folder).likelihood(train, cache=True)


def test_a_folder_that_cannot_be_written_is_no_obstacle(trained, stores, tmp_path, capsys):
    folder = small.copy(trained("esn"), tmp_path / "run")
    (folder / "cache").touch()  # as a file it cannot be a folder, even for root
    nll = esnlm.load(folder).likelihood(stores / "train", cache=True).nll
    assert "the weights of the cache are not stored: " in capsys.readouterr().err
    assert math.isfinite(nll)


def test_a_run_says_what_the_cache_lacks(trained, stores, tmp_path):
    elsewhere, folder = shutil.copytree(stores, tmp_path / "stores"), tmp_path / "run"
    assert small.train(folder, elsewhere, small.MODELS["esn"], epochs=1) == 0
    lines = (stores / "dev.txt").read_text().splitlines()
    (tmp_path / "apart.txt").write_text("\n\n".join(lines))
    how = ["--tokenizer", stores / "train" / "tokenizer", "--sentences", "line", "--quiet"]
    words = ["--input", tmp_path / "apart.txt", "--out", tmp_path / "apart"]
    assert small.esnlm("prepare", *words, *how) == 0
    for name, validation, line in (
        ("apart", str(tmp_path / "apart"), "each document is one sentence, so the cache cannot be"),
        ("none", "null", "has no validation text to fit the cache to: choose a run"),
    ):
        settings = ["--data.validation", validation]
        other = tmp_path / f"run-{name}"
        assert small.train(other, stores, small.MODELS["esn"], *settings, epochs=1) == 0
        with pytest.raises(InputError, match=line):
            esnlm.load(other).likelihood(stores / "train", cache=True)
    shutil.rmtree(elsewhere / "dev")
    run = esnlm.load(folder)
    with pytest.raises(
        InputError, match="^the cache is fitted to the run's validation text: .*dev"
    ):
        run.likelihood(elsewhere / "train", cache=True)
    imported = small_run.small_run(data=ImportedData())
    with pytest.raises(InputError, match="^small: has no validation text to fit the cache to"):
        imported.likelihood(["The cats"], cache=True)
