"""Text comes from the model's own probabilities, whatever way its features are made."""

from functools import cache

import jax
import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.evaluation.generation import (
    TokenReader,
    choose,
    generate_each,
    read_on_device,
    read_on_host,
)
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.lstm import LstmConfig
from esnlm.models.trunk import GatedMlpConfig, RecentTokensConfig, TrunkConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import config

V, EOS = 20, 19
MODELS = {
    "esn": EchoStateConfig(
        reservoir=ReservoirConfig(state_size=30, mean_degree=5), readout=ReadoutConfig(rank=None)
    ),
    "lstm": LstmConfig(width=12),
    "deep readout": DeepReadoutConfig(
        reservoir=ReservoirConfig(state_size=30, mean_degree=5),
        readout=TrunkConfig(
            rank=8,
            recent_tokens=RecentTokensConfig(count=2, width=6),
            gated_mlp=GatedMlpConfig(blocks=1, width=12),
        ),
    ),
    "gpt2": GPT2Config(layers=2, heads=2, width=12, positions=40, initializer_range=0.5),
}
COMPUTE = config.ComputeConfig(kernel="csr", batch_slots=8, window_tokens=64)


@cache
def model(name):
    described = MODELS[name]
    return described, described.initialize(V, 0, described.initialize_frozen(V, 0)[0])


def reader(name, slots):
    described, built = model(name.removesuffix(" on the host"))
    readout = built.readout_arrays(built.params)
    if name.endswith("on the host"):
        return read_on_host(built.host_layers(), jax.tree.map(np.asarray, readout))
    return read_on_device(built.for_device(COMPUTE).reader(slots, 40), readout, "float32")


@cache
def stream(name):
    return model(name)[1].for_device(COMPUTE).stream(COMPUTE)


def whole(name, ids):
    """Logits after the last of ids, from all of them at once."""
    described, built = model(name)
    buffer, rows = stream(name).read([ids])
    readout = built.readout_arrays(built.params)
    return np.asarray(buffer)[rows[0][-1]] @ np.asarray(readout["w"]).T + np.asarray(
        readout.get("bias", 0.0)
    )


def sample(name, **options):
    count = options.pop("count", 1)
    settings = {
        "length": 12,
        "temperature": 1.0,
        "top_k": None,
        "seed": 0,
    } | options
    return generate_each(
        reader(name, count), [np.array([EOS, 3, 5], np.int32)] * count, EOS, **settings
    )


@pytest.mark.parametrize(
    "name",
    [
        "esn",
        "esn on the host",
        "lstm",
        pytest.param("deep readout", marks=pytest.mark.nightly),
        "gpt2",
    ],
)
def test_at_temperature_zero_each_token_is_the_most_probable(name):
    (ids,) = sample(name, temperature=0, length=3)
    read, model_name = [EOS, 3, 5], name.removesuffix(" on the host")
    for token in ids:
        assert token == whole(model_name, np.array(read, np.int32)).argmax()
        read.append(token)
    assert len(ids) == 3 or whole(model_name, np.array(read, np.int32)).argmax() == EOS


@pytest.mark.parametrize("name", ["esn", "esn on the host"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_model_is_named_in_one_error(name, value):
    features, logits = reader(name, 1)
    broken = TokenReader(lambda tokens: value * features(tokens), logits)
    with pytest.raises(InputError, match="logits are not finite after 0 tokens: it has diverged"):
        generate_each(broken, [np.array([EOS])], EOS, length=3, temperature=1.0, top_k=None, seed=0)


def test_the_first_token_has_the_model_s_distribution():
    drawn = sample("esn", count=4000, length=1)
    found = np.bincount([ids[0] if len(ids) else EOS for ids in drawn], minlength=V) / 4000
    logits = whole("esn", np.array([EOS, 3, 5], np.int32)).astype(np.float64)
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    # five standard errors
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / 4000)).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1e-300])
def test_a_choice_is_that_of_numpy(temperature):
    rng, own, other = (np.random.default_rng(seed) for seed in (0, 1, 1))
    for size in rng.integers(1, 400, 50):
        logits = rng.normal(scale=3, size=size)
        with np.errstate(over="ignore"):
            p = np.exp((logits - logits.max()) / temperature)
        assert choose(logits, temperature, None, own) == other.choice(size, p=p / p.sum())
    assert own.random() == other.random(), "as many random numbers are used"


def test_the_k_most_probable_keep_their_proportions():
    """Of probabilities 0.1, 0.4, 0.2 and 0.3 the three largest are left: 4, 2 and 3 of 9."""
    rng, expected = np.random.default_rng(0), np.array([0, 4, 2, 3]) / 9
    drawn = [choose(np.log([0.1, 0.4, 0.2, 0.3]), 1.0, 3, rng) for _ in range(4000)]
    found = np.bincount(drawn, minlength=4) / 4000
    # five standard errors
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_the_same_seed_gives_the_same_text_and_no_text_goes_on_after_eos():
    one, two, other = sample("esn", count=5), sample("esn", count=5), sample("esn", count=5, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert not any(EOS in ids for ids in one)


@pytest.mark.parametrize("name", ["esn", pytest.param("gpt2", marks=pytest.mark.nightly)])
def test_how_many_continuations_there_are_changes_none_of_them(name):
    """Those of a smaller count are the first ones of a larger one, and no two come from the same
    random numbers."""
    five = sample(name, count=5, temperature=0.8)
    two = sample(name, count=2, temperature=0.8)
    assert all(np.array_equal(a, b) for a, b in zip(two, five, strict=False)) and len(two) == 2
    assert len({tuple(ids) for ids in five}) > 1


@pytest.mark.parametrize("name", ["esn", "gpt2"])
def test_prompts_of_several_lengths_are_continued_as_each_would_be_alone(name):
    prompts = [np.array(ids, np.int32) for ids in ([EOS, 3, 5], [EOS], [EOS, 7, 2, 9, 11], [4, 4])]
    settings = {"length": 6, "temperature": 0, "top_k": None, "seed": 0}
    together = generate_each(
        reader(name, len(prompts)),
        prompts,
        EOS,
        numbers=range(4),
        is_finished=lambda ids: False,
        **settings,
    )
    for prompt, ids in zip(prompts, together, strict=True):
        (alone,) = generate_each(reader(name, 1), [prompt], EOS, **settings)
        assert ids == alone
