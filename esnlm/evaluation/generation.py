"""Generation: text from a model, token by token."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from esnlm.errors import InputError
from esnlm.readout import linear


def generate(
    features: Callable[[np.ndarray], jax.Array],
    readout: dict,
    prompt: np.ndarray,
    eos: int,
    *,
    count: int,
    length: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    precision: str,
) -> list[np.ndarray]:
    """Continues a prompt `count` times, side by side.

    Args:
        features: a function from the tokens that each slot reads next, (count,), to the features after them, (count, F).
        readout: the arrays of the readout, for readout/linear.py.
        prompt: ids to begin with, at least one.
        eos: the id that ends a continuation.
        count, length, temperature, top_k, seed: as in `Run.generate`. Continuation i has a random stream of its own, of
            (seed, i), so that it does not depend on how many others stand beside it.
        precision: of the products.

    Returns:
        One int32 array of ids a slot, without prompt and EOS.

    Raises:
        InputError: a logit is not a number, so that nothing can be chosen.
    """
    rngs = [np.random.default_rng((seed, i)) for i in range(count)]
    for token in prompt:
        found = features(np.full(count, token, np.int32))
    chosen, going = np.zeros((count, 0), np.int32), np.ones(count, bool)
    while going.any() and chosen.shape[1] < length:
        logits = np.asarray(_logits(readout, found, precision), np.float64)
        if not np.isfinite(logits.max(axis=1)[going]).all():
            raise InputError(
                f"the model's logits are not finite after {chosen.shape[1]} tokens: it has diverged; try another --step"
            )
        chosen_next = [_choose(row, temperature, top_k, rng) for row, rng in zip(logits, rngs, strict=True)]
        tokens = np.where(going, chosen_next, eos).astype(np.int32)
        going &= tokens != eos
        chosen = np.column_stack([chosen, tokens])
        found = features(tokens)
    return [row[: np.argmax(row == eos)] if (row == eos).any() else row for row in chosen]


@partial(jax.jit, static_argnames="precision")
def _logits(readout: dict, features: jax.Array, precision: str) -> jax.Array:
    return linear.logits(readout, features, precision)


def _choose(logits: np.ndarray, temperature: float, top_k: int | None, rng: np.random.Generator) -> int:
    """Returns the id chosen from logits (V,)."""
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits = np.where(logits >= np.partition(logits, -top_k)[-top_k], logits, -np.inf)
    with np.errstate(over="ignore"):  # A tiny temperature takes all other logits to -inf, and their p to 0.
        p = np.exp((logits - logits.max()) / temperature)
    return int(rng.choice(len(p), p=p / p.sum()))
