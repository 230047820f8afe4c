"""A reservoir on the host, in NumPy and SciPy, for one sequence or a few.

XLA takes four times as long as SciPy to multiply a sparse matrix by one column, and has to compile.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse._sparsetools import csr_matvec

from esnlm.reservoir.arrays import Matrix, as_scipy
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.functions import is_built_in

ACTIVATIONS: dict[str, Callable] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


class HostLayer(NamedTuple):
    """A layer. Arrays are (units, B)."""

    initial_state: np.ndarray  # (N, 1)
    step: Callable  # (state, drive) -> the new state
    output: Callable  # state -> the vector that feeds back and that the readout reads
    w_rec: Callable  # h -> W_rec h
    w_in: Callable  # inputs (D, B), or one token (1,) -> W_in u


class HostRecurrence:
    """The states of B sequences that are read together, one time step per call of `read`.

    Args:
        layers: from `host_layers`.
        slots: B.
        states: of each layer, (N, B), not changed; None: the initial ones.
    """

    def __init__(
        self, layers: list[HostLayer], slots: int = 1, states: list[np.ndarray] | None = None
    ) -> None:
        if states is None:
            states = [np.repeat(layer.initial_state, slots, axis=1) for layer in layers]
        self.layers, self.states = layers, list(states)
        pairs = zip(layers, states, strict=True)
        self.outputs = [np.asarray(layer.output(state)) for layer, state in pairs]

    def read(self, below: np.ndarray) -> list[np.ndarray]:
        """Returns the outputs of the layers, (N, B) each, after inputs (D, B) or a token (1,)."""
        states, outputs = self.states, self.outputs
        for i, (_, step, output, w_rec, w_in) in enumerate(self.layers):
            states[i] = step(states[i], w_rec(outputs[i]) + w_in(below))
            below = outputs[i] = np.asarray(output(states[i]))
        return outputs


def host_layers(
    cell: ReservoirLayer | Stack, dtype: DTypeLike, *, reads_tokens: bool
) -> list[HostLayer]:
    """Returns the layers of a reservoir that is not prepared for a device, in a floating type.

    A first layer that reads tokens must be without an embedding.
    """
    layers = []
    for i, layer in enumerate(cell.layers):
        built_in = is_built_in(layer.activation) and is_built_in(layer.update_rule)
        f = ACTIVATIONS[layer.activation] if built_in else layer.f
        leak: Any = np.asarray(layer.leak[...], dtype)[:, None]
        if built_in and (leak == leak[0]).all():
            leak = leak.item(0)  # fewer operations on arrays
        step: Any = partial(layer.rule.step, leak=leak, f=f, decay=layer.decay)
        output: Any = partial(layer.rule.output, f=f)
        if not built_in:  # registered functions are JAX's
            in_dtype = jax.enable_x64(np.dtype(dtype) == np.float64)
            step, output = (in_dtype(jax.jit(each)) for each in (step, output))
        initial_state = np.zeros((layer.state_size, 1), dtype)
        w_rec = _product(layer.stored_w_rec, dtype)
        read_input = _column if reads_tokens and i == 0 else _product
        w_in = read_input(layer.stored_w_in, dtype)
        layers.append(HostLayer(initial_state, step, output, w_rec, w_in))
    return layers


def _product(matrix: Matrix, dtype: DTypeLike) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function x -> W x, (N, B), for x (D, B)."""
    w: Any = as_scipy(matrix).astype(dtype)
    if isinstance(w, np.ndarray):
        return w.dot
    rows, columns = w.shape

    def multiply(x: np.ndarray) -> np.ndarray:
        if x.shape != (columns, 1):
            return w @ x
        product = np.zeros((rows, 1), dtype)
        # SciPy has no public product without checks. With w @ x, `run` takes 1.4, 1.3 and 1.1 times
        # as long at 100, 500 and 2,000 units with 10 connections each (2,000 time steps).
        csr_matvec(rows, columns, w.indptr, w.indices, w.data, x, product)
        return product

    return multiply


def _column(matrix: Matrix, dtype: DTypeLike) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function from a token (1,) to its column of W, (N, 1)."""
    w: Any = as_scipy(matrix).astype(dtype)
    if isinstance(w, np.ndarray):
        return lambda token: w[:, token]
    w = w.tocsc()

    def column(token: np.ndarray) -> np.ndarray:
        first, end = w.indptr[token[0]], w.indptr[token[0] + 1]
        dense = np.zeros((w.shape[0], 1), dtype)
        dense[w.indices[first:end], 0] = w.data[first:end]
        return dense

    return column
