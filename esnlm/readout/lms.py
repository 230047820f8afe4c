"""Least mean squares: the online delta rule over sentences read side by side.

    W_out(t + 1) = W_out(t) + mu / B * sum_k e_k(t) r_k(t)^T
    e_k(t) = d_k(t) - y_k(t),    y_k(t) = W_out(t) r_k(t)

(Fujimaki 2026). One time step makes one update, over the B sentences k; d is the one-hot next token
and r the features. With `intercept` a 1 is appended to r [ours]. B sentences are always being read,
since a new one begins in a batch slot as soon as one ends there. To make the result independent of
the windows, time steps that may include a sentence of the next window wait for it.
"""

from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.base.settings import Count, Positive, settings
from esnlm.features.batching import padded_size
from esnlm.machine.matmul import matmul
from esnlm.readout.base import Accumulators, Fitter, Window, add_by_target, row_blocks
from esnlm.readout.calibration import Fitted, HeldOut, calibrate, linear_scores


@settings
class LeastMeanSquares(Fitter):
    """The delta rule (Fujimaki 2026)."""

    kind: str = "lms"
    epochs: Count = 1  # passes over the training text
    batch_size: Count = 32  # sentences read side by side [B]
    learning_rate: Positive = 0.01  # step size [mu]
    intercept: bool = True  # learn an intercept for each token, too; the slides have none

    description: ClassVar[str] = "by least mean squares"
    computed_by_host: ClassVar[bool] = False

    def start(self, features: int, vocab_size: int) -> Accumulators:
        """Returns W_out(0) = 0, sums of the features before each token, and no waiting features."""
        return {
            "w": np.zeros((vocab_size, features), np.float32),
            "bias": np.zeros(vocab_size, np.float32),
            "cross": np.zeros((vocab_size, features)),
            "counts": np.zeros(vocab_size),
            "waiting": np.zeros((0, features), np.float32),
            "waiting_for": np.zeros((0, 3), np.int32),  # the time step, slot and target of each
        }

    def sums_size(self, features: int, vocab_size: int) -> int:
        return (4 + 8) * vocab_size * (features + 1)

    def accumulate(self, accumulators: Accumulators, window: Window, precision: str) -> int:
        """Updates W_out at each time step that no sentence of the next window can be in."""
        features, rows, targets = window
        waiting_for = accumulators["waiting_for"]
        free = np.zeros(self.batch_size, np.int64)
        np.maximum.at(free, waiting_for[:, 1], waiting_for[:, 0] + 1)
        step, slot = side_by_side([len(row) for row in rows], free)
        steps, row = int(free.min()), np.concatenate(rows)
        places = np.column_stack([step, slot, targets]).astype(np.int32)
        self._run(accumulators, features, row, places, steps, precision)
        host = np.asarray(features)
        for part in row_blocks(len(row), host.shape[1]):
            add_by_target(accumulators["cross"], host[row[part]].astype(np.float64), targets[part])
        accumulators["counts"] += np.bincount(targets, minlength=len(accumulators["counts"]))
        return steps

    def finish(self, accumulators: Accumulators, precision: str) -> int:
        waiting, waiting_for = accumulators["waiting"], accumulators["waiting_for"]
        steps = int(waiting_for[:, 0].max(initial=-1)) + 1
        none, nowhere = np.zeros(0, np.int64), np.zeros((0, 3), np.int32)
        self._run(accumulators, jnp.asarray(waiting[:0]), none, nowhere, steps, precision)
        return steps

    def _run(
        self,
        accumulators: Accumulators,
        features: jax.Array | np.ndarray,
        row: np.ndarray,
        places: np.ndarray,
        steps: int,
        precision: str,
    ) -> None:
        """Runs time steps over waiting and new tokens; tokens of later steps wait.

        Args:
            features: (rows, F); `row` (n,) is that of each new token.
            places: time step, slot and target of each new token, (n, 3).
        """
        waiting = accumulators["waiting"]
        # padded to few sizes, as each one is compiled
        room = padded_size(max(1, len(waiting)))
        padded = np.pad(waiting, ((0, room - len(waiting)), (0, 0)))
        row = np.concatenate([np.arange(len(waiting)), room + row])
        places = np.concatenate([accumulators["waiting_for"], places])
        now = places[:, 0] < steps
        if steps > 0:
            step, slot, target = places[now].T
            rows = np.full((padded_size(steps), self.batch_size), -1, np.int32)
            targets = np.zeros_like(rows)
            rows[step, slot], targets[step, slot] = row[now], target
            rate = np.float32(self.learning_rate / self.batch_size)
            rates = np.array([1, self.intercept], np.float32) * rate
            weights = accumulators["w"], accumulators["bias"]
            accumulators["w"], accumulators["bias"] = run_delta_rule(
                *weights, padded, features, rows, targets, steps, rates, precision=precision
            )
        late, new = row[~now], np.asarray(features)
        accumulators["waiting"] = np.concatenate(
            [waiting[late[late < room]], new[late[late >= room] - room]]
        )
        accumulators["waiting_for"] = places[~now] - np.array([steps, 0, 0], np.int32)

    def solve(
        self, accumulators: Accumulators, rank: int | None, held_out: HeldOut, log_p: np.ndarray
    ) -> Fitted:
        w, intercept = np.asarray(accumulators["w"]), np.asarray(accumulators["bias"], np.float64)
        scores = linear_scores(w, intercept, accumulators["cross"], accumulators["counts"])
        return calibrate(self.log_probs, scores, held_out, log_p)

    def memory(self, features: int, vocab_size: int, rank: int | None) -> int:
        """Counts W, its successor, its change and the readout in float32, and sums in float64."""
        return self.memory_on_device(features, vocab_size) + 8 * vocab_size * features

    def memory_on_device(self, features: int, vocab_size: int) -> int:
        return 4 * 4 * vocab_size * features


def side_by_side(lengths: list[int], free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the time step and the batch slot of every token of some sentences, (tokens,) each.

    Each sentence, in order, begins in the slot that is free first. `free` (B,) int64 is the first
    free time step of each slot; it is updated in place.
    """
    begins, slot_of = [], []
    for length in lengths:
        slot = int(free.argmin())
        begins.append(free[slot])
        slot_of.append(slot)
        free[slot] += length
    steps = [begin + np.arange(length) for begin, length in zip(begins, lengths, strict=True)]
    return np.concatenate(steps), np.repeat(slot_of, lengths)


@partial(jax.jit, static_argnames="precision", donate_argnames=("w", "bias"))
def run_delta_rule(
    w: jax.Array,
    bias: jax.Array,
    waiting: jax.Array,
    features: jax.Array,
    rows: jax.Array,
    targets: jax.Array,
    steps: int,
    rates: jax.Array,
    *,
    precision: str,
) -> tuple[jax.Array, jax.Array]:
    """Runs time steps of the delta rule over sentences side by side.

    Args:
        w, bias: W_out (V, F) and (V,), overwritten.
        waiting, features: features, (k, F) and (n, F), whose rows are numbered one after another.
        rows: feature row of each step and slot, (T, B) int32; -1 for an idle slot.
        targets: (T, B) int32.
        steps: number of the T steps to run.
        rates: mu / B for w and for bias, (2,); the latter is 0 without an intercept.
    """

    features = jnp.concatenate([waiting, features])

    def step(t: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        w, bias = carry
        running = (rows[t] != -1)[:, None]  # (B, 1)
        r = jnp.where(running, features[rows[t]], 0)  # (B, F)
        y = matmul(r, w, (1, 1), precision) + bias  # (B, V)
        e = jnp.where(running, (-y).at[jnp.arange(len(r)), targets[t]].add(1), 0)
        return w + rates[0] * matmul(e, r, (0, 0), precision), bias + rates[1] * e.sum(0)

    return lax.fori_loop(0, steps, step, (w, bias))
