"""`esnlm likelihood`, from the arguments to the table and the file; and `run.likelihood`."""

import json
import shutil

import numpy as np
import pytest

import esnlm
from esnlm import commands, config_io
from esnlm.commands.likelihood_table import measure_run
from esnlm.data.store import StoreWriter, open_store
from esnlm.errors import InputError
from esnlm.workflows.train import train_run

SMALL = """
data: {kind: grammar, sentences: 300, validation_sentences: 60, pairs: 2}
model: {reservoir: {state_size: 32, mean_degree: 4}, readout: {rank: 4}}
training: {learning_rate: 0.02, checkpoint_words: [800]}
"""


def train(folder, *settings):
    (folder / "small.yaml").write_text(f"run: {folder / 'small'}\n{SMALL}")
    assert train_run(config_io.read(folder / "small.yaml", settings)) == 0
    return folder / "small"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"))


def validation(run):
    return run / "stores" / "validation"


def test_the_run_s_own_validation_text_has_the_nll_that_the_run_logged(run):
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    summary = json.loads((run / "summary.json").read_text())
    result = measure_run(run, stores=[validation(run)])
    (text,) = result["texts"]
    found = text["models"]["model"]
    assert found["nll"] == pytest.approx(last["val_nll"], rel=1e-6)
    assert found["bits_per_byte"] == pytest.approx(last["val_bits_per_byte"], rel=1e-6)
    assert found["nats_per_word"] == pytest.approx(summary["val_nats_per_word"], rel=1e-6)
    assert found["perplexity"] == pytest.approx(summary["perplexity"], rel=1e-5)
    for name in ("unigram", "bigram"):
        assert text["models"][name]["nll"] == pytest.approx(summary["references"][f"{name} model"], rel=1e-12)
    assert result["notes"] == [] and result["step"] == summary["step"]


def test_a_list_of_sentences_a_text_and_a_store_are_the_same(run, tmp_path):
    loaded, store = esnlm.load(run), open_store(validation(run))
    sentences = [loaded.tokenizer.decode(ids[1:-1]) for ids in store]
    found = loaded.likelihood(validation(run))
    assert loaded.likelihood(str(validation(run))) == loaded.likelihood(store) == loaded.likelihood(sentences) == found
    (tmp_path / "text.txt").write_text("\n\n".join(sentences))
    by_store, by_text = measure_run(run, [validation(run)], [tmp_path / "text.txt"])["texts"]
    assert by_store["models"] == by_text["models"] and by_store["models"]["model"]["nll"] == found.nll
    assert by_store["sha256"] == by_text["sha256"]
    total = loaded.log_probs(sentences).sum()
    assert found.nats == pytest.approx(-total, rel=1e-6)
    assert found.nats - found.eos_nats == pytest.approx(-loaded.log_probs(sentences, "no-eos").sum(), rel=1e-6)


def test_the_command_prints_a_table_that_nothing_cuts_and_writes_a_file(run, tmp_path, capsys):
    deep = tmp_path / ("a" * 120) / ("b" * 120)
    shutil.copytree(validation(run), deep)
    words = ["likelihood", "--run", str(run), "--store", str(deep), "--out", str(tmp_path / "new.json")]
    assert commands.main(words) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == "counting the training text for the bigram model"
    assert f"{deep}  NLL " in err
    first, header, model, unigram, bigram, size = out.splitlines()
    assert first.startswith("small, step 10: NLL in nats per predicted token")
    assert header.split() == ["text", "model", "NLL", "without", "EOS", "bits/byte", "nats/word", "perplexity"]
    written = json.loads((tmp_path / "new.json").read_text())
    assert written["format"] == "esnlm likelihood" and written["provenance"]["command"].endswith("new.json")
    (text,) = written["texts"]
    figures = text["models"]["model"]
    keys = ("nll", "nll_without_eos", "bits_per_byte", "nats_per_word")
    assert model.split() == [
        str(deep),
        "small",
        *(f"{figures[key]:.4f}" for key in keys),
        f"{figures['perplexity']:,.2f}",
    ]
    assert unigram.split()[0] == "unigram" and bigram.split()[0] == "bigram"
    assert (
        size
        == f"{deep}: 60 sentences, {text['tokens']:,} predicted tokens, {text['words']:,} words, {text['bytes']:,} bytes"
    )
    assert text["sha256"] == open_store(deep).manifest["sha256"]["tokens.bin"]

    before = (tmp_path / "new.json").read_bytes()
    assert commands.main(words) == 2 and (tmp_path / "new.json").read_bytes() == before
    assert commands.main([*words, "--overwrite", "--untrained"]) == 0
    assert json.loads((tmp_path / "new.json").read_text())["step"] == 0


def test_a_checkpoint_and_the_untrained_model_are_measured_too(run):
    step = min(int(folder.name) for folder in (run / "checkpoints").iterdir())
    nll = {}
    for name, which in {"untrained": {"untrained": True}, "early": {"step": step}, "end": {}}.items():
        nll[name] = measure_run(run, [validation(run)], **which)["texts"][0]["models"]["model"]["nll"]
    assert nll["untrained"] > nll["early"] > nll["end"]


def test_without_the_training_store_there_is_no_bigram_model_and_a_line_says_so(run, tmp_path, capsys):
    moved = tmp_path / "small"
    shutil.copytree(run, moved)
    train_store = moved / "stores" / "train"
    shutil.rmtree(train_store)
    note = "no bigram model, which needs the run's training store: "
    missing = f"{train_store}/manifest.json: missing; not a token store: make one with python -m esnlm prepare"
    result = measure_run(moved, [validation(moved)])
    assert result["notes"] == [note + missing] and list(result["texts"][0]["models"]) == ["model", "unigram"]
    assert capsys.readouterr().out.splitlines()[-1] == note + missing

    shutil.copytree(validation(moved), train_store)
    other = f"{train_store}: not the training store that {moved} was begun with"
    assert measure_run(moved, [validation(moved)])["notes"] == [note + other]


def test_a_sentence_that_the_model_cannot_read_is_named(tmp_path):
    (tmp_path / "small.yaml").write_text(
        f"run: {tmp_path / 'small'}\n"
        "data: {kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}\n"
        "model: {family: gpt2, layers: 1, heads: 1, width: 8, positions: 40}\n"
    )
    assert train_run(config_io.read(tmp_path / "small.yaml")) == 0
    loaded = esnlm.load(tmp_path / "small")
    (tmp_path / "text.txt").write_text("The cats sleep.\n" + "the " * 50)
    with pytest.raises(InputError) as error:
        measure_run(tmp_path / "small", [validation(tmp_path / "small")], [tmp_path / "text.txt"])
    ids = 2 + len(loaded.tokenizer.encode("the " * 49 + "the"))
    line = f"has {ids} ids: this model reads at most 40 + 1; shorten it"
    assert str(error.value) == f"{tmp_path / 'text.txt'}: sentence 1 {line}"
    with pytest.raises(InputError, match=f"sentence 0 has {ids} ids"):
        loaded.likelihood(["the " * 49 + "the"])


def test_a_store_of_another_tokenizer_is_refused(run, tmp_path):
    loaded, other = esnlm.load(run), esnlm.load(run).tokenizer
    other = type(other)("other", other.pattern, dict(list(other.ranks.items())[:-1]))
    with StoreWriter(tmp_path / "store", other) as writer:
        writer.append(np.array([other.bos, 65, other.eos]), [3], [1], [1])
        writer.finish()
    with pytest.raises(InputError, match="was made with tokenizer other .*, not words .*: prepare its text again"):
        loaded.likelihood(tmp_path / "store")


def test_a_finished_run_that_is_given_another_validation_text_names_the_command(run, tmp_path, capsys):
    # The data of a generated corpus has no such setting: the run of a store is needed.
    text = f"run: {tmp_path / 'run'}\n" + SMALL.replace(
        SMALL.splitlines()[1], f"data: {{kind: store, train: {validation(run)}, validation: {validation(run)}}}"
    )
    (tmp_path / "store.yaml").write_text(text)
    assert train_run(config_io.read(tmp_path / "store.yaml")) == 0
    shutil.copytree(validation(run), tmp_path / "other")
    changed = config_io.read(tmp_path / "store.yaml", ["--data.validation", str(tmp_path / "other")])
    capsys.readouterr()
    assert train_run(changed, ["data.validation"]) == 0
    finished, advice = capsys.readouterr().err.splitlines()
    assert finished.endswith("; nothing to do")
    assert advice == f"to measure it on another text: esnlm likelihood --run {tmp_path / 'run'} --store STORE"
