"""Errors of Jaeger's network on real-valued sequences, beside published ones and beside reservoirpy's.

    python benchmarks/signals.py
    python benchmarks/signals.py --tasks follower generator --seeds 3 --out signals

Each task has three contenders. Their errors are medians over seeds, each of which decides the weights, and the sequence where
that is random (NARMA-10):

    esnlm                       esnlm.signals
    reservoirpy, same weights   reservoirpy's states and ridge regression with esnlm's W, W_in and W_back. The output
                                that is fed back is an input there. It is the same network, so its states must agree.
                                Where noise is on the taught feedback, it is trained without noise and with ridge 0.
    reservoirpy, its defaults   Reservoir(N) >> Ridge() as it comes, on the same data. Where a task has no input, the
                                output is its input.

Writes signals.json and .md under --out. Needs reservoirpy.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable
from functools import cache

import measure
import numpy as np

from esnlm.errors import require
from esnlm.reservoir.topology.ring import Ring
from esnlm.signals import network as networks
from esnlm.signals.network import Network
from esnlm.signals.series import mackey_glass, narma10, nrmse, sine

try:
    from reservoirpy.nodes import Reservoir, Ridge
except ImportError:
    Reservoir = None

GMD = "Jaeger 2001, GMD report 148"

# The settings of the ring for NARMA-10, which were chosen on the sequence of seed 1.
FIRST_SEQUENCE = 2
RING_RADIUS, RING_INPUT, RING_BIAS = 0.87, 0.02, 0.2


@dataclasses.dataclass(frozen=True)
class Task:
    """Sequences, the network that reads them, and what is compared."""

    title: str
    network: Callable[[int], Network]  # from a seed
    u: np.ndarray  # (T, K), the training sequence
    teacher: np.ndarray  # (T, L)
    washout: int
    ridge: float
    test: Callable[["Contender"], dict[str, float]]  # errors by name
    published: dict[str, tuple[float, str]]  # of these errors: figure and source
    settings: str
    feedback_noise: float = 0.0  # on the taught feedback, which is esnlm's alone: reservoirpy is trained without


# ---- contenders: each gives outputs one step ahead, and outputs that feed on themselves


class Ours:
    """esnlm.signals."""

    def __init__(self, task: Task, seed: int):
        options = {"washout": task.washout, "ridge": task.ridge, "feedback_noise": task.feedback_noise, "seed": seed}
        self.network = networks.train(task.network(seed), task.u, task.teacher, **options)

    def ahead(self, u, teacher):
        return networks.run(self.network, u, teacher)[0]

    def alone(self, u, teacher, steps):
        """Returns `steps` outputs after the teacher's end, (steps, L, B), for teacher (T, L, B) and u (T + steps, K)."""
        _, state = networks.run(self.network, u[: len(teacher)], teacher)
        return networks.generate(self.network, state, steps, u[len(teacher) :])[0].reshape(steps, *teacher.shape[1:])


class Peer:
    """reservoirpy. It has no f_out, so that this is inverted and applied here."""

    def __init__(self, task: Task, seed: int, same_weights: bool):
        ours = task.network(seed)
        self.feeds_back, self.reads, self.tanh = ours.w_back is not None, ours.reads, ours.output == "tanh"
        if same_weights:
            lr = float(ours.decay * ours.leak[0])
            back = np.zeros((len(ours.leak), 0)) if ours.w_back is None else ours.w_back
            f = (lambda x: np.tanh(x) / ours.decay) if ours.decay != 1 else "tanh"  # x' = (1 - lr) x + lr f(.) / alpha
            self.reservoir = Reservoir(W=ours.w, Win=np.hstack([ours.w_in, back]), lr=lr, activation=f)
            self.ridge = Ridge(ridge=task.ridge, fit_bias=False)
        else:
            self.reservoir, self.ridge, self.reads = Reservoir(len(ours.leak), seed=seed), Ridge(), "x"
        x, inputs = self._states(task.u, task.teacher)
        self.difference = float(np.abs(x - networks.states(ours, task.u, task.teacher)).max()) if same_weights else None
        target = np.arctanh(task.teacher) if self.tanh else task.teacher
        self.ridge.fit(self._seen(x, inputs)[task.washout :], target[task.washout :])

    def ahead(self, u, teacher):
        return self._output(self.ridge.run(self._seen(*self._states(u, teacher))))

    def alone(self, u, teacher, steps):
        made = []
        for b in range(teacher.shape[2]):
            self._states(u[: len(teacher)], teacher[..., b])
            y, own = teacher[-1, :, b], []
            for n in range(len(teacher), len(teacher) + steps):
                inputs = np.concatenate([u[n], y])
                x = self.reservoir.step(inputs)
                y = self._output(self.ridge.run(self._seen(x[None], inputs[None])))[0]
                own.append(y)
            made.append(own)
        return np.moveaxis(np.array(made), 0, 2)

    def _states(self, u, teacher):
        inputs = u if not self.feeds_back else np.hstack([u, np.vstack([np.zeros(teacher.shape[1]), teacher[:-1]])])
        if self.reservoir.initialized:
            self.reservoir.reset()
        return self.reservoir.run(inputs), inputs

    def _seen(self, x, inputs):
        return (
            x
            if self.reads == "x"
            else np.hstack([inputs[:, : inputs.shape[1] - self.feeds_back], x, inputs[:, -1:]][: len(self.reads)])
        )

    def _output(self, o):
        return np.tanh(o) if self.tanh else o


Contender = Ours | Peer


# ---- tasks


def follower() -> Task:
    """Returns the task 1/2 sin^7(n/5) from the input sin(n/5), without feedback."""
    u, y = 2 * sine(1000), sine(1000, power=7)

    def test(contender):
        return {"MSE": float(np.mean((contender.ahead(u[300:], y[300:])[100:] - y[400:]) ** 2))}

    def network(seed):
        return _signs(
            networks.draw(100, inputs=1, mean_degree=5, spectral_radius=0.88, output="tanh", reads="x", seed=seed), seed
        )

    settings = "N 100, radius 0.88, W_in -1 or 1, f_out tanh, 300 steps, the first 100 dropped"
    return Task(
        "1/2 sin^7 from sin", network, u[:300], y[:300], 100, 0.0, test, {"MSE": (3.7e-15, f"{GMD}, 3.1")}, settings
    )


def generator(noise: float = 0.0) -> Task:
    """Returns the task 1/2 sin^7(n/5) from nothing but the network's own output, with noise on the taught feedback."""
    y = sine(1400, power=7)

    def test(contender):
        found = contender.alone(np.zeros((1100, 0)), y[300:400, :, None], 1000)[..., 0]
        error = (found - y[400:1400]) ** 2
        return {
            "MSE of the first 100 steps alone": float(error[:100].mean()),
            "MSE of steps 901 .. 1000": float(error[900:].mean()),
        }

    def network(seed):
        options = {"mean_degree": 5, "spectral_radius": 0.88, "feedback_scale": 1.0, "output": "tanh", "reads": "x"}
        return _signs(networks.draw(100, **options, seed=seed), seed)

    ridge = 0.0 if noise else 1e-8
    settings = (
        f"as before, without input, W_back -1 or 1, ridge {ridge:g}, uniform noise of {noise:g} on the taught feedback"
    )
    settings += " (in esnlm alone)" if noise else ""
    settings += "; 100 steps of teacher forcing, then alone"
    published = {
        "MSE of the first 100 steps alone": (2.6e-8, f"{GMD}, 3.4"),
        "MSE of steps 901 .. 1000": (1.0e-5, f"{GMD}, 3.4: after 1000 steps"),
    }
    title = "1/2 sin^7 generator" + (f", feedback noise {noise:g}" if noise else "")
    return Task(title, network, np.zeros((300, 0)), y[:300], 100, ridge, test, published, settings, noise)


def mackey(size: int, trials: int, published: float, source: str) -> Task:
    """Returns Jaeger's Mackey-Glass task.

    The network learns 3000 steps. After each of `trials` stretches of 1000 steps, which follow one another, it goes on
    alone for 84 steps.
    """
    raw = mackey_glass(3000 + trials * 1084)
    y, variance = np.tanh(raw - 1), float(raw.var())
    bias = np.full((3000, 1), 0.2)
    cut = y[3000:].reshape(trials, 1084).T[:, None]  # (1084, 1, trials)

    def test(contender):
        after = contender.alone(bias[:1084], cut[:1000], 84)[-1]  # (1, trials)
        with np.errstate(divide="ignore"):
            alone = nrmse(np.arctanh(after), np.arctanh(cut[-1]), variance)
        ahead = contender.ahead(bias[:1084], cut[..., 0])[1000:]
        return {"NRMSE 84": alone, "NRMSE 1": nrmse(np.arctanh(ahead), np.arctanh(cut[1000:, :, 0]), variance)}

    def network(seed):
        leaky = {"leak": 0.44, "decay": 0.9, "spectral_radius": 0.79, "mean_degree": 5}
        drawn = networks.draw(size, inputs=1, feedback_scale=0.56, **leaky, output="tanh", reads="x", seed=seed)
        w_in = np.random.default_rng([seed, 0]).choice([0, 0, 0.14, -0.14], drawn.w_in.shape)
        return dataclasses.replace(drawn, w_in=w_in)

    settings = f"tau 17, tanh(y - 1), N {size}, radius 0.79, C 0.44, a 0.9, bias 0.2, no noise, 3000 steps less 1000; {trials} trials"
    figures = {"NRMSE 84": (published, source)}
    return Task(f"Mackey-Glass, N {size}", network, bias, y[:3000], 1000, 0.0, test, figures, settings)


def narma(sequence: int, size: int = 200) -> Task:
    """Returns the NARMA-10 task for an erdos_renyi network."""
    u, y = narma10(4200, seed=sequence)
    u = np.hstack([u, np.ones_like(u)])

    def test(contender):
        return {"NRMSE": nrmse(contender.ahead(u[2200:], y[2200:])[200:], y[2400:])}

    def network(seed):
        return networks.draw(size, inputs=2, input_scale=0.2, spectral_radius=0.95, mean_degree=10, seed=seed)

    settings = f"N {size}, radius 0.95, input and bias scaled by 0.2, 2000 steps to learn after 200, 1800 to test"
    return Task("NARMA-10", network, u[:2200], y[:2200], 200, 1e-8, test, {}, settings)


def narma_ring(sequence: int) -> Task:
    """Returns the NARMA-10 task for a ring of 400, with the lengths and the input signs of its published figure."""
    u, y = narma10(6000, seed=sequence)
    u = np.hstack([u, np.ones_like(u)])

    def test(contender):
        return {"NRMSE": nrmse(contender.ahead(u[5000:], y[5000:])[100:], y[5100:])}

    def network(seed):
        ring = _signs(
            networks.draw(400, inputs=2, topology=Ring(), spectral_radius=RING_RADIUS, reads="x", seed=seed), seed
        )
        return dataclasses.replace(ring, w_in=ring.w_in * [RING_INPUT, RING_BIAS])

    scales = f"radius {RING_RADIUS}, input {RING_INPUT} and bias {RING_BIAS} by random signs"
    settings = f"N 400 in a ring, {scales}, 5000 steps less 100, 1000 to test less 100"
    source = "Liang et al. 2022, Nature Communications 13, 1549: a simulated ring of 400 rotating neurons, of the same lengths"
    published = {"NRMSE": (0.078, source)}
    return Task("NARMA-10, ring", network, u[:5000], y[:5000], 100, 1e-10, test, published, settings)


def _signs(network: Network, seed: int) -> Network:
    """Returns the network with W_in and W_back of -1 and 1, as in Jaeger 2001."""
    rng = np.random.default_rng([seed, 0])
    signs = {
        name: rng.choice([-1.0, 1.0], part.shape)
        for name in ("w_in", "w_back")
        if (part := getattr(network, name)) is not None
    }
    return dataclasses.replace(network, **signs)


MACKEY = cache(mackey)  # one sequence, whatever the seed

TASKS: dict[str, Callable[[int], Task]] = {  # from a seed
    "follower": lambda seed: follower(),
    "generator": lambda seed: generator(),
    **{f"generator_noise_{noise:g}": lambda seed, noise=noise: generator(noise) for noise in (1e-6, 1e-4, 1e-3)},
    "narma": lambda seed: narma(FIRST_SEQUENCE + seed),
    "narma_ring": lambda seed: narma_ring(FIRST_SEQUENCE + seed),
    "mackey": lambda seed: MACKEY(400, 20, 0.00028, f"{GMD}, 6.4, from the same settings"),
    "mackey1000": lambda seed: MACKEY(1000, 50, 10**-4.2, "Jaeger and Haas 2004; other settings may differ"),
}


# ---- measuring


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args(arguments)
    require(Reservoir is not None, "reservoirpy, the peer here, is not installed: pip install reservoirpy")
    record = measure.begin() | {"tasks": [], "seeds": args.seeds}
    for name in args.tasks:
        began = time.perf_counter()
        record["tasks"].append(compare(TASKS[name], args.seeds))
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    measure.write(args.out, "signals", "Real-valued sequences", markdown(record), record)
    return record


def compare(make_task: Callable[[int], Task], seeds: int) -> dict:
    """Returns the errors of all contenders in one task."""
    errors, differences = {}, []
    for seed in range(seeds):
        task = make_task(seed)
        contenders = {
            "esnlm": lambda task=task, seed=seed: Ours(task, seed),
            "reservoirpy, same weights": lambda task=task, seed=seed: Peer(task, seed, same_weights=True),
            "reservoirpy, its defaults": lambda task=task, seed=seed: Peer(task, seed, same_weights=False),
        }
        for name, make in contenders.items():
            with warnings.catch_warnings():  # an ill-conditioned regression shows in its error
                warnings.simplefilter("ignore")
                contender = make()
                own = task.test(contender)
            differences += [contender.difference] if getattr(contender, "difference", None) is not None else []
            for error, value in own.items():
                errors.setdefault(error, {}).setdefault(name, []).append(value)
    return {
        "title": task.title,
        "settings": task.settings,
        "ridge": task.ridge,
        "state_difference": max(differences),
        "published": {error: {"value": value, "source": source} for error, (value, source) in task.published.items()},
        "errors": {
            error: {
                name: {
                    "median": float(np.median(all_)),
                    "mean": float(np.mean(all_)),
                    "sd": float(np.std(all_, ddof=1)),
                    "all": all_,
                }
                for name, all_ in by.items()
            }
            for error, by in errors.items()
        },
    }


def markdown(record: dict) -> list[str]:
    rows, notes, sources = [], [], []
    for task in record["tasks"]:
        for error, by in task["errors"].items():
            published = task["published"].get(error)
            rows.append(
                [
                    task["title"],
                    error,
                    published and f"{published['value']:.2g}",
                    *(f"{own['median']:.2g}" for own in by.values()),
                    f"{by['esnlm']['mean']:.2g} ({by['esnlm']['sd']:.1g}), {min(by['esnlm']['all']):.2g} .. {max(by['esnlm']['all']):.2g}",
                ]
            )
            sources += [
                f"- {task['title']}, {error}: {published['source']}."
                if published
                else f"- {task['title']}, {error}: not compared."
            ]
        notes.append(
            f"- {task['title']}: {task['settings']}. States differ from reservoirpy's by at most {task['state_difference']:.1e}."
        )
    return [
        f"Medians over {record['seeds']} seeds of the weights (for NARMA-10 of the sequence too), in float64. What Jaeger leaves open of W is as everywhere in esnlm.",
        "The same weights give the same states. Only the regression differs: singular values here, normal equations there.",
        "In the rows with feedback noise esnlm alone is trained with it.",
        "reservoirpy with the same weights is trained there without noise and with ridge 0.",
        "",
        *measure.table(
            [
                "task",
                "error",
                "published",
                "esnlm",
                "reservoirpy, same weights",
                "reservoirpy, its defaults",
                "esnlm: mean (sd), range",
            ],
            rows,
        ),
        "",
        "Settings:",
        "",
        *notes,
        "",
        "Published figures:",
        "",
        *sources,
        "",
        "Jaeger's Mackey-Glass series was made by Euler steps of 0.1, this one by Runge-Kutta of fourth order with the same step.",
    ]


if __name__ == "__main__":
    measure.as_command(main)
