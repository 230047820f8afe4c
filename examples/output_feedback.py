"""Jaeger's network with output feedback for real-valued sequences, on the tasks of Jaeger 2001 and
on NARMA-10.

    python -m examples.output_feedback --seeds 10 --out signals.md

The equations are those of Jaeger 2001, as summarised by Ichimura 2019 (eq. 1 and 2):

    x(n+1) = (1 - alpha a) x(n) + a f(W_in u(n+1) + W x(n) + W_back y(n)),   f = tanh
    y(n+1) = f_out(W_out x(n+1))

At a = alpha = 1 these are the paper's. Training feeds back the teacher's output (teacher forcing)
and finds W_out by ridge regression; then `generate` runs the network on its own output. All arrays
are float64: in a loop on its own output, float32 rounding would limit the error.

esnlm draws W as for any reservoir. `esnlm.Reservoir` and `esnlm.Readout` do the same without
feedback.
"""

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse

import esnlm
from esnlm.base.rng import Stream, generator
from examples.series import mackey_glass, narma10, nrmse, sine


class State(NamedTuple):
    """The state of a network: its units, and the output to feed back next."""

    x: np.ndarray  # (N,)
    y: np.ndarray  # (L,)


@dataclass(frozen=True)
class Network:
    """The weights in float64; `dataclasses.replace` replaces them."""

    w: scipy.sparse.csr_array  # (N, N)
    w_in: np.ndarray  # (N, K); a constant bias is an input like any other
    w_back: np.ndarray  # (N, L); 0: no feedback
    leak: float = 1.0  # a
    decay: float = 1.0  # alpha
    tanh_output: bool = False  # whether f_out is tanh; else it is the identity
    w_out: np.ndarray | None = None  # (L, N); None before `train`

    @classmethod
    def draw(
        cls, size: int, inputs: int, outputs: int = 1, *, input_scale: float = 1.0, feedback_scale: float = 0.0,
        leak: float = 1.0, decay: float = 1.0, tanh_output: bool = False, seed: int = 0, **settings: object,
    ) -> "Network":  # fmt: skip
        """Draws W as esnlm.Reservoir does with these settings, and dense uniform W_in and
        W_back."""
        w = esnlm.Reservoir.draw(size, inputs=1, leak=leak, seed=seed, **settings).w_rec
        w_in = generator(seed, Stream.SIGNAL_INPUT).uniform(
            -input_scale, input_scale, (size, inputs)
        )
        w_back = generator(seed, Stream.SIGNAL_FEEDBACK).uniform(
            -feedback_scale, feedback_scale, (size, outputs)
        )
        return cls(
            scipy.sparse.csr_array(w, dtype=np.float64), w_in, w_back, leak, decay, tanh_output
        )

    def with_signs(self, seed: int) -> "Network":
        """Returns the network with W_in and W_back of -1 and 1, as in Jaeger 2001."""
        rng = np.random.default_rng([seed, 0])
        w_in = rng.choice([-1.0, 1.0], self.w_in.shape)
        return dataclasses.replace(
            self, w_in=w_in, w_back=rng.choice([-1.0, 1.0], self.w_back.shape) * (self.w_back != 0)
        )

    def step(self, state: State, u: np.ndarray) -> np.ndarray:
        """Returns x(n+1), (N,), for u(n+1), (K,)."""
        drive = self.w_in @ u + self.w @ state.x + self.w_back @ state.y
        return (1 - self.decay * self.leak) * state.x + self.leak * np.tanh(drive)

    def output(self, x: np.ndarray) -> np.ndarray:
        """Returns y of one state (N,) or several (T, N)."""
        found = x @ self.w_out.T
        return np.tanh(found) if self.tanh_output else found

    def states(self, u: np.ndarray, teacher: np.ndarray) -> tuple[np.ndarray, State]:
        """Returns x of each step from 0, (T, N), with the teacher's outputs (T, L) fed back, and
        the final state."""
        state, found = State(np.zeros(len(self.w_in)), np.zeros(teacher.shape[1])), []
        for here, taught in zip(u, teacher, strict=True):
            state = State(self.step(state, here), taught)
            found.append(state.x)
        return np.array(found), state

    def train(
        self,
        u: np.ndarray,
        teacher: np.ndarray,
        washout: int,
        ridge: float,
        noise: float = 0.0,
        seed: int = 0,
    ) -> "Network":
        """Returns the network with W_out fitted to the teacher's outputs after the washout.

        Uniform noise in -noise .. noise on the fed-back outputs makes W_out correct errors of the
        feedback. A network that generates needs it for a stable loop (Jaeger 2001, section 3.4).
        """
        fed = teacher + generator(seed, Stream.SIGNAL_FEEDBACK_NOISE).uniform(
            -noise, noise, teacher.shape
        )
        target = np.arctanh(teacher[washout:]) if self.tanh_output else teacher[washout:]
        x, penalty = self.states(u, fed)[0][washout:], np.sqrt(ridge) * np.eye(len(self.w_in))
        # Normal equations would square the condition number, which matters for a network that
        # generates.
        w_out = np.linalg.lstsq(
            np.vstack([x, penalty]), np.vstack([target, np.zeros((len(penalty), target.shape[1]))])
        )[0].T
        return dataclasses.replace(self, w_out=w_out)

    def generate(self, state: State, u: np.ndarray) -> np.ndarray:
        """Returns the outputs of the network running on its own outputs, (T, L)."""
        found = []
        for here in u:
            x = self.step(state, here)
            state = State(x, self.output(x))
            found.append(state.y)
        return np.array(found)


# ---- the tasks: from a seed to errors by name


def follower(seed: int) -> dict[str, float]:
    """1/2 sin^7(n/5) from the input sin(n/5), without feedback."""
    u, y = 2 * sine(1000), sine(1000, power=7)
    network = Network.draw(
        100, 1, mean_degree=5, spectral_radius=0.88, tanh_output=True, seed=seed
    ).with_signs(seed)
    network = network.train(u[:300], y[:300], washout=100, ridge=0.0)
    found = network.output(network.states(u[300:], y[300:])[0])
    return {"MSE": float(np.mean((found[100:] - y[400:]) ** 2))}


def sine_generator(seed: int, noise: float) -> dict[str, float]:
    """1/2 sin^7(n/5) from the network's own output only."""
    y = sine(1400, power=7)
    settings = {
        "mean_degree": 5,
        "spectral_radius": 0.88,
        "feedback_scale": 1.0,
        "tanh_output": True,
    }
    network = Network.draw(100, 0, **settings, seed=seed).with_signs(seed)
    silence = np.zeros((1400, 0))
    network = network.train(silence[:300], y[:300], 100, 0.0 if noise else 1e-8, noise, seed)
    _, state = network.states(silence[300:400], y[300:400])
    error = (network.generate(state, silence[400:]) - y[400:]) ** 2
    return {
        "MSE of steps 1 .. 100": float(error[:100].mean()),
        "MSE of steps 901 .. 1000": float(error[900:].mean()),
    }


def mackey(seed: int, trials: int = 20) -> dict[str, float]:
    """The Mackey-Glass sequence 84 steps ahead: after each of `trials` stretches of 1000 steps it
    generates."""
    raw = mackey_glass(3000 + trials * 1084)
    y, variance = np.tanh(raw - 1), float(raw.var())
    leaky = {"leak": 0.44, "decay": 0.9, "spectral_radius": 0.79, "mean_degree": 5}
    network = Network.draw(400, 1, feedback_scale=0.56, **leaky, tanh_output=True, seed=seed)
    w_in = np.random.default_rng([seed, 0]).choice([0, 0, 0.14, -0.14], network.w_in.shape)
    bias = np.full((3000, 1), 0.2)
    network = dataclasses.replace(network, w_in=w_in).train(bias, y[:3000], washout=1000, ridge=0.0)
    found, truth = [], []
    for stretch in y[3000:].reshape(trials, 1084, 1):
        _, state = network.states(bias[:1000], stretch[:1000])
        found.append(network.generate(state, bias[:84])[-1])
        truth.append(stretch[-1])
    with np.errstate(divide="ignore"):
        return {"NRMSE 84": nrmse(np.arctanh(found), np.arctanh(truth), variance)}


def narma(seed: int) -> dict[str, float]:
    """NARMA-10 by a ring of 400 units, with the lengths of Liang et al. 2022."""
    u, y = narma10(6000, seed=2 + seed)  # the scales were chosen on the sequence of seed 1
    u = np.hstack([u, np.ones_like(u)])
    ring = Network.draw(400, 2, topology="ring", spectral_radius=0.87, seed=seed).with_signs(seed)
    ring = dataclasses.replace(ring, w_in=ring.w_in * [0.02, 0.2]).train(
        u[:5000], y[:5000], washout=100, ridge=1e-10
    )
    found = ring.output(ring.states(u[5000:], y[5000:])[0])
    return {"NRMSE": nrmse(found[100:], y[5100:])}


GMD = "Jaeger 2001, GMD report 148"
TASKS: dict[str, tuple[Callable[[int], dict[str, float]], dict[str, float], str]] = {
    "1/2 sin^7 from sin": (follower, {"MSE": 3.7e-15}, f"{GMD}, 3.1"),
    **{
        f"1/2 sin^7 generator, feedback noise {noise:g}": (
            lambda seed, noise=noise: sine_generator(seed, noise),
            {"MSE of steps 1 .. 100": 2.6e-8, "MSE of steps 901 .. 1000": 1.0e-5},
            f"{GMD}, 3.4",
        )
        for noise in (0.0, 1e-6, 1e-4, 1e-3)
    },
    "Mackey-Glass, 400 units": (mackey, {"NRMSE 84": 0.00028}, f"{GMD}, 6.4"),
    "NARMA-10, a ring of 400 units": (
        narma,
        {"NRMSE": 0.078},
        "Liang et al. 2022, Nature Communications 13, 1549",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    lines = ["| task | error | published | median | range |", "| --- | --- | ---: | ---: | --- |"]
    for title, (task, published, source) in TASKS.items():
        errors = [task(seed) for seed in range(args.seeds)]
        for name in errors[0]:
            own = [each[name] for each in errors]
            spread = f"{min(own):.2g} .. {max(own):.2g}"
            lines.append(
                f"| {title} | {name} | {published[name]:.2g} ({source}) | {np.median(own):.2g} |"
                f" {spread} |"
            )
            print(lines[-1], flush=True)
    if args.out:
        page = (
            f"# Real-valued sequences\n\nJaeger's network beside published errors, {args.seeds}"
            " seeds, in float64.\n\n"
        )
        command = (
            f"\n\nCommand: `python -m examples.output_feedback --seeds {args.seeds} --out"
            f" {args.out}`\n"
        )
        args.out.write_text(page + "\n".join(lines) + command, "utf-8")


if __name__ == "__main__":
    main()
