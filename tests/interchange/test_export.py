"""An exported run is a folder that others read: its files, its tokenizer and its card. PyTorch is
not needed for any of it."""

import ast
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy as numpy_of
import tokenizers
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import esnlm
from esnlm import commands
from esnlm.base.errors import InputError
from esnlm.data.tokenizer import load_tokenizer
from esnlm.interchange.huggingface import conversion
from esnlm.interchange.huggingface.export import DEEP, FILES, MODELING, export, export_checkpoints
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.trunk import TrunkConfig
from esnlm.reports.run_results import show_results
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import config_io
from esnlm.training.run import train_run
from tests.interchange.small_runs import ESN, SENTENCES, bpe, words, write_run

GPT2 = ["--model.family", "gpt2", "--model.layers", "2", "--model.heads", "2", "--model.width", "8"]
LAYERS = ["--model.reservoir.layers", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two layers whose checkpoints at steps 3 and 7 were kept for good."""
    read = {3: 1_000_100, 7: 1_500_000, 9: 2_000_000}
    return write_run(tmp_path_factory.mktemp("run") / "two", LAYERS, bpe(), read)


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "hf"
    export(run, out)
    return out


# ---- the folder ----


def test_the_folder_has_its_files_and_no_other(folder):
    assert {path.name for path in folder.iterdir()} == FILES - {DEEP.name}
    config = json.loads((folder / "config.json").read_text())
    tree = ast.parse((folder / "modeling_esnlm.py").read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for kind in ("AutoConfig", "AutoModel", "AutoModelForCausalLM"):
        module, name = config["auto_map"][kind].split(".")
        assert module == "modeling_esnlm" and name in classes
    assert config["hidden_size"] == 48 and config["vocab_size"] == bpe().vocab_size + 1
    assert config["bos_token_id"] == config["eos_token_id"] == bpe().eos
    assert (
        json.loads((folder / "generation_config.json").read_text())["pad_token_id"]
        == bpe().vocab_size
    )


def test_the_weights_are_all_there_and_sparse_ones_sparse(run, folder):
    stored, loaded = numpy_of.load_file(folder / "model.safetensors"), esnlm.load(run)
    for i, layer in enumerate(loaded.model.reservoir.layers):
        prefix = f"model.cell.layers.{i}."
        assert np.array_equal(stored[f"{prefix}leak"], layer.leak[...])
        starts, columns = (
            stored[f"{prefix}recurrent.row_starts"],
            stored[f"{prefix}recurrent.columns"],
        )
        dense = np.zeros((24, 24), np.float32)
        dense[np.repeat(np.arange(24), np.diff(starts)), columns] = stored[
            f"{prefix}recurrent.values"
        ]
        assert np.array_equal(dense, layer.w_rec.todense())
    dense = np.zeros((bpe().vocab_size, 25), np.float32)  # N is where there is no connection
    np.put_along_axis(
        dense,
        stored["model.cell.layers.0.input.units"],
        stored["model.cell.layers.0.input.weight"],
        1,
    )
    assert np.array_equal(dense[:, :24].T, loaded.model.reservoir.layers[0].w_in.todense())
    for name, own in (("a.weight", "a"), ("b.weight", "b"), ("a.bias", "bias")):
        assert np.array_equal(stored[f"model.readout.{name}"], loaded.model.params["readout"][own])


def test_a_gpt2_goes_out_as_transformers_own(tmp_path):
    run = write_run(tmp_path / "run", GPT2, bpe())
    export(run, tmp_path / "hf")
    assert {path.name for path in (tmp_path / "hf").iterdir()} == FILES - {MODELING.name, DEEP.name}
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and "auto_map" not in config
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    # its table has no row for another token
    assert generation["pad_token_id"] == config["eos_token_id"]


def test_kept_checkpoints_are_named_as_babylm_names_branches(run, tmp_path, capsys):
    arguments = ["export", "--run", str(run), "--out", str(tmp_path / "all"), "--checkpoints"]
    assert commands.main(arguments) == 0
    steps = {"chck_1M": 3, "step_7": 7, "chck_2M": 9, "main": 9}
    printed = [f"update {step} is in {tmp_path / 'all' / name}" for name, step in steps.items()]
    assert capsys.readouterr().out.splitlines() == printed
    for name in steps:
        assert {path.name for path in (tmp_path / "all" / name).iterdir()} == FILES - {DEEP.name}
    export(run, tmp_path / "third", step=3)
    weights = [tmp_path / "third", tmp_path / "all" / "chck_1M", tmp_path / "all" / "main"]
    third, same, last = (
        numpy_of.load_file(folder / "model.safetensors")["model.readout.a.weight"]
        for folder in weights
    )
    assert np.array_equal(third, same) and not np.array_equal(third, last)


# ---- what is refused ----


def test_nothing_is_overwritten_unasked_and_nothing_but_an_export_ever(run, tmp_path, capsys):
    out = tmp_path / "hf"
    export(run, out)
    before = (out / "model.safetensors").read_bytes()
    arguments = ["export", "--run", str(run), "--out", str(out), "--step", "3"]
    assert commands.main(arguments) == 2 and str(out) in capsys.readouterr().err
    assert (out / "model.safetensors").read_bytes() == before
    assert commands.main([*arguments, "--overwrite"]) == 0
    assert (out / "model.safetensors").read_bytes() != before
    (out / "notes.txt").write_text("mine")
    assert (
        commands.main([*arguments, "--overwrite"]) == 2 and "notes.txt" in capsys.readouterr().err
    )
    assert (out / "notes.txt").exists()


@pytest.mark.parametrize(
    "settings, named",
    [
        (["--model.reservoir.update_rule", "euler_state"], "model.reservoir.update_rule"),
        (["--model.family", "jaeger", *ESN[:4], "--model.rank", "6"], "model.family"),
        (
            ["--model.family", "lstm", "--model.width", "8", "--model.ngrams.orders", "[2]"],
            "model.ngrams.orders",
        ),
    ],
)
def test_a_model_that_pytorch_s_side_does_not_have_is_refused(settings, named, tmp_path):
    run = write_run(tmp_path / "run", settings, bpe())
    with pytest.raises(InputError, match=named):
        export(run, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_a_counted_model_is_refused():
    reservoir = ReservoirConfig(state_size=4, mean_degree=2)
    config = DeepReadoutConfig(reservoir=reservoir, readout=TrunkConfig(rank=2, counted="bigram"))
    model = config.initialize(5, 0, config.initialize_frozen(5, 0, [np.array([0, 3, 2])])[0])
    with pytest.raises(InputError, match="model.readout.counted"):
        conversion.tensors_of(model, 5)


def test_a_run_without_kept_checkpoints_has_none_to_export(tmp_path):
    run = write_run(tmp_path / "run", [], bpe())
    with pytest.raises(InputError, match="training.checkpoint_words"):
        export_checkpoints(run, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_another_precision_is_reported(tmp_path, capsys):
    for precision in ("float32", "bf16"):
        run = write_run(tmp_path / precision, ["--compute.state_precision", precision], bpe())
        export(run, tmp_path / f"{precision}-hf")
        assert ("rounds its states in bf16" in capsys.readouterr().err) == (precision == "bf16")


def test_a_word_that_is_spelt_as_a_special_token_is_refused():
    """Its id would be taken for that of the special token."""
    own = esnlm.tokenizer("words", ["<|endoftext|> the cats sleep."])
    with pytest.raises(InputError, match="endoftext"):
        conversion.tokenizer_files(own, pad_is_eos=False)


def test_a_full_disk_leaves_nothing(run, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(numpy_of, "save_file", refuse)
    with pytest.raises(InputError, match="model.safetensors: .*No space left"):
        export(run, tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []


# ---- the tokenizer ----


@pytest.fixture(scope="module", params=["bpe", "words", "gpt2"])
def pair(request):
    """A tokenizer of esnlm and what is exported of it."""
    if request.param == "gpt2":
        own = load_tokenizer(request.getfixturevalue("data") / "gpt2_bpe")
    else:
        own = {"bpe": bpe, "words": words}[request.param]()
    return own, tokenizers.Tokenizer.from_str(
        conversion.tokenizer_files(own, pad_is_eos=False)["tokenizer.json"]
    )


ODD = [
    "",
    " ",
    "\n\n  x",
    "a\r\nb ",
    "\t\t\t",
    "'s 'll I'VE",
    "x" * 300,
    " " * 70,
    "aaaa",
    "=" * 33,
    "12345 6",
]
ODD += [
    "\u00a0\u2003\u0085a",
    "中文 한국어 العربية",
    "e\u0301 \U0001f600\u200d",
    "the thethe  the.the",
]
ODD += ["The cats' sleeps!?", "\x00\x1c\x1d", '( "a" )']


def test_odd_texts_have_the_same_ids(pair):
    own, fast = pair
    for text in [*SENTENCES, *ODD]:
        assert fast.encode(text, add_special_tokens=False).ids == own.encode(text)


@given(st.one_of(st.text(), st.text("aeht scT.'\n 1=é"), st.text("the cats")))
@settings(max_examples=40, deadline=None)
def test_any_text_has_the_same_ids_and_comes_back(pair, text):
    own, fast = pair
    # docs/export.md: these are read as tokens
    assume("<|pad|>" not in text and "<|endoftext|>" not in text)
    ids = own.encode(text)
    assert fast.encode(text, add_special_tokens=False).ids == ids
    assert fast.decode(ids) == own.decode(ids)


def test_bos_is_first_where_special_tokens_are_asked_for(pair):
    own, fast = pair
    ids = own.encode("The cats")
    assert fast.encode("The cats").ids == [own.bos, *ids]
    assert fast.encode("The cats", " sleep").ids == [own.bos, *ids, *own.encode(" sleep")]
    assert fast.encode("The cats<|endoftext|>").ids == [own.bos, *ids, own.eos]
    assert (
        fast.get_vocab()["<|pad|>"] == own.vocab_size
        and fast.get_vocab()["<|endoftext|>"] == own.eos
    )
    text, found = "The cats sleep.", fast.encode("The cats sleep.")
    assert "".join(text[start:end] for start, end in found.offsets) == text and found.offsets[
        0
    ] == (0, 0)


# ---- the card ----


def test_the_card_has_data_words_scores_and_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(
        "run: trained\ndata: {kind: grammar, sentences: 40, validation_sentences: 10, pairs:"
        " 2}\nmodel: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}\ntraining:"
        " {checkpoint_words: [100]}\n"
    )
    assert train_run(config_io.read("small.yaml"), show_results=show_results) == 0
    export("trained", tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    tags = ["esnlm", "echo-state-network"]
    assert head == {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": tags}
    summary = json.loads((tmp_path / "trained" / "summary.json").read_text())
    assert f"| words read | {summary['words']} |" in card
    assert f"| val_nll | {summary['val_nll']} |" in card and "| blimp-paper, " in card
    assert summary["data_sha256"]["train"] in card and "kind grammar, sentences 40" in card
    experiment = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert experiment["model"]["reservoir"]["state_size"] == 16 and experiment["seed"] == 0
    # An earlier checkpoint has its own words, and neither the losses nor the scores of the last
    # one.
    export_checkpoints("trained", tmp_path / "all")
    (early,) = (path for path in (tmp_path / "all").iterdir() if path.name != "main")
    card = (early / "README.md").read_text()
    assert "| words read |" in card and "val_nll" not in card and "blimp-paper" not in card
