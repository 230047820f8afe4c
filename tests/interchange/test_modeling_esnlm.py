"""An exported run computes in PyTorch what it computes here, in every way in which transformers
uses it."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import esnlm
from esnlm.interchange.huggingface.export import MODELING, export
from tests.interchange.small_runs import SENTENCES, bpe, logits_of, words, write_run

pytestmark = pytest.mark.usefixtures("pytorch")

TOLERANCE = 1e-4
DENSE = "reservoir.connectivity 0.5"
DEEP = (
    "family deep_readout reservoirs 2 reservoir.state_size 12 reservoir.mean_degree 4"
    " readout.rank 6 readout.normalize true"
    " readout.recent_tokens.count 2 readout.recent_tokens.width 4 readout.recent_tokens.decays"
    " [0.6,0.9] readout.recent_tokens.window 4 readout.ngrams.orders [2,3] readout.ngrams.buckets"
    " 50 readout.ngrams.width 3 readout.ngrams.multiplier 3 readout.gated_mlp.blocks 2"
    " readout.gated_mlp.width 8"
)
# Settings of the section `model`, each with its value behind it.
SETTINGS = {
    "one layer": "",
    "full rank, dense, ReLU": (
        f"readout.rank null {DENSE} reservoir.activation relu reservoir.leak_min 0.8"
    ),
    "two layers": "reservoir.layers 2",
    "dense embedding, two layers, membrane": (
        f"{DENSE} reservoir.embedding 7 reservoir.layers 2 reservoir.update_rule leaky_membrane"
    ),
    "continuous time, dense W_in": (
        'reservoir.continuous {"decay":0.5,"step":0.8,"time_constant":2}'
        " reservoir.input_connectivity 1"
    ),
    "ESN+i, half of W_in": "train_input true reservoir.input_connectivity 0.5",
    "ESN+i, dense, two layers": (
        f"{DENSE} train_input true reservoir.layers 2 reservoir.input_connectivity 1"
    ),
    "LSTM": "family lstm width 12",
    "tied LSTM": "family lstm width 12 tied true",
    "deep readout": DEEP,
    "deep readout, tied": (
        f"{DEEP} reservoirs 1 readout.recent_tokens.tied true readout.recent_tokens.width 6"
    ),
    "deep readout, members of two layers": (
        "family deep_readout reservoirs 2 reservoir.layers 2 reservoir.state_size 12"
        " reservoir.mean_degree 4 reservoir.embedding 7 reservoir.update_rule leaky_membrane"
        " readout.rank 6"
    ),
    "GPT-2": "family gpt2 layers 2 heads 2 width 8",
}
MODELS = {
    name: [word if i % 2 else f"--model.{word}" for i, word in enumerate(text.split())]
    for name, text in SETTINGS.items()
}


@pytest.fixture(scope="module")
def modeling():
    """The module that is shipped, as a module of these tests."""
    spec = importlib.util.spec_from_file_location("modeling_esnlm", MODELING)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def exported(tmp_path_factory, modeling):
    """Returns a function from the name of a model to the run, its folder, its model in PyTorch and
    its tokenizer."""
    import transformers

    made = {}

    def make(name, tokenizer=None):
        key = name, tokenizer
        if key not in made:
            folder = tmp_path_factory.mktemp("export")
            run = write_run(folder / "run", MODELS[name], tokenizer or bpe())
            export(run, folder / "hf")
            if name == "GPT-2":
                model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf").eval()
            elif name.startswith("deep readout"):  # Two files, which transformers puts together.
                kind = transformers.AutoModelForCausalLM
                model = kind.from_pretrained(folder / "hf", trust_remote_code=True).eval()
            else:
                model = modeling.EsnlmForCausalLM.from_pretrained(folder / "hf").eval()
            fast = transformers.PreTrainedTokenizerFast.from_pretrained(folder / "hf")
            made[key] = esnlm.load(run), folder / "hf", model, fast
        return made[key]

    return make


def batch_of(fast, side="right", sentences=SENTENCES):
    fast.padding_side = side
    found = fast(sentences, return_tensors="pt", padding=True)
    fast.padding_side = "right"
    return found


# All parts of these are in the others, one by one.
MIXED = [
    "full rank, dense, ReLU",
    "ESN+i, dense, two layers",
    "deep readout, members of two layers",
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] if name in MIXED else []) for name in MODELS],
)
def test_logits_are_esnlm_s_with_padding_on_either_side(name, exported):
    import torch

    run, _, model, fast = exported(name)
    expected = logits_of(run, SENTENCES)
    for side in ("right", "left"):
        if name == "GPT-2" and side == "left":
            continue  # as with any GPT-2 of transformers, positions would have to be given
        batch = batch_of(fast, side)
        with torch.no_grad():
            logits = model(**batch).logits
        assert logits.shape == (*batch["input_ids"].shape, model.config.vocab_size)
        tokens = logits[..., : run.tokenizer.vocab_size]
        # the token that pads has a logit too, which adds nothing to the sum of probabilities
        if name != "GPT-2":
            assert model.config.vocab_size == len(fast) == run.tokenizer.vocab_size + 1
            assert torch.equal(
                torch.log_softmax(logits, -1)[..., :-1], torch.log_softmax(tokens, -1)
            )
        for row, mask, own in zip(tokens, batch["attention_mask"].bool(), expected, strict=True):
            assert np.ptp(own) > 0.1
            np.testing.assert_allclose(row[mask].numpy(), own, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    "name", ["one layer", "ESN+i, half of W_in", "LSTM", "deep readout", "GPT-2"]
)
def test_ids_outside_the_vocabulary_raise(name, exported):
    """A negative index of a tensor counts from its end, so -1 would read as the last token."""
    import torch

    _, _, model, _ = exported(name)
    for wrong in (-1, -100, model.config.vocab_size):
        with pytest.raises(IndexError):
            model(torch.tensor([[0, wrong]]))


@pytest.mark.parametrize("name", ["two layers", "LSTM", "deep readout", "GPT-2"])
def test_generate_is_greedy_as_esnlm_is(name, exported):
    run, _, model, fast = exported(name)
    prompt = fast("The cats", return_tensors="pt")
    ids = model.generate(**prompt, max_new_tokens=12, do_sample=False)[
        0, prompt["input_ids"].shape[1] :
    ]
    assert [fast.decode(ids, skip_special_tokens=True)] == run.generate(
        "The cats", temperature=0, length=12
    )


@pytest.mark.parametrize("beams", [1, 2])
def test_generate_takes_batches_and_beams(beams, exported):
    """A prompt in a batch is continued as it is alone, with or without a carried state, and beams
    carry the right ones."""
    _, _, model, fast = exported("two layers")
    settings = {"max_new_tokens": 5, "do_sample": False, "num_beams": beams}
    alone = []
    for sentence in SENTENCES[1:3]:
        ids = fast(sentence, return_tensors="pt")
        alone.append(model.generate(**ids, **settings)[0, ids["input_ids"].shape[1] :].tolist())
        found = model.generate(**ids, **settings, use_cache=False)[
            0, ids["input_ids"].shape[1] :
        ].tolist()
        assert found == alone[-1]
    for side in ("left", "right"):
        batch = batch_of(fast, side, SENTENCES[1:3])
        together = model.generate(**batch, **settings)[:, batch["input_ids"].shape[1] :].tolist()
        assert [row[: len(ids)] for row, ids in zip(together, alone, strict=True)] == alone


def test_a_state_is_carried(exported):
    import torch

    _, _, model, fast = exported("two layers")
    ids = fast(SENTENCES[1], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        whole = model(ids).logits
        first = model(ids[:, :5])
        # transformers 5.24 has the first, earlier ones the second
        [name] = {"cache", "past_key_values"} & set(first)
        rest = model(ids[:, 5:], **{name: first[name]}).logits
        assert first[name].get_seq_length() == 5
        assert name not in model(ids, use_cache=False)
        assert isinstance(model(ids, return_dict=False), tuple)
    np.testing.assert_allclose(torch.cat([first.logits, rest], 1), whole, atol=1e-6, rtol=0)
    settings, carried = {"max_new_tokens": 4, "do_sample": False}, {name: model(ids[:, :5])[name]}
    assert torch.equal(model.generate(ids, **settings, **carried), model.generate(ids, **settings))


def test_a_mask_of_each_token_is_taken_where_it_is_causal(exported):
    """BabyLM's fine-tuning gives such a mask to a causal model."""
    import torch

    _, _, model, fast = exported("one layer")
    batch = batch_of(fast)
    mask = batch["attention_mask"]
    causal = mask[:, None] * torch.ones(mask.shape[1], mask.shape[1], dtype=mask.dtype).tril()
    expected = model(**batch).logits
    assert torch.equal(model(batch["input_ids"], attention_mask=causal).logits, expected)
    nothing_pads = causal * mask[:, :, None]  # Tokens that pad may see nothing.
    assert torch.equal(
        model(batch["input_ids"], attention_mask=nothing_pads).logits[mask.bool()],
        expected[mask.bool()],
    )


@pytest.mark.parametrize("name", ["two layers", "deep readout"])
def test_the_states_are_float32_s_where_products_are_cast(name, exported):
    """As a Trainer with bf16=True has it."""
    import torch

    _, _, model, fast = exported(name)
    batch = batch_of(fast)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.model(**batch).last_hidden_state
    assert torch.equal(found, model.model(**batch).last_hidden_state)


@pytest.mark.parametrize("name", ["ESN+i, half of W_in", "deep readout, tied"])
def test_what_is_frozen_is_a_buffer_and_the_rest_learns(name, exported, tmp_path):
    """The loss is that of the predictions; its gradient reaches every parameter; all is saved and
    loaded again."""
    import torch

    run, folder, loaded, fast = exported(name)
    model = type(loaded).from_pretrained(folder)
    names = {key for key, _ in model.named_parameters()}
    assert len(names) + len(dict(model.named_buffers())) == len(model.state_dict())
    assert not any(word in key for key in names for word in ("recurrent", "leak", "cells."))
    assert ("ESN+i" in name) == ("model.cell.layers.0.input.weight" in names)

    batch = batch_of(fast)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    loss = model(**batch, labels=labels).loss
    framed = [
        np.array([run.tokenizer.bos, *run.tokenizer.encode(sentence)], np.int32)
        for sentence in SENTENCES
    ]
    expected = -np.concatenate(run.token_log_probs_of_ids(framed)).mean()
    assert abs(loss.item() - expected) < TOLERANCE
    # What pads is no prediction, and neither is BOS, which may follow it.
    for side in ("right", "left"):
        padded = batch_of(fast, side)
        # another token may pad, too
        padded["input_ids"][padded["attention_mask"] == 0] = fast.eos_token_id
        found = model(**padded, labels=padded["input_ids"]).loss.item()
        assert found == pytest.approx(loss.item(), abs=TOLERANCE)
    loss.backward()
    assert all(
        parameter.grad is not None and bool(parameter.grad.any())
        for parameter in model.parameters()
    )
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.optim.AdamW(model.parameters()).step()
    zeros = before.get("model.cell.layers.0.input.weight", torch.ones(1)) == 0
    if "ESN+i" in name:
        assert not bool(model.state_dict()["model.cell.layers.0.input.weight"][zeros].any())
    assert {
        key for key, value in model.state_dict().items() if not torch.equal(value, before[key])
    } == names

    model.save_pretrained(tmp_path / "again")
    again = type(loaded).from_pretrained(tmp_path / "again").state_dict()
    assert all(torch.equal(value, again[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["ESN+i, half of W_in", "deep readout"])
def test_another_type_is_near(name, exported):
    import torch

    run, folder, model, fast = exported(name)
    other = type(model).from_pretrained(folder).eval().to(torch.bfloat16)
    batch = batch_of(fast)
    with torch.no_grad():
        logits, expected = other(**batch).logits, model(**batch).logits
    assert logits.dtype == torch.bfloat16
    assert float((logits.double() - expected.double()).abs().max()) < 0.2


@pytest.mark.parametrize(
    "name, layers", [("two layers", 3), ("ESN+i, half of W_in", 1), ("deep readout", 1)]
)
def test_the_model_without_logits_gives_the_features(name, layers, exported):
    import torch

    run, folder, loaded, fast = exported(name)
    model = type(loaded).model_class.from_pretrained(folder).eval()
    ids = fast(SENTENCES[0], return_tensors="pt")["input_ids"]
    found = model(ids, output_hidden_states=True)
    assert (
        found.last_hidden_state.shape[-1]
        == model.config.hidden_size
        == run.config.model.feature_size
    )
    # The export reads EOS as the BOS of another sentence.
    states = run.states([SENTENCES[0]])[0][:-1]
    np.testing.assert_allclose(found.last_hidden_state[0].detach(), states, atol=TOLERANCE, rtol=0)
    assert len(found.hidden_states) == layers
    assert torch.equal(found.hidden_states[-1], found.last_hidden_state)
    assert found.last_hidden_state.requires_grad == (not run.config.model.features_are_frozen)


PROGRAM = """
import sys
sys.modules["esnlm"] = None  # whoever imports it fails
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoProcessor, AutoTokenizer
folder, trust = sys.argv[1], {"trust_remote_code": True}
ids = torch.tensor([[int(i) for i in sys.argv[2].split(",")]])
assert AutoConfig.from_pretrained(folder, **trust).hidden_size == AutoModel.from_pretrained(folder, **trust)(ids)[0].shape[-1]
model = AutoModelForCausalLM.from_pretrained(folder, **trust)
assert not model.training
fast = AutoTokenizer.from_pretrained(folder, **trust)
assert type(AutoProcessor.from_pretrained(folder, **trust)) is type(fast)
assert fast("The cats sleep.")["input_ids"] == ids[0].tolist()
assert fast("The cats sleep.", add_special_tokens=False)["input_ids"] == ids[0, 1:].tolist()
assert fast("The cats", return_offsets_mapping=True)["offset_mapping"][0] == (0, 0)
model.save_pretrained(sys.argv[3])
fast.save_pretrained(sys.argv[3])
again = AutoModelForCausalLM.from_pretrained(sys.argv[3], **trust)
assert AutoTokenizer.from_pretrained(sys.argv[3], **trust)("The cats sleep.")["input_ids"] == ids[0].tolist()
assert torch.equal(again(ids).logits, model(ids).logits)
print(model(ids).logits[0, -1].tolist())
"""


@pytest.mark.nightly
def test_it_is_loaded_where_esnlm_is_not_installed(exported, tmp_path):
    run, folder, _, _ = exported("deep readout", words())  # which has both files
    ids = [run.tokenizer.bos, *run.tokenizer.encode("The cats sleep.")]
    arguments = [str(folder), ",".join(map(str, ids)), str(tmp_path / "again")]
    variables = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    found = np.array(json.loads(done.stdout.splitlines()[-1])[: run.tokenizer.vocab_size])
    np.testing.assert_allclose(
        found, logits_of(run, ["The cats sleep."])[0][-1], atol=TOLERANCE, rtol=0
    )
