"""Least mean squares: the delta rule, online, over sentences that are read side by side.

    W_out(t + 1) = W_out(t) + mu / B * sum_k e_k(t) r_k(t)^T,    e_k(t) = d_k(t) - y_k(t),    y_k(t) = W_out(t) r_k(t)

(S3), one update a time step, over the B sentences k; d is the one-hot next token and r the features. With `intercept` a 1 is
appended to r [ours]. B sentences are always under way, for a new one begins in a slot as soon as one ends.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.errors import InputError
from esnlm.ops.matmul import matmul
from esnlm.regression import calibration
from esnlm.regression.calibration import HeldOut, linear_scores
from esnlm.regression.ridge import add_by_target, blocks


@dataclass(frozen=True)
class LmsConfig:
    """The delta rule of S3."""

    kind: str = "lms"
    epochs: int = 1
    batch_size: int = 32  # B, sentences side by side
    learning_rate: float = 0.01  # mu
    intercept: bool = True  # learn one for each token, beside W_out r; S3 has none
    log_probs: str = (
        "calibrated"  # from linear scores: calibrated or softmax (regression/calibration.py); S3 takes softmax
    )
    held_out_tokens: int = 4096  # of training text, left out of it, that calibrate
    checkpoint_every: int = 50  # windows of text

    def check(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"training.{name} is {getattr(self, name)}: it must be at least 1")
        if not 0 < self.learning_rate < np.inf:
            raise InputError(f"training.learning_rate is {self.learning_rate}: it must be above 0")
        calibration.check(self)


def start(config: LmsConfig, features: int, vocab_size: int) -> dict:
    """W_out(0) = 0: {"w" (V, N), "bias" (V,)} float32; and "cross" (V, N), "counts" (V,), to know each token's mean features."""
    weights = {"w": np.zeros((vocab_size, features), np.float32), "bias": np.zeros(vocab_size, np.float32)}
    return weights | {"cross": np.zeros((vocab_size, features)), "counts": np.zeros(vocab_size)}


def side_by_side(lengths: list[int], slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each token of some sentences is read: each sentence, in order, begins in the slot that is free first.

    Args:
        lengths: tokens of each sentence.

    Returns:
        (steps, slots): the time step and the slot of every token of all sentences, (tokens,) each.
    """
    free, begins, slot_of = np.zeros(slots, np.int64), [], []
    for length in lengths:
        slot = int(free.argmin())
        begins.append(free[slot])
        slot_of.append(slot)
        free[slot] += length
    return np.concatenate(
        [begin + np.arange(length) for begin, length in zip(begins, lengths, strict=True)]
    ), np.repeat(slot_of, lengths)


def add(
    config: LmsConfig, sums: dict, buffer: jax.Array, rows: list[np.ndarray], targets: np.ndarray, precision: str
) -> int:
    """Updates W_out with sentences.

    Args:
        buffer: features, (.., N).
        rows: of the features of each sentence, one array a sentence.
        targets: the token that follows each, of all sentences one after another.

    Returns:
        The updates that this was, one a time step.
    """
    step, slot = side_by_side([len(row) for row in rows], config.batch_size)
    steps = int(step.max()) + 1
    shape = 1 << (steps - 1).bit_length(), config.batch_size  # few shapes, so few compilations
    laid_rows, laid_targets = np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
    laid_rows[step, slot], laid_targets[step, slot] = np.concatenate(rows), targets
    rates = np.array([1, config.intercept], np.float32) * np.float32(config.learning_rate / config.batch_size)
    sums["w"], sums["bias"] = run(
        sums["w"], sums["bias"], buffer, laid_rows, laid_targets, steps, rates, precision=precision
    )
    host, row = np.asarray(buffer), np.concatenate(rows)
    for part in blocks(len(row), host.shape[1]):
        add_by_target(sums["cross"], host[row[part]].astype(np.float64), targets[part])
    sums["counts"] += np.bincount(targets, minlength=len(sums["counts"]))
    return steps


@partial(jax.jit, static_argnames="precision", donate_argnames=("w", "bias"))
def run(w, bias, buffer, rows, targets, steps, rates, *, precision: str) -> tuple[jax.Array, jax.Array]:
    """The time steps of features that lie side by side.

    Args:
        w, bias: W_out (V, N), (V,), overwritten.
        buffer: features, (.., N).
        rows: of each step and slot, (T, B) int32; -1 where a slot is idle.
        targets: (T, B) int32.
        steps: how many of the T to run.
        rates: mu / B, of w and of bias; the latter 0 where there is no intercept.
    """

    def step(t, carry):
        w, bias = carry
        running = (rows[t] >= 0)[:, None]
        r = jnp.where(running, buffer[rows[t]], 0)  # (B, N)
        y = matmul(r, w, (1, 1), precision) + bias  # (B, V)
        e = jnp.where(running, (-y).at[jnp.arange(len(r)), targets[t]].add(1), 0)
        return w + rates[0] * matmul(e, r, (0, 0), precision), bias + rates[1] * e.sum(0)

    return lax.fori_loop(0, steps, step, (w, bias))


def make(config: LmsConfig, rank: None, sums: dict, held_out: HeldOut, log_p: np.ndarray) -> tuple[dict, dict]:
    """The readout of full rank, and a record of its calibration: as ridge.make has them."""
    w, intercept = np.asarray(sums["w"]), np.asarray(sums["bias"], np.float64)
    scores = linear_scores(w, intercept, sums["cross"], sums["counts"])
    return calibration.calibrate(config.log_probs, scores, held_out, log_p)


def memory(features: int, vocab_size: int, rank: None) -> int:
    """Bytes that are needed at once, at most: W, its successor, its change and the readout; sums of features in float64."""
    return (4 * 4 + 8) * vocab_size * features


def flops(features: int, vocab_size: int, tokens: int) -> int:
    """Of the regression, in matrix products: y, and W_out's change."""
    return 4 * features * vocab_size * tokens
