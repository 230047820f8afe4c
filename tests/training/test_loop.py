"""A whole run, small: it finishes, comes back, resumes to the same bits, and refuses to be mixed up."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.data.store import open_store
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.training.summary import has_diverged
from esnlm.workflows.train import train_run
from tests import oracle

SMALL = """
data: {kind: grammar, sentences: 700, validation_sentences: 100, pairs: 4}
model: {reservoir: {state_size: 48, mean_degree: 6}, readout: {rank: 8}}
training: {epochs: 2, learning_rate: 0.01, log_every: 5, checkpoint_every: 7, checkpoint_words: [2000]}
"""
REPOSITORY = Path(__file__).resolve().parents[2]
TIMES = ("seconds", "tokens_per_second", "peak_memory_bytes")


def write_config(folder, run):
    path = folder / "small.yaml"
    path.write_text(f"run: {run}\n{SMALL}")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run and its configuration file."""
    folder = tmp_path_factory.mktemp("run")
    path = write_config(folder, folder / "small")
    assert train_run(config_io.read(path)) == 0
    return folder / "small", path


def timeless(tree):
    return {key: value for key, value in tree.items() if key not in TIMES}


def metrics(run):
    return [timeless(json.loads(line)) for line in RunDirectory(run).metrics.read_text().splitlines()]


def same_run(one, two):
    first, second = esnlm.load(one).arrays(), esnlm.load(two).arrays()
    assert all(np.array_equal(first[name], second[name]) for name in first | second)
    summaries = [timeless(json.loads(RunDirectory(run).summary.read_text())) for run in (one, two)]
    assert summaries[0] == summaries[1]
    assert metrics(one) == metrics(two)


def test_a_run_leaves_what_it_promises(finished):
    run, _ = finished
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["step"] == 2 * 22
    assert summary["train_nll"] < 5.2 and summary["val_nll"] < 5.0  # ln V is 6
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == {
        *(
            "config.yaml",
            "tokenizer",
            "frozen",
            "checkpoints",
            "metrics.jsonl",
            "summary.json",
            "plots",
            "unigram.npy",
            "data.json",
        ),
        *("stores", "minimal_pairs", "evaluation", "manifest.json", "format.json"),
    }
    lines = metrics(run)
    assert [line["step"] for line in lines if "train_nll" in line] == [5, 10, 15, 20, 22, 25, 30, 35, 40, 44]
    assert [line["epoch"] for line in lines if "val_nll" in line] == [1, 2]


def test_the_train_nll_is_the_mean_of_the_last_epoch_s_batch_losses(finished):
    run, _ = finished
    lines = [line for line in metrics(run) if line.get("epoch") == 2 and "train_nll" in line]
    updates = np.diff([22, *(line["step"] for line in lines)])
    summary = json.loads((run / "summary.json").read_text())
    assert summary["train_nll"] == pytest.approx(
        np.average([line["train_nll"] for line in lines], weights=updates), rel=1e-12
    )


def test_a_restored_run_agrees_with_the_oracle(finished):
    """From disk to log-probabilities: NumPy, with the arrays and the text and nothing else of the package."""
    run = esnlm.load(finished[0])
    sentences = ["The cats sleep.", "Who said that?", "", "<|endoftext|> is ordinary text"]
    reservoir = run.model.reservoir
    for sentence, found, states in zip(sentences, run.token_log_probs(sentences), run.states(sentences), strict=True):
        ids = [run.tokenizer.bos, *run.tokenizer.encode(sentence), run.tokenizer.eos]
        weights = (reservoir.w_rec.todense(), reservoir.w_in.todense(), reservoir.leak)
        np.testing.assert_allclose(states, oracle.states(*weights, ids), atol=3e-5)
        np.testing.assert_allclose(found, oracle.token_log_probs(*weights, run.model.params["readout"], ids), rtol=3e-5)
    expected = [found.sum(dtype=np.float64) for found in run.token_log_probs(sentences)]
    np.testing.assert_allclose(run.log_probs(sentences), expected, rtol=1e-12)


def test_the_validation_nll_is_the_oracle_s(finished):
    run, store = esnlm.load(finished[0]), open_store(finished[0] / "stores" / "validation")
    frozen = run.model.reservoir
    weights = (frozen.w_rec.todense(), frozen.w_in.todense(), frozen.leak, run.model.params["readout"])
    log_probs = np.concatenate([oracle.token_log_probs(*weights, sentence) for sentence in store])
    summary = json.loads((finished[0] / "summary.json").read_text())
    assert summary["val_nll"] == pytest.approx(-log_probs.mean(), rel=1e-5)
    assert summary["val_bits_per_byte"] == pytest.approx(-log_probs.sum() / np.log(2) / store.bytes.sum(), rel=1e-5)
    of_eos = np.cumsum([len(sentence) - 1 for sentence in store]) - 1  # where the predictions of each sentence end
    without_eos = np.delete(log_probs, of_eos)
    assert summary["val_nll_without_eos"] == pytest.approx(-without_eos.mean(), rel=1e-5)


def test_a_finished_run_is_left_as_it_is(finished, capsys):
    run, path = finished
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.name != ".lock"}
    assert train_run(config_io.read(path)) == 0
    assert capsys.readouterr().err == f"{run} is finished (update 44); nothing to do\n"
    assert before == {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.name != ".lock"}


def test_another_configuration_in_the_same_run_directory_is_refused(finished):
    run, path = finished
    with pytest.raises(InputError) as caught:
        train_run(config_io.read(path, ["--training.learning_rate", "0.02"]))
    assert str(caught.value) == (
        f"{run / 'config.yaml'}: the run was begun with another configuration (training.learning_rate 0.01 -> 0.02);"
        f" give the same one (--config {run / 'config.yaml'} --run {run}), or another run directory with --run"
    )


def test_checkpoints_at_word_counts_are_kept(finished):
    run, _ = finished
    steps = sorted(int(folder.name) for folder in (run / "checkpoints").iterdir())
    permanent = [
        step
        for step in steps
        if json.loads((run / "checkpoints" / str(step) / "metadata.json").read_text())["permanent"]
    ]
    assert len(steps) == 3 and len(permanent) == 1 and steps[0] == permanent[0]
    words = json.loads((run / "checkpoints" / str(permanent[0]) / "metadata.json").read_text())["words"]
    assert 2000 <= words < 2000 + 32 * 20
    assert esnlm.load(run, step=permanent[0]).step == permanent[0]


def test_a_run_is_what_its_settings_say(tmp_path):
    """Two epochs with a cosine, clipping, decay and a partial batch, replayed in NumPy from the store and the seed."""
    path = write_config(tmp_path, tmp_path / "run")
    train_run(config_io.read(path, ["--training.schedule", "cosine", "--training.clip_norm", "0.2", "--seed", "5"]))
    untrained, trained = esnlm.load(tmp_path / "run", untrained=True), esnlm.load(tmp_path / "run")
    store = open_store(tmp_path / "run" / "stores" / "train")
    frozen = untrained.model.reservoir
    weights = [np.asarray(part, np.float64) for part in (frozen.w_rec.todense(), frozen.w_in.todense(), frozen.leak)]
    states = [oracle.states(*weights, sentence[:-1]) for sentence in store]
    params = {name: np.asarray(array, np.float64) for name, array in untrained.model.params["readout"].items()}
    adamw, losses, words = oracle.AdamW(params), [], []
    for epoch in range(2):
        order = np.random.default_rng([5, 4, epoch]).permutation(len(store))
        for batch in np.split(order, range(32, len(order), 32)):
            targets = np.concatenate([store.sentence(s)[1:] for s in batch])
            loss, gradient = oracle.mean_nll_and_gradient(params, np.concatenate([states[s] for s in batch]), targets)
            norm = np.sqrt(sum((part**2).sum() for part in gradient.values()))
            gradient = {name: part * min(1, 0.2 / norm) for name, part in gradient.items()}
            adamw.lr = 0.01 * (1 + np.cos(np.pi * len(losses) / 44)) / 2
            params = adamw.step(params, gradient)
            losses.append(loss)
            words.append(sum(len(trained.tokenizer.decode(store.sentence(s)[1:-1]).split()) for s in batch))
    for name in params:
        assert np.abs(params[name] - np.asarray(untrained.model.params["readout"][name])).max() > 0.02
        np.testing.assert_allclose(trained.model.params["readout"][name], params[name], atol=2e-5)
    logged = [line for line in metrics(tmp_path / "run") if "train_nll" in line]
    starts = [0, *(line["step"] for line in logged)]
    for line, first in zip(logged, starts, strict=False):
        assert line["train_nll"] == pytest.approx(np.mean(losses[first : line["step"]]), rel=1e-5)
        assert line["words"] == sum(words[: line["step"]])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["train_nll"] == pytest.approx(np.mean(losses[22:]), rel=1e-5)


def test_what_a_run_counts_of_its_text(finished):
    """Unigram counts leave BOS out; the generated stores know their words and bytes."""
    run, store = esnlm.load(finished[0]), open_store(finished[0] / "stores" / "train")
    counted = Counter(int(token) for sentence in store for token in sentence[1:])
    assert dict(enumerate(np.load(finished[0] / "unigram.npy"))) == {
        v: counted[v] for v in range(run.tokenizer.vocab_size)
    }
    texts = [run.tokenizer.decode(sentence[1:-1]) for sentence in store]
    assert list(store.words) == [len(text.split()) for text in texts]
    assert list(store.bytes) == [len(text.encode()) for text in texts]


def test_data_changed_under_a_run_is_refused(finished, tmp_path):
    import shutil

    shutil.copytree(finished[0], tmp_path / "small")
    (tmp_path / "small" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "small" / "stores" / "validation")
    shutil.copytree(tmp_path / "small" / "stores" / "train", tmp_path / "small" / "stores" / "validation")
    with pytest.raises(InputError, match="not the validation store that .* was begun with"):
        train_run(config_io.read(finished[1], ["--run", str(tmp_path / "small")]))


def test_a_start_that_fails_leaves_nothing(tmp_path):
    """A store made with another tokenizer: one line, and the corrected command starts afresh."""
    from esnlm.data.prepare import prepare

    (tmp_path / "text").write_text("The cats sleep in the garden and the dogs bark.\n" * 40)
    for name, size in (("train", 270), ("dev", 280)):
        prepare([tmp_path / "text"], tmp_path / name, tokenizer=f"train:{size}", sentences="line")
    path = tmp_path / "store.yaml"
    path.write_text(
        f"run: {tmp_path / 'run'}\ndata: {{kind: store, train: {tmp_path / 'train'}, validation: {tmp_path / 'dev'}}}\n"
        "model: {reservoir: {state_size: 32, mean_degree: 4}, readout: {rank: 4}}"
    )
    with pytest.raises(InputError, match="dev was made with tokenizer bpe-280 .* not bpe-270"):
        train_run(config_io.read(path))
    assert {file.name for file in (tmp_path / "run").iterdir()} <= {".lock"}
    assert train_run(config_io.read(path, ["--data.validation", str(tmp_path / "train")])) == 0


def test_windows_and_slots_change_only_the_rounding(finished, tmp_path):
    """However many features are precomputed at once, the trajectory is the one of an update at a time."""
    path = write_config(tmp_path, tmp_path / "other")
    train_run(
        config_io.read(path, ["--compute.window_tokens", "1", "--compute.batch_slots", "8", "--compute.kernel", "bcoo"])
    )
    first, second = esnlm.load(finished[0]).arrays(), esnlm.load(tmp_path / "other").arrays()
    for name in ("readout.a", "readout.b", "readout.bias"):
        # 44 steps of at most 1e-2 each, to a thousandth of their length
        np.testing.assert_allclose(first[name], second[name], atol=44e-2 * 1e-3)


def test_a_diverged_run_finishes_and_says_so(tmp_path, capsys):
    """It reports its losses, as in Ueda et al. 2025b, however large or undefined, and is marked."""
    path = write_config(tmp_path, tmp_path / "diverged")
    assert train_run(config_io.read(path, ["--training.learning_rate", "1e30"])) == 0
    summary = json.loads((tmp_path / "diverged" / "summary.json").read_text())
    assert (summary["status"], summary["val_nll"]) == ("diverged", "nan")
    printed = capsys.readouterr().out
    assert "not defined: 88 of 88 sentences have a log-probability that is not a number" in printed
    assert "is finite, or none yet" in printed


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


def run_train(path, *arguments, **options):
    command = [sys.executable, str(REPOSITORY / "train.py"), "--config", str(path), *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_resumes_to_the_same_bits(finished, tmp_path, number):
    path, run = write_config(tmp_path, tmp_path / "stopped"), tmp_path / "stopped"
    process = run_train(path)
    while not (run / "checkpoints" / "7").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == 75 and "the same command resumes" in told
        assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"
    assert train_run(config_io.read(path)) == 0
    same_run(finished[0], run)


def test_an_untrained_run_is_the_one_before_the_first_update(finished):
    run = esnlm.load(finished[0], untrained=True)
    assert run.step == 0
    assert np.abs(np.asarray(run.model.readout.a)).max() <= 1 / np.sqrt(8)
    trained = esnlm.load(finished[0])
    assert np.array_equal(run.model.reservoir.w_rec.data, trained.model.reservoir.w_rec.data)
