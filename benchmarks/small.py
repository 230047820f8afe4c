"""Small reservoirs for real-valued series, compared with reservoirpy: a fit, a step of the closed
loop, a grid of fits.

    OMP_NUM_THREADS=1 python benchmarks/small.py --rounds 7

Both draw a reservoir of 500 units, run 1,500 steps of the Mackey-Glass sequence, fit a ridge
readout with a given penalty and predict 500 more; run 100 steps of the closed loop; and do 24 such
fits with 100 units. They take turns. Times are wall-clock medians over the rounds; each round draws
new reservoirs. The first turn, which imports and compiles, is `first_s`; run the command twice,
with JAX_COMPILATION_CACHE_DIR empty and full. It needs reservoirpy. Writes small.json and .md under
--out.
"""

import sys
from pathlib import Path

import measure

import esnlm
from esnlm.sklearn import ReservoirRegressor

sys.path.insert(0, str(Path(__file__).parents[1]))
from examples.series import mackey_glass, nrmse

SERIES = mackey_glass(2001)
U, Y = SERIES[:-1], SERIES[1:]
UNITS, STEPS = 500, 100


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__, rounds=7)
    args = parser.parse_args(arguments)
    record = measure.begin() | {"rows": {}}
    tasks = {
        f"fit and prediction, {UNITS} units": (
            lambda i: fit(UNITS, i),
            lambda i: fit_peer(UNITS, i),
        ),
        "the same, penalty chosen by esnlm": (
            lambda i: fit(UNITS, i, None),
            lambda i: fit_peer(UNITS, i),
        ),
        f"{STEPS} steps of the closed loop": (Loop(), PeerLoop()),
        "24 fits, 100 units": (lambda i: grid(fit, i), lambda i: grid(fit_peer, i)),
    }
    for task, (ours, peer) in tasks.items():
        both = {"esnlm": ours, "reservoirpy": peer}
        first = {name: measure.time_of(lambda run=run: run(0)) for name, run in both.items()}
        seconds, _ = measure.interleave(both, args.rounds)
        found = measure.compare(seconds, baseline="esnlm")
        record["rows"][task] = {name: {"first_s": first[name], **found[name]} for name in found}
        print(task, record["rows"][task], flush=True)
    record["nrmse"] = {"esnlm": fit(UNITS, 0), "reservoirpy": fit_peer(UNITS, 0)}
    cells = [
        [task, *(f"{row[name][key]:.3g}" for key in ("first_s", "median_s") for name in row), f"{row['reservoirpy']['slower']:.2f}"]
        for task, row in record["rows"].items()
    ]  # fmt: skip
    heads = [
        "task",
        "esnlm: first s",
        "reservoirpy: first s",
        "esnlm: s",
        "reservoirpy: s",
        "reservoirpy / esnlm",
    ]
    measure.write(args.out, "small", "Small reservoirs", measure.table(heads, cells), record)
    return record


def fit(units: int, seed: int, ridge: float | None = 1e-8) -> float:
    network = ReservoirRegressor(
        units, washout=100, carry_state=True, ridge=ridge, random_state=seed
    )
    return nrmse(network.fit(U[:1500], Y[:1500]).predict(U[1500:]), Y[1500:])


def fitted_peer(units: int, seed: int):
    from reservoirpy.nodes import Reservoir, Ridge

    network = Reservoir(
        units, sr=0.9, rc_connectivity=10 / units, input_connectivity=1.0, seed=seed
    ) >> Ridge(1e-7)
    return network.fit(U[:1500], Y[:1500], warmup=100)


def fit_peer(units: int, seed: int) -> float:
    return nrmse(fitted_peer(units, seed).run(U[1500:]), Y[1500:])


def grid(run, seed: int) -> list[float]:
    return [run(100, 24 * seed + i) for i in range(24)]


class Loop:
    def __init__(self):
        self.reservoir = esnlm.Reservoir.draw(
            UNITS, inputs=1, spectral_radius=0.9, leak=1.0, mean_degree=10
        )
        x, self.start = self.reservoir.run(U[:1500])
        self.readout = esnlm.Readout("ridge", regularizations=(1e-8,)).fit(x[100:], Y[100:1500])

    def __call__(self, _: int) -> None:
        y, state = Y[1499:1500], self.start
        for _ in range(STEPS):
            x, state = self.reservoir.run(y, start=state)
            y = self.readout.predict(x)


class PeerLoop:
    def __init__(self):
        self.model = fitted_peer(UNITS, 0)

    def __call__(self, _: int) -> None:
        y = Y[1499]
        for _ in range(STEPS):
            y = self.model.step(y)


if __name__ == "__main__":
    measure.as_command(main)
