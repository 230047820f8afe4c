"""`esnlm likelihood`, from the arguments to the table and the file; and `run.likelihood`."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.store import StoreWriter, open_store
from tests.golden import small


@pytest.fixture
def run(trained):
    return trained("esn")


@pytest.fixture
def dev(stores):
    return stores / "dev"


@pytest.fixture
def measure(tmp_path):
    """Returns a function that runs the command and returns the content of its file."""

    def measure(run, *words):
        file = tmp_path / "figures.json"
        words = ["--run", run, *words, "--out", file, "--overwrite"]
        assert small.esnlm("likelihood", *words) == 0
        return json.loads(file.read_text())

    return measure


def test_the_run_s_own_validation_text_has_the_nll_that_the_run_logged(run, dev, measure):
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    summary = json.loads((run / "summary.json").read_text())
    result = measure(run, "--store", dev)
    (text,) = result["texts"]
    found = text["models"]["model"]
    assert found["nll"] == pytest.approx(last["val_nll"], rel=1e-6)
    assert found["bits_per_byte"] == pytest.approx(last["val_bits_per_byte"], rel=1e-6)
    assert found["nats_per_word"] == pytest.approx(summary["val_nats_per_word"], rel=1e-6)
    assert found["perplexity"] == pytest.approx(summary["perplexity"], rel=1e-5)
    for name in ("unigram", "bigram"):
        assert text["models"][name]["nll"] == pytest.approx(
            summary["references"][f"{name} model"], rel=1e-12
        )
    assert result["notes"] == [] and result["step"] == summary["step"]


def test_a_list_of_sentences_a_text_and_a_store_are_the_same(run, dev, measure, tmp_path):
    loaded, store = esnlm.load(run), open_store(dev)
    sentences = [loaded.tokenizer.decode(ids[1:-1]) for ids in store]
    found = loaded.likelihood(dev)
    assert (
        loaded.likelihood(str(dev))
        == loaded.likelihood(store)
        == loaded.likelihood(sentences)
        == found
    )
    (tmp_path / "text.txt").write_text("\n\n".join(sentences))
    result = measure(run, "--store", dev, "--text", tmp_path / "text.txt")
    by_store, by_text = result["texts"]
    assert (
        by_store["models"] == by_text["models"] and by_store["models"]["model"]["nll"] == found.nll
    )
    assert by_store["sha256"] == by_text["sha256"]
    total = loaded.log_probs(sentences).sum()
    assert found.nats == pytest.approx(-total, rel=1e-6)
    assert found.nats - found.eos_nats == pytest.approx(
        -loaded.log_probs(sentences, "no-eos").sum(), rel=1e-6
    )


def test_the_command_prints_a_table_and_writes_a_file(run, dev, tmp_path, capsys):
    words = ["likelihood", "--run", run, "--store", dev, "--out", tmp_path / "new.json"]
    assert small.esnlm(*words) == 0
    _, header, model, unigram, bigram, size = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "text",
        "model",
        "NLL",
        "NLL",
        "without",
        "EOS",
        "bits/byte",
        "nats/word",
        "perplexity",
    ]
    written = json.loads((tmp_path / "new.json").read_text())
    assert written["format"] == "esnlm likelihood" and written["provenance"]["command"].endswith(
        "new.json"
    )
    (text,) = written["texts"]
    figures = text["models"]["model"]
    keys = ("nll", "nll_without_eos", "bits_per_byte", "nats_per_word")
    shown = [f"{figures[key]:.3f}" for key in keys] + [f"{figures['perplexity']:,.2f}"]
    assert model.split() == [str(dev), "esn", *shown]
    assert unigram.split()[0] == "unigram" and bigram.split()[0] == "bigram"
    assert size.startswith(f"{dev}: 40 sentences, {text['tokens']:,} predicted tokens, ")
    assert text["sha256"] == open_store(dev).manifest["sha256"]["tokens.bin"]
    assert small.esnlm(*words) == 2 and json.loads((tmp_path / "new.json").read_text()) == written
    assert small.esnlm(*words, "--overwrite", "--untrained") == 0
    assert json.loads((tmp_path / "new.json").read_text())["step"] == 0


def test_the_cache_is_added_and_says_that_it_was_fitted_to_this_text(
    run, stores, dev, measure, tmp_path, capsys
):
    folder = small.copy(run, tmp_path / "run")
    with pytest.warns(UserWarning, match="fitted to this very text"):
        result = measure(folder, "--store", dev, stores / "train", "--cache")
    loaded = esnlm.load(folder)
    assert result["cache"] == dataclasses.asdict(loaded.cache_fit)
    own, other = result["texts"]
    assert "fitted to this very text" in own["note"] and other["note"] is None
    assert other["models"]["model"]["nll"] == loaded.likelihood(stores / "train", cache=True).nll
    title, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith(f"run, step {loaded.step}, with the cache: NLL")
    assert measure(folder, "--store", dev)["cache"] is None


def test_a_checkpoint_and_the_untrained_model_are_measured_too(run, dev, measure):
    step = min(int(folder.name) for folder in (run / "checkpoints").iterdir())
    untrained, early, end = (
        measure(run, "--store", dev, *words)["texts"][0]["models"]["model"]["nll"]
        for words in (["--untrained"], ["--step", step], [])
    )
    assert untrained > early > end


def test_there_is_no_bigram_model_of_another_training_store(stores, measure, tmp_path):
    here, run = shutil.copytree(stores, tmp_path / "here"), tmp_path / "run"
    assert small.train(run, here, small.MODELS["esn"], epochs=1) == 0
    shutil.rmtree(here / "train")
    shutil.copytree(here / "dev", here / "train")
    result = measure(run, "--store", here / "dev")
    (note,) = result["notes"]
    assert str(here / "train") in note and list(result["texts"][0]["models"]) == [
        "model",
        "unigram",
    ]


def test_a_store_of_another_tokenizer_is_refused(run, tmp_path):
    loaded, other = esnlm.load(run), esnlm.load(run).tokenizer
    other = type(other)("other", other.pattern, dict(list(other.ranks.items())[:-1]))
    with StoreWriter(tmp_path / "store", other) as writer:
        writer.append(np.array([other.bos, 65, other.eos]), [3], [1], [1], [0])
        writer.finish()
    with pytest.raises(InputError, match="was made with tokenizer other"):
        loaded.likelihood(tmp_path / "store")
