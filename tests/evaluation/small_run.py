"""A run of a tiny model and a hand-made tokenizer, without a run directory."""

from pathlib import Path

import numpy as np

from esnlm.data.sources import GrammarData, StoreData
from esnlm.data.tokenizer import word_tokenizer
from esnlm.loaded_run import Run
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import config
from tests import oracle

TOKENIZER = word_tokenizer(["The", " cats", " cat", " sleep", " that", " run", "cats", "sleep"])
ESN = EchoStateConfig(
    reservoir=ReservoirConfig(state_size=24, mean_degree=4), readout=ReadoutConfig(rank=None)
)
GPT2 = GPT2Config(layers=2, heads=2, width=12, positions=10, initializer_range=0.5)
OF_SENTENCES = GrammarData()
OF_DOCUMENTS = StoreData(context="document")  # of a model that was trained on whole documents
TOLERANCE = 300 * float(np.finfo(np.float32).eps)  # of products of a few dozen terms in float32


def small_run(model=ESN, tokenizer=TOKENIZER, data=OF_SENTENCES):
    """A run of random weights, large enough that every token has a probability of its own."""
    built = model.initialize(
        tokenizer.vocab_size, 0, model.initialize_frozen(tokenizer.vocab_size, 0)[0]
    )
    if model is ESN:
        readout = built.params["readout"]
        w = np.random.default_rng(0).normal(size=readout["w"].shape).astype(np.float32)
        built = built.with_params({"readout": readout | {"w": w}})
    compute = config.ComputeConfig(kernel="csr", batch_slots=8, window_tokens=64, chunk_tokens=16)
    return Run(
        Path("small"),
        config.Experiment(data=data, model=model, compute=compute),
        0,
        built,
        tokenizer,
    )


def log_distributions(run, ids):
    """log p(. | w_1 .. w_t) for t = 1 .. T - 1 in float64, (T - 1, V), by the oracle."""
    h = oracle.states(*oracle.matrices(run.model.reservoir), ids[:-1])
    return oracle.log_softmax(oracle.logits(run.model.params["readout"], h))


def log_probs(run, ids):
    """log p(w_{t+1} | w_1 .. w_t) in float64, (T - 1,), by the oracle."""
    return log_distributions(run, ids)[np.arange(len(ids) - 1), ids[1:]]
