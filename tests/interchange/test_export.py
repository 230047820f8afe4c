"""An exported run is a folder that others read: its files, its tokenizer and its card. PyTorch is not needed for any of it."""

import ast
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import esnlm
from esnlm import commands, config_io
from esnlm.data.tokenizer import Tokenizer, load_tokenizer
from esnlm.errors import InputError
from esnlm.interchange.huggingface import tensors
from esnlm.interchange.huggingface.export import DEEP, FILES, MODELING, export, export_all
from esnlm.interchange.huggingface.tokenizer import tokenizer_files
from esnlm.io.json_file import seal
from esnlm.loaded_run import load
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.trunk.trunk import TrunkConfig
from esnlm.workflows.train import train_run
from tests.interchange.small_runs import SENTENCES, bpe, words, write_run

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install -e '.[hf]'")
safetensors = pytest.importorskip("safetensors", reason="needs safetensors: pip install -e '.[hf]'")
numpy_of = pytest.importorskip("safetensors.numpy", reason="needs safetensors: pip install -e '.[hf]'")

GPT2 = ["--model.family", "gpt2", "--model.layers", "2", "--model.heads", "2", "--model.width", "8"]
LAYERS = ["--model.reservoir.layers", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two layers whose checkpoints at steps 3 and 7 were kept for good."""
    read = {3: 1_000_100, 7: 1_500_000, 9: 2_000_000}
    return write_run(tmp_path_factory.mktemp("run") / "two", LAYERS, bpe(), (3, 7, 9), read)


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "hf"
    export(run, out)
    return out


# ---- the folder ----


def test_the_folder_has_its_files_and_no_other(folder):
    assert {path.name for path in folder.iterdir()} == FILES - {DEEP.name}
    assert not any(path.name.startswith(".") for path in folder.parent.iterdir())


def test_who_may_read_one_file_may_read_all(folder):
    assert len({file.stat().st_mode for file in folder.iterdir() if file.is_file()}) == 1


def test_the_configuration_names_classes_that_are_there(folder):
    config = json.loads((folder / "config.json").read_text())
    tree = ast.parse((folder / "modeling_esnlm.py").read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for kind in ("AutoConfig", "AutoModel", "AutoModelForCausalLM"):
        module, name = config["auto_map"][kind].split(".")
        assert module == "modeling_esnlm" and name in classes
    assert config["hidden_size"] == 48 and config["vocab_size"] == bpe().vocab_size + 1
    assert config["bos_token_id"] == config["eos_token_id"] == bpe().eos
    assert json.loads((folder / "generation_config.json").read_text())["pad_token_id"] == bpe().vocab_size


@pytest.mark.parametrize("file", [MODELING, DEEP])
def test_the_model_in_pytorch_needs_nothing_of_esnlm(file):
    tree = ast.parse(file.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    allowed = {
        "torch",
        "transformers",
        "warnings",
        "collections",
        "typing",
        *({"modeling_esnlm"} if file == DEEP else ()),
    }
    assert {name.split(".")[0] for name in names} <= allowed


def test_the_weights_are_all_there_and_sparse_ones_sparse(run, folder):
    stored, loaded = numpy_of.load_file(folder / "model.safetensors"), load(run)
    for i, layer in enumerate(loaded.model.reservoir.layers):
        prefix = f"model.cell.layers.{i}."
        assert np.array_equal(stored[f"{prefix}leak"], layer.leak[...])
        starts, columns = stored[f"{prefix}recurrent.row_starts"], stored[f"{prefix}recurrent.columns"]
        dense = np.zeros((24, 24), np.float32)
        dense[np.repeat(np.arange(24), np.diff(starts)), columns] = stored[f"{prefix}recurrent.values"]
        assert np.array_equal(dense, layer.w_rec.todense())
    dense = np.zeros((bpe().vocab_size, 25), np.float32)  # N is where there is no connection
    np.put_along_axis(dense, stored["model.cell.layers.0.input.units"], stored["model.cell.layers.0.input.values"], 1)
    assert np.array_equal(dense[:, :24].T, loaded.model.reservoir.layers[0].w_in.todense())
    for name in ("a", "b", "bias"):
        assert np.array_equal(stored[f"model.readout.{name}"], loaded.model.params["readout"][name])


def test_a_deep_readout_goes_out_with_both_files(tmp_path):
    settings = [
        "--model.family",
        "deep_readout",
        "--model.reservoir.state_size",
        "12",
        "--model.reservoir.mean_degree",
        "4",
    ]
    run = write_run(tmp_path / "run", [*settings, "--model.readout.rank", "6"], bpe())
    export(run, tmp_path / "hf")
    assert {path.name for path in (tmp_path / "hf").iterdir()} == FILES
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["model_type"] == "esnlm_deep_readout" and config["hidden_size"] == 6
    assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_deep_readout.DeepReadoutForCausalLM"
    export(run, tmp_path / "hf", overwrite=True)


def test_a_counted_model_is_not_exported():
    reservoir = ReservoirConfig(state_size=4, mean_degree=2)
    config = DeepReadoutConfig(reservoir=reservoir, readout=TrunkConfig(rank=2, counted="bigram"))
    model = config.initialize(5, 0, config.initialize_frozen(5, 0, [np.array([0, 3, 2])])[0])
    with pytest.raises(
        InputError,
        match=r"^model.readout.counted is bigram: it cannot be exported yet; a run that was trained with none can$",
    ):
        tensors.tensors_of(model, 5)


def test_a_gpt2_goes_out_as_transformers_own(tmp_path):
    run = write_run(tmp_path / "run", GPT2, bpe())
    export(run, tmp_path / "hf")
    assert {path.name for path in (tmp_path / "hf").iterdir()} == FILES - {MODELING.name, DEEP.name}
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and "auto_map" not in config
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert generation["pad_token_id"] == config["eos_token_id"]  # its table has no row for another token


def test_checkpoints_at_word_counts_are_named_as_babylm_names_branches(run, tmp_path):
    assert export_all(run, tmp_path / "all") == {"chck_1M": 3, "step_7": 7, "chck_2M": 9, "main": 9}
    for name in ("chck_1M", "step_7", "chck_2M", "main"):
        assert {path.name for path in (tmp_path / "all" / name).iterdir()} == FILES - {DEEP.name}
    export(run, tmp_path / "third", step=3)
    weights = [tmp_path / "third", tmp_path / "all" / "chck_1M", tmp_path / "all" / "main"]
    third, same, last = (numpy_of.load_file(folder / "model.safetensors")["model.readout.a"] for folder in weights)
    assert np.array_equal(third, same) and not np.array_equal(third, last)


def test_a_folder_may_be_named_by_a_text(run, tmp_path):
    export(str(run), str(tmp_path / "one"))
    export_all(str(run), str(tmp_path / "all"))
    assert (tmp_path / "one" / "config.json").exists() and (tmp_path / "all" / "main" / "config.json").exists()


# ---- what is refused ----


def line_of(arguments, capsys):
    assert commands.main(["export", *map(str, arguments)]) == 2
    return capsys.readouterr().err.removeprefix("error: ").strip()


def test_nothing_is_overwritten_unasked_and_nothing_but_an_export_ever(run, tmp_path, capsys):
    out = tmp_path / "hf"
    out.mkdir()
    export(run, out)  # an empty folder may be there
    before = (out / "model.safetensors").read_bytes()
    arguments = ["--run", run, "--out", out, "--step", 3]
    line = f"{out}: exists; name another folder with --out, or ask to overwrite it (--overwrite)"
    assert line_of(arguments, capsys) == line
    assert (out / "model.safetensors").read_bytes() == before
    assert commands.main(["export", *map(str, arguments), "--overwrite"]) == 0
    assert capsys.readouterr().out == f"ESN 2 x 24, rank 6, update 3, is in {out}\n"
    assert (out / "model.safetensors").read_bytes() != before
    (out / "notes.txt").write_text("mine")
    line = f"{out}: holds notes.txt, which no export wrote; name another folder with --out, or empty this one"
    assert line_of([*arguments, "--overwrite"], capsys) == line
    assert (out / "notes.txt").read_text() == "mine"


def test_all_checkpoints_are_replaced_when_asked(run, tmp_path, capsys):
    arguments = ["export", "--run", str(run), "--out", str(tmp_path / "all"), "--all-checkpoints"]
    assert commands.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"update 3 is in {tmp_path / 'all' / 'chck_1M'}"
    assert commands.main(arguments) == 2 and commands.main([*arguments, "--overwrite"]) == 0
    (tmp_path / "all" / "mine").mkdir()
    capsys.readouterr()
    assert line_of([*arguments[1:], "--overwrite"], capsys).startswith(f"{tmp_path / 'all'}: holds mine, which no")


def test_a_run_without_kept_checkpoints_has_no_all(tmp_path):
    run = write_run(tmp_path / "run", LAYERS, bpe())
    with pytest.raises(
        InputError, match="no checkpoint was kept for good, as training.checkpoint_words asks for; leave"
    ):
        export_all(run, tmp_path / "all")
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize(
    "setting, value, line",
    [
        ("state_precision", "bf16", "this run rounds its states to bf16, and the export does not"),
        ("precision", "bf16", "this run multiplies in bf16, and the export in float32"),
        ("precision", "tf32", "this run multiplies in tf32, and the export in float32"),
    ],
)
def test_another_precision_is_told_of(setting, value, line, run, tmp_path, capsys):
    """Also that of a GPU, where a run is exported on a CPU."""
    line += ": their log-probabilities differ by that"
    export(run, tmp_path / "float32")
    assert line not in capsys.readouterr().err
    other = tmp_path / "other"
    shutil.copytree(run, other)
    tree = yaml.safe_load((other / "config.yaml").read_text())
    tree["compute"][setting] = value
    (other / "config.yaml").write_text(yaml.safe_dump(tree))
    (other / "manifest.json").unlink()  # which has the sum of the configuration
    with pytest.warns(UserWarning, match="the files of this run cannot be verified"):
        export(other, tmp_path / "one")
        export_all(other, tmp_path / "all")
    assert capsys.readouterr().err.count(line) == 2


@pytest.mark.parametrize(
    "known, line",
    [
        ("UPDATE_RULES", "model.reservoir.update_rule is leaky_output: it cannot be exported yet; one and two can"),
        ("ACTIVATIONS", "model.reservoir.activation is tanh: it cannot be exported yet; one and two can"),
    ],
)
def test_a_reservoir_that_pytorch_s_side_does_not_know_is_refused(known, line, run, tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, known, ("one", "two"))
    with pytest.raises(InputError, match=f"^{line}$"):
        export(run, tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []


def test_a_family_that_pytorch_s_side_does_not_know_is_refused():
    model = SimpleNamespace(config=SimpleNamespace(family="recent_tokens"))
    line = "^model.family is recent_tokens: it cannot be exported yet; esn, jaeger, lstm, gpt2 and deep_readout can$"
    with pytest.raises(InputError, match=line):
        tensors.tensors_of(model, 10)


def test_a_tokenizer_of_another_pattern_is_refused():
    line = "^tokenizer other: its pattern cannot be exported; only GPT-2's and that of words can$"
    with pytest.raises(InputError, match=line):
        tokenizer_files(Tokenizer("other", r"\w+", bpe().ranks), pad_is_eos=False)


def test_a_word_that_is_spelt_as_a_special_token_is_refused():
    """Its id would be taken for that of the special token."""
    own = esnlm.tokenizer("words", ["<|endoftext|> the cats sleep."])
    with pytest.raises(InputError, match="is one of its words, which transformers would take for a special token"):
        tokenizer_files(own, pad_is_eos=False)


def test_a_full_disk_leaves_nothing(run, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(numpy_of, "save_file", refuse)
    line = f"^{tmp_path}/hf/model.safetensors: cannot be written: No space left on device; choose another folder with --out$"
    with pytest.raises(InputError, match=line):
        export(run, tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        InputError, match="^exporting a model needs safetensors and tokenizers: pip install 'esnlm\\[hf\\]'$"
    ):
        export(run, tmp_path / "hf")


# ---- the tokenizer ----


def fast_of(tokenizer, tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("tokenizer") / "run", [], tokenizer)
    export(run, run.parent / "hf")
    return tokenizers.Tokenizer.from_file(str(run.parent / "hf" / "tokenizer.json"))


@pytest.fixture(scope="module", params=["bpe", "words", "gpt2"])
def pair(request, tmp_path_factory):
    """A tokenizer of esnlm and what was exported of it."""
    if request.param == "gpt2":
        own = load_tokenizer(request.getfixturevalue("data") / "gpt2_bpe")
    else:
        own = {"bpe": bpe, "words": words}[request.param]()
    return own, fast_of(own, tmp_path_factory)


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
    "\u00a0\u2003\u0085a",
]
ODD += [
    "中文 한국어 العربية",
    "e\u0301 \U0001f600\u200d",
    "the thethe  the.the",
    "The cats' sleeps!?",
    "\x00\x1c\x1d",
    '( "a" )',
]


@pytest.mark.parametrize("text", [*SENTENCES, *ODD])
def test_odd_texts_have_the_same_ids(text, pair):
    own, fast = pair
    assert fast.encode(text, add_special_tokens=False).ids == own.encode(text)


@given(st.one_of(st.text(), st.text("aeht scT.'\n 1=é"), st.text("the cats")))
@settings(max_examples=300, deadline=None)
def test_any_text_has_the_same_ids_and_comes_back(pair, text):
    own, fast = pair
    assume("<|pad|>" not in text and "<|endoftext|>" not in text)  # docs/export.md: these are read as tokens
    ids = own.encode(text)
    assert fast.encode(text, add_special_tokens=False).ids == ids
    assert fast.decode(ids) == own.decode(ids)


def test_bos_is_first_where_special_tokens_are_asked_for(pair):
    own, fast = pair
    ids = own.encode("The cats")
    assert fast.encode("The cats").ids == [own.bos, *ids]
    assert fast.encode("The cats", " sleep").ids == [own.bos, *ids, own.bos, *own.encode(" sleep")]
    assert fast.encode("The cats<|endoftext|>").ids == [own.bos, *ids, own.eos]
    assert fast.get_vocab()["<|pad|>"] == own.vocab_size and fast.get_vocab()["<|endoftext|>"] == own.eos
    text, found = "The cats sleep.", fast.encode("The cats sleep.")
    assert "".join(text[start:end] for start, end in found.offsets) == text and found.offsets[0] == (0, 0)


# ---- the card ----


def test_the_card_has_data_words_scores_and_settings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(
        "run: trained\ndata: {kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}\n"
        "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}\ntraining: {checkpoint_words: [100]}\n"
    )
    assert train_run(config_io.read("small.yaml")) == 0
    export("trained", tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["esnlm", "echo-state-network"],
    }
    summary = json.loads((tmp_path / "trained" / "summary.json").read_text())
    report = json.loads((tmp_path / "trained" / "evaluation" / "blimp-paper.json").read_text())
    assert f"| words read | {summary['words']:,} |" in card
    assert f"| validation loss, nats per token | {summary['val_nll']:.4f} |" in card
    assert summary["data_sha256"]["train"] in card and "kind grammar, sentences 40" in card
    accuracy = report["overall"]["accuracy"]
    assert "blimp-paper, scoring paper" in card and (accuracy is None or f"{accuracy:.2f} %" in card)
    experiment = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert experiment["model"]["reservoir"]["state_size"] == 16 and experiment["seed"] == 0
    # A report of another run of this name and step is none of this model.
    report["config_sha256"] = "0" * 64
    (tmp_path / "trained" / "evaluation" / "blimp-paper.json").write_text(json.dumps(report | {"sha256": seal(report)}))
    export("trained", tmp_path / "hf", overwrite=True)
    assert "blimp-paper" not in (tmp_path / "hf" / "README.md").read_text()
    # An earlier checkpoint has its own words, and neither the losses nor the scores of the last one.
    export_all("trained", tmp_path / "all")
    (early,) = (path for path in (tmp_path / "all").iterdir() if path.name != "main")
    card = (early / "README.md").read_text()
    assert "| words read |" in card and "validation loss" not in card and "blimp-paper" not in card
    # The words of a run that goes on from another one are those since then.
    assert train_run(config_io.read("small.yaml", ["--run", "more", "--parent.run", "trained"])) == 0
    export("more", tmp_path / "more_hf")
    line = f"| goes on from | trained, step {summary['step']}; words and epochs are those since then |"
    assert line in (tmp_path / "more_hf" / "README.md").read_text()
    export_all("more", tmp_path / "more_all")
    assert f"more goes on from trained, step {summary['step']}: its words, and chck_1M" in capsys.readouterr().err
