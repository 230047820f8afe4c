"""A GPT-2 read from a folder computes what transformers computes, or is refused in one line that
says why."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import tokenizers
from flax import nnx, traverse_util

from esnlm.base.errors import InputError
from esnlm.models import gpt2, huggingface
from tests.models.running import layers_of
from tests.models.small_gpt2 import CONFIG, CONFIG_JSON, TOKENS, V, random_weights, save, write

EPSILON = float(np.finfo(np.float32).eps)
TEXTS = ["the cat is sleeping", " The cats sleep at a thing.", "déjà vu, 中文\n\t", ""]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path)
    return tmp_path


def arrays_of(model):
    return traverse_util.flatten_dict(model.params, sep=".")


# ---- against transformers ----


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    write(folder)
    return folder


@pytest.fixture(scope="module")
def ours(published):
    return huggingface.read_gpt2(published)[1]


def in_transformers(folder):
    """Returns transformers' model, without dropout."""
    import transformers

    return transformers.GPT2LMHeadModel.from_pretrained(folder).eval()


SENTENCES = np.random.default_rng(1).integers(0, V, (4, 40))
POSITIONS = np.tile(np.arange(39, dtype=np.int32), (4, 1))


def nll(model, keys=None):
    """Logits (4, 39, V), and -log p of each token after the first, (4, 39), nats."""
    logits = (
        model.hidden_states(SENTENCES[:, :-1], POSITIONS, keys)
        @ model.readout_arrays(model.params)["w"].T
    )
    return logits, -jnp.take_along_axis(jax.nn.log_softmax(logits), SENTENCES[:, 1:, None], axis=2)[
        ..., 0
    ]


def transformers_logits(folder, weights, sentences):
    import torch

    with torch.no_grad():
        logits = in_transformers(folder)(torch.tensor(sentences[:, :-1])).logits
        log_probs = (
            torch.log_softmax(logits, -1)
            .gather(2, torch.tensor(sentences[:, 1:, None]))[..., 0]
            .sum(1)
        )
    return {"logits": logits, "log_probs": log_probs}


def test_logits_and_log_probabilities_are_transformers_s(peer, published, ours):
    logits, each = nll(ours)
    expected = peer("gpt2-logits", transformers_logits, published, random_weights(), SENTENCES)
    assert expected["logits"].std() > 1
    np.testing.assert_allclose(peer.sample(logits), expected["logits"], atol=1e-4)
    np.testing.assert_allclose(-each.sum(1), expected["log_probs"], atol=1e-3)


def transformers_layers(folder, weights, sentences):
    """The hidden states of all layers, of which the last has passed the last norm."""
    import torch

    with torch.no_grad():
        output = in_transformers(folder)(torch.tensor(sentences), output_hidden_states=True)
    *before, last = output.hidden_states
    names = ["embedding", *(f"layer{i}" for i in range(CONFIG.layers - 1))]
    return dict(zip(names, before, strict=True)) | {"features": last}


def test_layers_are_the_hidden_states_of_transformers(peer, published, ours):
    expected = peer("gpt2-layers", transformers_layers, published, random_weights(), SENTENCES)
    found = layers_of(ours, list(SENTENCES))
    assert found[0].keys() - expected.keys() == {f"layer{CONFIG.layers - 1}"}
    for name, states in expected.items():
        each = peer.sample([layers[name] for layers in found])
        np.testing.assert_allclose(each, states, atol=1e-4, err_msg=name)


def torch_gradient(folder, weights, sentences):
    """Of the mean NLL in every array, in float64; the arrays of the layers are stacked."""
    import torch

    exact = in_transformers(folder).double()
    logits = exact(torch.tensor(sentences[:, :-1])).logits
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(sentences[:, 1:]).flatten()
    ).backward()
    of = {
        name.removeprefix("transformer."): parameter.grad.numpy()
        for name, parameter in exact.named_parameters()
    }
    return {
        name: np.stack([of[f"h.{i}.{name[2:]}"] for i in range(CONFIG.layers)])
        if name.startswith("h.")
        else of[name]
        for name in gpt2.shapes(CONFIG, V)
    }


def test_gradients_are_torch_s(peer, published, ours):
    graph, state = nnx.split(ours)
    gradient = jax.jit(jax.grad(lambda state: nll(nnx.merge(graph, state))[1].mean()))(state)
    gradient = traverse_util.flatten_dict(nnx.to_pure_dict(gradient), sep=".")

    expected = peer("gpt2-gradient", torch_gradient, published, random_weights(), SENTENCES)
    assert gradient.keys() == expected.keys()
    # 6 products a layer of up to 4 * width terms, forwards, and twice as many backwards; see
    # test_gpt2.py.
    tolerance = 3 * EPSILON * 6 * CONFIG.layers * np.sqrt(4 * CONFIG.width)
    for name, array in gradient.items():
        found, wanted = peer.sample(array), expected[name]
        assert np.linalg.norm(found - wanted) < tolerance * np.linalg.norm(wanted), name


RATE, DRAWS = 0.3, 1000


def torch_dropout(folder, weights, sentences):
    """Mean and variance of each token's NLL over draws of dropout's masks."""
    import torch

    noisy = in_transformers(folder).train()
    for module in noisy.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = RATE
    torch.manual_seed(0)
    with torch.no_grad():
        targets = torch.tensor(sentences[:, 1:])
        logits = (noisy(torch.tensor(sentences[:, :-1])).logits for _ in range(DRAWS))
        each = np.array(
            [
                torch.nn.functional.cross_entropy(one.mT, targets, reduction="none").numpy()
                for one in logits
            ]
        )
    return {"mean": each.mean(0), "variance": each.var(0)}


@pytest.mark.nightly
def test_dropout_does_what_torch_s_does(peer, published, ours):
    """To the mean NLL of each token over 1,000 draws of the masks. (One site forgotten shows.)"""
    expected = peer("gpt2-dropout", torch_dropout, published, random_weights(), SENTENCES)
    model = gpt2.GPT2(dataclasses.replace(CONFIG, dropout=RATE), ours.params)
    each = jax.jit(lambda key: nll(model, jax.random.split(key, POSITIONS.shape))[1])
    # (DRAWS, 4, 39)
    found = np.array([each(key) for key in jax.random.split(jax.random.key(0), DRAWS)])

    error = np.sqrt((found.var(0) + expected["variance"]) / DRAWS)
    assert np.median(np.abs(found.mean(0) - nll(ours)[1]) / error) > 5  # dropout matters
    assert (np.abs(found.mean(0) - expected["mean"]) < 5 * error).all()


def transformers_tokens(folder, texts):
    import transformers

    tokenizer = transformers.GPT2Tokenizer.from_pretrained(folder)
    ids = {str(i): np.array(tokenizer(text)["input_ids"], int) for i, text in enumerate(texts)}
    return ids | {"end": tokenizer("<|endoftext|>")["input_ids"]}


def test_tokens_are_transformers_s(peer, published):
    expected, tokenizer = (
        peer("gpt2-tokens", transformers_tokens, published, TEXTS),
        huggingface.read_gpt2(published)[2],
    )
    for i, text in enumerate(TEXTS):
        assert tokenizer.encode(text) == expected[str(i)].tolist()
    assert expected["end"].tolist() == [tokenizer.eos]


def save_with_transformers(folder, head, out):
    """Saves a model, and its tokenizer as one tokenizer.json; returns the texts, and the keys of
    the weights."""
    import transformers

    model = in_transformers(folder)
    (model if head else model.transformer).save_pretrained(out)
    transformers.GPT2Tokenizer.from_pretrained(folder).save_pretrained(out)
    assert not (out / "vocab.json").exists()
    texts = {name: (out / name).read_text("utf-8") for name in ("config.json", "tokenizer.json")}
    return texts | {"keys": sorted(safetensors.numpy.load_file(out / "model.safetensors"))}


@pytest.mark.parametrize("head", [True, False], ids=["with its head", "without its head"])
def test_what_transformers_saves_is_read(peer, published, tmp_path, head):
    """Without the head, the keys have no prefix."""
    said = peer(f"gpt2-files-head-{head}", save_with_transformers, published, head, tmp_path)
    if not peer.live:
        for name in ("config.json", "tokenizer.json"):
            (tmp_path / name).write_text(str(said[name]), "utf-8")
        weights = random_weights("transformer." if head else "")
        save(tmp_path, {key: weights[key] for key in said["keys"].tolist()})
    (config, model, tokenizer), (_, same_model, same) = map(
        huggingface.read_gpt2, (tmp_path, published)
    )
    assert config == CONFIG and tokenizer.sha256 == same.sha256
    for name, array in arrays_of(model).items():
        np.testing.assert_array_equal(array, arrays_of(same_model)[name])


# ---- what is read ----


def test_a_folder_gives_configuration_model_and_tokenizer(folder):
    config, model, tokenizer = huggingface.read_gpt2(folder)
    assert config == model.config == CONFIG
    assert tokenizer.vocab_size == V
    assert tokenizer.encode("the cat") == [257, 261]
    arrays, weights = arrays_of(model), random_weights()
    assert {name: array.shape for name, array in arrays.items()} == gpt2.shapes(CONFIG, V)
    np.testing.assert_array_equal(arrays["wte.weight"], weights["transformer.wte.weight"])
    np.testing.assert_array_equal(
        arrays["h.mlp.c_fc.weight"][2], weights["transformer.h.2.mlp.c_fc.weight"]
    )


def test_halves_become_float32(folder):
    weights = {key: array.astype(jnp.bfloat16) for key, array in random_weights().items()}
    save(folder, weights)
    embedding = huggingface.read_gpt2(folder)[1].params["wte"]["weight"]
    assert embedding.dtype == np.float32
    np.testing.assert_array_equal(embedding, weights["transformer.wte.weight"].astype(np.float32))


# ---- what is refused ----


def refused(folder, named):
    with pytest.raises(InputError, match=named) as caught:
        huggingface.read_gpt2(folder)
    assert str(caught.value).startswith(f"{folder}") and "\n" not in str(caught.value)


BIAS, ONE = "transformer.h.1.mlp.c_fc.bias", np.ones(1, np.float32)


@pytest.mark.parametrize(
    "change, named",
    [
        ({BIAS: None}, BIAS),
        ({"score.weight": ONE}, "score.weight"),
        ({BIAS: np.zeros(255, np.float32)}, BIAS),
        ({"lm_head.weight": np.zeros((V, 64), np.float32)}, "tie_word_embeddings"),
    ],
)
def test_weights_that_do_not_fit_are_refused(folder, change, named):
    weights = random_weights() | change
    save(folder, {key: array for key, array in weights.items() if array is not None})
    refused(folder, f"model.safetensors.*{named}")


def as_tokenizer_json(folder):
    """What the folder's vocab.json and merges.txt say, as `tokenizers` saves it."""
    bpe = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    )
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return json.loads(bpe.to_str())


def test_a_vocabulary_in_another_order_has_the_rows_of_its_ids(folder):
    """Special tokens first, other names of them, and rows behind the last token, as of a vocabulary
    that was padded."""
    before = huggingface.read_gpt2(folder)
    tokens = ["<s>", "</s>", *(token for token in TOKENS if token != "<|endoftext|>")]
    (folder / "vocab.json").write_text(
        json.dumps({token: i for i, token in enumerate(tokens)}), "utf-8"
    )
    (folder / "config.json").write_text(json.dumps(CONFIG_JSON | {"vocab_size": V + 3}))
    weights = random_weights()
    table = weights["transformer.wte.weight"]
    weights["transformer.wte.weight"] = np.concatenate([table[[-1, -1]], table[:-1], table[:2]])
    save(folder, weights)
    _, model, tokenizer = huggingface.read_gpt2(folder)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.vocab_size) == (0, 1, V + 3)
    ids = tokenizer.encode("the cat sleeps")
    assert ids == [i + 2 for i in before[2].encode("the cat sleeps")]
    rows = model.params["wte"]["weight"][np.array(ids)]
    np.testing.assert_array_equal(rows, before[1].params["wte"]["weight"][np.array(ids) - 2])


def test_rules_of_a_tokenizer_beside_its_merges_are_not_overlooked(folder):
    """transformers follows tokenizer.json and tokenizer_config.json, though vocab.json and
    merges.txt are there."""
    tree, whole, settings = (
        as_tokenizer_json(folder),
        folder / "tokenizer.json",
        folder / "tokenizer_config.json",
    )
    whole.write_text(json.dumps(tree))
    settings.write_text(json.dumps({"add_prefix_space": False}))
    assert huggingface.read_gpt2(folder)[2].encode("the cat") == [257, 261]
    settings.write_text(json.dumps({"add_prefix_space": True}))
    assert huggingface.read_gpt2(folder)[2].encode("the cat") == [258, 261]
    settings.unlink()
    a, b = (tree["model"]["vocab"][letter] for letter in "ab")
    whole.write_text(
        json.dumps(
            tree | {"model": tree["model"] | {"vocab": tree["model"]["vocab"] | {"a": b, "b": a}}}
        )
    )
    assert huggingface.read_gpt2(folder)[2].encode("a") == [b]
