"""A whole run, small: it is what its settings say, comes back from disk, and refuses to be mixed
up."""

from collections import Counter

import numpy as np
import pytest

import esnlm
from esnlm.data.store import open_store
from esnlm.reports.run_results import show_results
from esnlm.training.run import has_diverged
from tests import oracle
from tests.training.small import metrics, summary_of, train

# 13 updates an epoch, the last one of four sentences.
SETTINGS = [
    *(
        "--data.sentences",
        "100",
        "--seed",
        "5",
        "--training.schedule",
        "cosine",
        "--training.clip_norm",
        "0.2",
    ),
    *("--training.checkpoint_every", "7", "--training.checkpoint_words", "[200]"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train(folder, "small", *SETTINGS, show_results=show_results)


def test_a_run_leaves_what_it_promises(finished):
    found = {path.name for path in finished.iterdir() if not path.name.startswith(".")}
    assert found == {
        *(
            "config.yaml",
            "tokenizer",
            "frozen",
            "checkpoints",
            "metrics.jsonl",
            "summary.json",
            "plots",
            "unigram.npy",
        ),
        *("data.json", "stores", "minimal_pairs", "evaluation", "manifest.json", "format.json"),
    }
    assert summary_of(finished)["status"] == "finished" and summary_of(finished)["step"] == 2 * 13
    lines = metrics(finished)
    assert [line["step"] for line in lines if "train_nll" in line] == [5, 10, 13, 15, 20, 25, 26]
    assert [line["epoch"] for line in lines if "val_nll" in line] == [1, 2]


def test_a_run_is_what_its_settings_say(finished):
    """Two epochs with a cosine, clipping, decay and a partial batch, replayed in NumPy from the
    store and the seed."""
    untrained, trained = esnlm.load(finished, untrained=True), esnlm.load(finished)
    store = open_store(finished / "stores" / "train")
    weights = oracle.matrices(untrained.model.reservoir)
    states = [oracle.states(*weights, sentence[:-1]) for sentence in store]
    params = {
        name: np.asarray(array, np.float64)
        for name, array in untrained.model.params["readout"].items()
    }
    adamw, losses, words = oracle.AdamW(params), [], []
    for epoch in range(2):
        order = np.random.default_rng([5, 4, epoch]).permutation(len(store))
        for batch in np.split(order, range(8, len(order), 8)):
            targets = np.concatenate([store.sentence(s)[1:] for s in batch])
            loss, gradient = oracle.mean_nll_and_gradient(
                params, np.concatenate([states[s] for s in batch]), targets
            )
            norm = np.sqrt(sum((part**2).sum() for part in gradient.values()))
            gradient = {name: part * min(1, 0.2 / norm) for name, part in gradient.items()}
            adamw.lr = 0.02 * (1 + np.cos(np.pi * len(losses) / 26)) / 2
            params = adamw.step(params, gradient)
            losses.append(loss)
            words.append(
                sum(len(trained.tokenizer.decode(store.sentence(s)[1:-1]).split()) for s in batch)
            )
    for name in params:
        assert (
            np.abs(params[name] - np.asarray(untrained.model.params["readout"][name])).max() > 0.02
        )
        np.testing.assert_allclose(trained.model.params["readout"][name], params[name], atol=4e-5)
    logged = [line for line in metrics(finished) if "train_nll" in line]
    starts = [0, *(line["step"] for line in logged)]
    for line, first in zip(logged, starts, strict=False):
        assert line["train_nll"] == pytest.approx(np.mean(losses[first : line["step"]]), rel=1e-5)
        assert line["words"] == sum(words[: line["step"]])
    assert summary_of(finished)["train_nll"] == pytest.approx(np.mean(losses[13:]), rel=1e-5)


def test_a_restored_run_agrees_with_the_oracle(finished):
    """From disk to log-probabilities: NumPy, with the arrays and the text and nothing else of the
    package."""
    run = esnlm.load(finished)
    sentences = ["The cats sleep.", "Who said that?", "", "<|endoftext|> is ordinary text"]
    found, weights = run.token_log_probs(sentences), oracle.matrices(run.model.reservoir)
    for sentence, log_probs, states in zip(sentences, found, run.states(sentences), strict=True):
        ids = [run.tokenizer.bos, *run.tokenizer.encode(sentence), run.tokenizer.eos]
        np.testing.assert_allclose(states, oracle.states(*weights, ids), atol=3e-5)
        expected = oracle.token_log_probs(*weights, run.model.params["readout"], ids)
        np.testing.assert_allclose(log_probs, expected, rtol=3e-5)
    blank = 2  # a blank text is no sentence
    spoken = run.token_log_probs(sentences[:blank] + sentences[blank + 1 :])
    expected = [log_probs.sum(dtype=np.float64) for log_probs in spoken]
    expected.insert(blank, np.nan)
    np.testing.assert_allclose(run.log_probs(sentences), expected, rtol=1e-12)


def test_the_validation_nll_is_the_oracle_s(finished):
    run, store, summary = (
        esnlm.load(finished),
        open_store(finished / "stores" / "validation"),
        summary_of(finished),
    )
    weights = (*oracle.matrices(run.model.reservoir), run.model.params["readout"])
    log_probs = np.concatenate([oracle.token_log_probs(*weights, sentence) for sentence in store])
    assert summary["val_nll"] == pytest.approx(-log_probs.mean(), rel=1e-5)
    assert summary["val_bits_per_byte"] == pytest.approx(
        -log_probs.sum() / np.log(2) / store.bytes.sum(), rel=1e-5
    )
    # where the predictions of each sentence end
    of_eos = np.cumsum([len(sentence) - 1 for sentence in store]) - 1
    without_eos = np.delete(log_probs, of_eos)
    assert summary["val_nll_without_eos"] == pytest.approx(-without_eos.mean(), rel=1e-5)


def test_checkpoints_at_word_counts_are_kept(finished):
    run = esnlm.load(finished)
    steps = sorted(int(folder.name) for folder in (finished / "checkpoints").iterdir())
    first = next(line["step"] for line in metrics(finished) if line.get("words", 0) >= 200)
    assert len(steps) == 3 and steps[0] <= first < steps[1] and steps[-1] == run.step
    assert esnlm.load(finished, step=steps[0]).step == steps[0]


def test_what_a_run_counts_of_its_text(finished):
    """Unigram counts leave BOS out; the generated stores know their words and bytes."""
    run, store = esnlm.load(finished), open_store(finished / "stores" / "train")
    counted = Counter(int(token) for sentence in store for token in sentence[1:])
    expected = {v: counted[v] for v in range(run.tokenizer.vocab_size)}
    assert dict(enumerate(np.load(finished / "unigram.npy"))) == expected
    texts = [run.tokenizer.decode(sentence[1:-1]) for sentence in store]
    assert list(store.words) == [len(text.split()) for text in texts]
    assert list(store.bytes) == [len(text.encode()) for text in texts]


@pytest.mark.nightly
def test_a_diverged_run_finishes_and_says_so(tmp_path):
    """It reports its losses, as in Ueda et al. 2025b, however large or undefined, and is marked."""
    summary = summary_of(train(tmp_path, "diverged", "--training.learning_rate", "1e30"))
    assert (summary["status"], summary["val_nll"]) == ("diverged", "nan")


@pytest.mark.parametrize(
    "train_nll, val_nll, diverged",
    [
        (5.0, 4.0, False),
        (71.0, None, True),
        (5.0, 70.0, True),
        (69.0, 69.0, False),
        (np.inf, 4.0, True),
        (5.0, np.nan, True),
    ],
)
def test_diverged_is_not_finite_or_above_ten_log_v(train_nll, val_nll, diverged):
    assert has_diverged(train_nll, val_nll, vocab_size=1000) == diverged  # 10 ln 1000 = 69.08
