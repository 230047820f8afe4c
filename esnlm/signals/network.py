"""Jaeger's network for real-valued sequences (Jaeger 2001, as summarised by Ichimura 2019, eq. 1 and 2).

    x(n+1) = (1 - alpha a) x(n) + a f(W_in u(n+1) + W x(n) + W_back y(n))
    y(n+1) = f_out(W_out (u(n+1), x(n+1), y(n)))

At a = alpha = 1 these are the paper's equations. The output is fed back by W_back: the teacher's in training (teacher
forcing), the network's own in `generate`. W_out alone is trained, by ridge regression.

    network = draw(400, inputs=1, leak=0.44, feedback_scale=0.56, output="tanh")
    network = train(network, bias, teacher, washout=1000)
    _, state = run(network, bias, teacher)          # ends where the teacher ends
    found, _ = generate(network, state, 84, bias)   # and goes on by itself

Everything is float64. A network that feeds on its own output is a loop, and the roundings of float32 would be the floor
of its error. A sequence is (T, K), or (T, K, B) for B sequences side by side, each from a state of its own.

The echo state property is defined without feedback only (Ichimura 2019, definition 1). With W_back a spectral radius below
1 is a habit and guarantees nothing.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax

from esnlm.errors import InputError, require, whole_number
from esnlm.regression.solvers import solve_by_svd
from esnlm.reservoir import sparse, weights
from esnlm.reservoir.arrays import as_scipy, bcoo
from esnlm.reservoir.functions import ACTIVATIONS, Activation, require_registered
from esnlm.reservoir.topology import Topology
from esnlm.reservoir.topology.erdos_renyi import ErdosRenyi
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.rng import Stream, check_seed, generator

OUTPUTS = {"identity": lambda o: o, "tanh": jnp.tanh}  # f_out


@dataclass(frozen=True)
class Network:
    """The weights, float64. `draw` makes them, and `dataclasses.replace` puts others in their place."""

    w: scipy.sparse.csr_array  # (N, N)
    w_in: np.ndarray  # (N, K)
    w_back: np.ndarray | None  # (N, L); None: no feedback
    leak: np.ndarray  # a, (N,)
    decay: float  # alpha
    activation: str  # f: tanh or relu
    output: str  # f_out: identity or tanh
    reads: str  # which of u, x and y the readout sees, in this order
    outputs: int  # L
    w_out: np.ndarray | None = None  # (L, as many as it reads); None before `train`

    @property
    def feeds_back(self) -> bool:
        """Whether the next step depends on the output of this one."""
        return self.w_back is not None or "y" in self.reads


class State(NamedTuple):
    """The state of a network: its units, and the output that it is fed next."""

    x: np.ndarray  # (N, B)
    y: np.ndarray  # (L, B)


def draw(
    state_size: int,
    *,
    inputs: int = 0,
    outputs: int = 1,
    topology: Topology | None = None,
    mean_degree: float | None = None,
    spectral_radius: float = 0.9,
    leak: float = 1.0,
    decay: float = 1.0,
    input_scale: float = 1.0,
    feedback_scale: float | None = None,
    activation: str = "tanh",
    output: str = "identity",
    reads: str | None = None,
    seed: int = 0,
) -> Network:
    """Draws a network that is not trained yet. The same seed gives the same network.

    W is the package's own (reservoir/weights.py); W_in ~ U(-input_scale, input_scale) and W_back ~ U(-feedback_scale,
    feedback_scale) are dense.

    Args:
        state_size: N.
        inputs: K; a constant bias is an input like any other.
        outputs: L.
        topology: who feeds whom in W (reservoir/topology); None: erdos_renyi.
        mean_degree: nonzeros a row of an erdos_renyi W; None: 10. Other topologies refuse it.
        spectral_radius: of W.
        leak: a.
        decay: alpha, of leaky integrator units in continuous time: a = C delta there.
        input_scale: of W_in.
        feedback_scale: of W_back; None: no W_back.
        activation: f, "tanh" or "relu".
        output: f_out, "identity" or "tanh"; it is inverted in training, so a teacher must lie within its range.
        reads: what the readout sees: any of "u", "x", "y" in this order; None: "uxy" with feedback, "ux" without.

    Raises:
        InputError: a setting that cannot be built.
    """
    degree = 10.0 if mean_degree is None else mean_degree
    reads = reads or ("ux" if feedback_scale is None else "uxy")
    require(output in OUTPUTS, f"output is {output!r}: choose {', '.join(OUTPUTS)}")
    require(
        reads in ("u", "x", "y", "ux", "uy", "xy", "uxy"), f"reads is {reads!r}: give some of u, x, y, in this order"
    )
    state_size, inputs, outputs = (
        whole_number("state_size", state_size),
        whole_number("inputs", inputs),
        whole_number("outputs", outputs),
    )
    for name, number in {
        "mean_degree": degree,
        "spectral_radius": spectral_radius,
        "leak": leak,
        "decay": decay,
        "input_scale": input_scale,
        "feedback_scale": 0.0 if feedback_scale is None else feedback_scale,
    }.items():
        one = np.ndim(number) == 0 and np.asarray(number).dtype.kind in "fiu"
        require(one, f"{name} is {number!r}: give one number")
    require(inputs >= 0 and outputs >= 1, f"inputs {inputs}, outputs {outputs}: at least 0 and 1")
    require(0 < decay < np.inf, f"decay is {decay}: it must be above 0 and finite")
    require(0 <= leak <= 1, f"leak is {leak}: it must lie within 0 .. 1")
    is_topology = topology is None or isinstance(topology, Topology)
    require(is_topology, f"topology is {topology!r}: give an object of esnlm.reservoir.topology, such as ring.Ring()")
    is_read = topology is None or not topology.has_own_density
    line = f"mean_degree is {mean_degree}: this topology has a density of its own; leave it out"
    require(mean_degree is None or is_read, line)
    check_seed(seed)
    for name, scale in {"input_scale": input_scale, "feedback_scale": feedback_scale}.items():
        usable = scale is None or 0 <= scale < np.inf
        require(usable, f"{name} is {scale}: it must be finite and not negative")
    # The library draws W_in by token. Signals have a W_in of their own, so it is asked for one of a single token.
    config = ReservoirConfig(
        state_size,
        topology or ErdosRenyi(),
        mean_degree=degree,
        input_connectivity=1.0,
        spectral_radius=spectral_radius,
        leak_min=leak,
        leak_max=leak,
        activation=activation,
    )
    w = scipy.sparse.csr_array(as_scipy(weights.initialize_reservoir(config, 1, seed).reservoir.layers[0].stored_w_rec))

    def uniform(scale: float, columns: int, stream: Stream) -> np.ndarray:
        return generator(seed, stream).uniform(-scale, scale, (state_size, columns))

    w_back = None if feedback_scale is None else uniform(feedback_scale, outputs, Stream.SIGNAL_FEEDBACK)
    w_in = uniform(input_scale, inputs, Stream.SIGNAL_INPUT)
    return Network(w, w_in, w_back, np.full(state_size, leak), decay, activation, output, reads, outputs)


def states(
    network: Network,
    u: np.ndarray | None = None,
    teacher: np.ndarray | None = None,
    *,
    noise: float = 0.0,
    seed: int = 0,
) -> np.ndarray:
    """Returns x(0) .. x(T-1) from the state 0, (T, N) or (T, N, B), with the teacher's outputs fed back.

    Args:
        u: (T, K) or (T, K, B); None where the network has no input.
        teacher: (T, L) or (T, L, B); None where nothing is fed back.
        noise: added inside f, uniform in -noise .. noise, one number a unit and step.

    Raises:
        InputError: a sequence is missing or has the wrong shape, or the network feeds back and there is no teacher.
    """
    check_seed(seed)
    require(noise >= 0, f"noise is {noise}: it must not be negative")
    u, teacher, flat = _sequences(network, u, teacher, None)
    return _shown(_scan(network, _zeros(network, u), u, teacher, "states", noise, seed)[1], flat)


def train(
    network: Network,
    u: np.ndarray | None,
    teacher: np.ndarray,
    *,
    washout: int,
    ridge: float = 0.0,
    noise: float = 0.0,
    feedback_noise: float = 0.0,
    seed: int = 0,
) -> Network:
    """Returns the network with the W_out that gives the teacher's outputs, while they are fed back (teacher forcing).

    Minimises |f_out^-1(teacher) - W_out (u, x, y)|^2 + ridge |W_out|^2 over the steps after the washout.

    Args:
        u: see `states`.
        teacher: see `states`.
        noise: see `states`. Noise in the states does not make a network that generates stable; noise on the feedback does.
        feedback_noise: added to the teacher's outputs where they are fed back, uniform in -feedback_noise .. feedback_noise,
            while the targets stay as they are. W_out so learns to correct errors of the feedback: of a network that
            generates, whose loop is not stable without (Jaeger 2001, section 3.4; results/signals.md has figures).
        seed: of the noise.
        washout: steps that are left out, in which the state 0 is forgotten.
        ridge: 0 is the pseudo-inverse.

    Raises:
        InputError: as in `states`; the washout leaves nothing; a target is outside the range of f_out; there is noise on
            the feedback, and no feedback; the states are not finite.
    """
    check_seed(seed)
    washout = whole_number("washout", washout)
    require(teacher is not None, "there is no teacher: give the outputs to be learned")
    u, teacher, _ = _sequences(network, u, teacher, None)
    require(
        0 <= washout < len(teacher),
        f"washout is {washout}: it must leave some of the {len(teacher)} steps of the teacher",
    )
    require(
        min(ridge, noise, feedback_noise) >= 0,
        f"ridge {ridge}, noise {noise}, feedback_noise {feedback_noise}: they must not be negative",
    )
    idle = "the network feeds nothing back; leave it out, or draw the network with a feedback_scale"
    require(not feedback_noise or network.feeds_back, f"feedback_noise is {feedback_noise}: {idle}")
    target = teacher[washout:]
    if network.output == "tanh":
        largest = np.abs(target).max()
        require(
            largest < 1,
            f"the teacher reaches {largest:.6g}: f_out = tanh gives -1 .. 1 only; scale it, or draw with output='identity'",
        )
        target = np.arctanh(target)
    fed = teacher
    if feedback_noise:
        rng = generator(seed, Stream.SIGNAL_FEEDBACK_NOISE)
        fed = teacher + rng.uniform(-feedback_noise, feedback_noise, teacher.shape)
    x = _scan(network, _zeros(network, u), u, fed, "states", noise, seed)[1]
    line = "the states are not finite: where they grow without bound, lower the spectral radius, the scales of what comes in, or decay times leak"
    require(bool(np.isfinite(x).all()), line)
    y = np.concatenate([np.zeros_like(fed[:1]), fed[:-1]])  # y(n) beside x(n+1)
    seen = np.concatenate([{"u": u, "x": x, "y": y}[name] for name in network.reads], axis=1)[washout:]  # (T, F, B)
    samples, targets = (np.moveaxis(part, 2, 0).reshape(-1, part.shape[1]) for part in (seen, target))
    w_out = solve_by_svd(samples, targets, ridge)
    return dataclasses.replace(network, w_out=w_out)


def run(
    network: Network, u: np.ndarray | None = None, teacher: np.ndarray | None = None, start: State | None = None
) -> tuple[np.ndarray, State]:
    """Returns outputs of a trained network one step ahead, (T, L) or (T, L, B), and the state that it ends in.

    Args:
        u: see `states`.
        teacher: see `states`. The teacher's output is fed back, also after the last step.
        start: the state to go on from; None: 0.

    Raises:
        InputError: as in `states`; the network is not trained; the start is no state of this network.
    """
    _require_trained(network)
    start = None if start is None else _checked_start(network, start)
    u, teacher, flat = _sequences(network, u, teacher, start)
    end, y = _scan(network, start or _zeros(network, u), u, teacher, "outputs")
    return _shown(y, flat), end


def generate(network: Network, start: State, steps: int, u: np.ndarray | None = None) -> tuple[np.ndarray, State]:
    """Lets a trained network run on its own outputs: returns these, (steps, L) or (steps, L, B), and its last state.

    Without u, or with one for all columns alike, a start of one column gives (steps, L).

    Args:
        start: as `run` gave it.
        u: (steps, K), for all of the start's columns alike, or (steps, K, B); None where the network has no input.

    Raises:
        InputError: u has the wrong shape; the network is not trained, or feeds nothing back; the start is no state of it.
    """
    _require_trained(network)
    require(network.feeds_back, "this network feeds nothing back: call run, or draw it with a feedback_scale")
    steps = whole_number("steps", steps)
    require(steps >= 1, f"steps is {steps}: it must be at least 1")
    start = _checked_start(network, start)
    u = np.zeros((steps, 0)) if u is None else _numbers("u", u)
    require(len(u) == steps, f"u has {len(u)} steps, not the {steps} that are asked for")
    u, _, flat = _sequences(network, u, None, start, own=True)
    end, y = _scan(network, start, u, None, "outputs")
    return _shown(y, flat), end


def _sequences(
    network: Network, u: np.ndarray | None, teacher: np.ndarray | None, start: State | None, own: bool = False
) -> tuple[np.ndarray, Any, bool]:
    """Checks sequences and returns them as u (T, K, B) and teacher (T, L, B) or None.

    The third result says whether the user gave no B, so that it is left out of what is returned.
    """
    needs = network.feeds_back and not own
    require(
        not needs or teacher is not None,
        "this network feeds its output back: give the teacher's outputs, or call generate for its own",
    )
    require(
        u is not None or network.w_in.shape[1] == 0, f"u is missing: the network has {network.w_in.shape[1]} input(s)"
    )
    require(u is not None or teacher is not None, "there is neither u nor teacher: nothing says how many steps to run")
    given = {name: _numbers(name, array) for name, array in (("u", u), ("teacher", teacher)) if array is not None}
    if "u" not in given:
        given["u"] = np.zeros((len(given["teacher"]), 0))
    widths = {"u": network.w_in.shape[1], "teacher": network.outputs}
    columns = {array.shape[2] for array in given.values() if array.ndim == 3} | ({start.x.shape[1]} if start else set())
    wide = next(iter(columns), 1)
    for name, array in given.items():
        fits = array.ndim in (2, 3) and len(array) and array.shape[1] == widths[name] and len(columns) < 2
        require(
            bool(fits),
            f"{name} has the shape {array.shape}: it must be (T, {widths[name]}) or (T, {widths[name]}, {wide})",
        )
        require(bool(np.isfinite(array).all()), f"{name} holds a number that is not finite")
        require(
            len(array) == len(given["u"]),
            f"teacher has {len(array)} steps, u has {len(given['u'])}: give as many of both",
        )
    flat = wide == 1 and all(array.ndim == 2 for array in given.values())
    whole = {
        name: array if array.ndim == 3 else np.repeat(array[..., None], wide, axis=2) for name, array in given.items()
    }
    return whole["u"], whole.get("teacher"), flat


def _numbers(name: str, array: Any) -> np.ndarray:
    """Returns an array as float64. Raises InputError where it is no array of numbers."""
    try:
        found = np.asarray(array, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is no array of numbers: give one number for each step, input and column") from None
    require(found.ndim > 0, f"{name} is {array!r}: give an array with the steps first")
    return found


def _scan(
    network: Network,
    start: State,
    u: np.ndarray,
    teacher: np.ndarray | None,
    collect: str,
    noise: float = 0.0,
    seed: int = 0,
) -> tuple[State, np.ndarray]:
    """Runs the network, without a teacher on its own outputs.

    Returns:
        The state that it ends in, and every x (T, N, B) where `collect` is "states" or y (T, L, B) where it is "outputs".
    """
    require_registered("activation", network.activation)
    added = None
    if noise:
        added = generator(seed, Stream.SIGNAL_NOISE).uniform(-noise, noise, (len(u), len(network.leak), u.shape[2]))
    w = network.w.tocoo()
    with jax.enable_x64(True):
        matrix = bcoo(jnp.asarray(w.data), jnp.asarray(np.stack(w.coords, axis=1)), w.shape)
        arrays = {
            "w": sparse.prepare(matrix, sparse.choose_kernel(w.shape[0], w.nnz, jax.default_backend())),
            "w_in": network.w_in,
            "w_back": network.w_back,
            "w_out": network.w_out if collect == "outputs" else None,
            "leak": network.leak[:, None],
            "decay": network.decay,
        }
        # The function and not its name: a program compiled for one never runs for another of its name.
        f, f_out = ACTIVATIONS[network.activation], OUTPUTS[network.output]
        own = network.feeds_back and teacher is None
        end, found = _compiled(arrays, start, (u, teacher, added), f, f_out, network.reads, own)
        return State(*map(np.array, end)), np.array(found)  # copies: JAX's own arrays cannot be written to


@partial(jax.jit, static_argnames=("f", "f_out", "reads", "own"))
def _compiled(
    arrays: dict, start: State, sequences: tuple, f: Activation, f_out: Activation, reads: str, own: bool
) -> tuple[State, jax.Array]:
    multiply = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def step(state: Any, at: tuple) -> tuple[State, jax.Array]:
        u, taught, noise = at  # (K, B), (L, B), (N, B)
        drive = multiply(arrays["w_in"], u) + sparse.matmul(arrays["w"], state.x)
        if arrays["w_back"] is not None:
            drive += multiply(arrays["w_back"], state.y)
        if noise is not None:
            drive += noise
        leak = arrays["leak"]
        x = (1 - arrays["decay"] * leak) * state.x + leak * f(drive)
        if arrays["w_out"] is None:
            return State(x, state.y if taught is None else taught), x
        seen = jnp.concatenate([{"u": u, "x": x, "y": state.y}[name] for name in reads])  # (F, B)
        y: Any = f_out(multiply(arrays["w_out"], seen))
        fed = y if own else state.y if taught is None else taught
        return State(x, fed), y

    return lax.scan(step, start, sequences)


def _checked_start(network: Network, start: State) -> State:
    """Returns a state to start from, in float64. Raises InputError where it is none of this network."""
    units, outputs = len(network.leak), network.outputs
    need = f"it must be a State with x ({units}, B) and y ({outputs}, B), as the second that `run` returns"
    require(isinstance(start, State), f"start is a {type(start).__name__}: {need}")
    x, y = (np.asarray(part, np.float64) for part in start)
    fits = x.ndim == y.ndim == 2 and x.shape[1] == y.shape[1]
    require(fits, f"start is a State of the shapes {x.shape} and {y.shape}: {need}")
    sizes, expected = (len(x), len(y)), (units, outputs)
    require(
        sizes == expected,
        f"start has {sizes[0]} units and {sizes[1]} outputs, and the network {expected[0]} and {expected[1]}: give what `run`"
        " returned for this network",
    )
    return State(x, y)


def _zeros(network: Network, u: np.ndarray) -> State:
    return State(np.zeros((len(network.leak), u.shape[2])), np.zeros((network.outputs, u.shape[2])))


def _shown(found: np.ndarray, flat: bool) -> np.ndarray:
    return found[..., 0] if flat else found


def _require_trained(network: Network) -> None:
    require(network.w_out is not None, "this network has no W_out yet: train it")
