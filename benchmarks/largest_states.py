"""How far the states of an untrained ESN+i grow, by spectral radius and length: beside the losses of Ueda et al. 2025b, table 2.

    python benchmarks/largest_states.py

512 ReLU units, leak 0.8, half of W_rec zeros, W_in dense with deviation 1. Tokens are drawn uniformly, since each is a Gaussian
column of W_in. States are computed in float64, so that they stay finite. W_rec is frozen and AdamW moves W_in by 1e-3 an
update, so that training cannot take many powers of ten from these states. Writes largest_states.md under --out.
"""

import measure
import numpy as np

import esnlm
from esnlm.io.atomic import write_file

UNITS, LEAK, TOKENS = 512, 0.8, 1024
PUBLISHED = {  # of the train loss and of the validation loss (Ueda et al. 2025b, table 2), in nats
    1.0: ("4.87", "4.43"),
    1.2: ("4.89", "4.43"),
    1.4: ("4.92", "4.45"),
    1.5: ("1.14e+06", "4.45"),
    1.6: ("7.80e+18", "2.31e+17"),
    1.7: ("2.10e+30", "7.80e+28"),
}


def main() -> None:
    parser = measure.arguments(__doc__)
    parser.add_argument("--draws", type=int, default=12, help="reservoirs, each with 32 sequences of its own")
    parser.add_argument("--lengths", type=int, nargs="+", default=[127, 511], help="tokens that are read")
    args = parser.parse_args()
    record = measure.begin()
    largest = {
        radius: [measure_states(radius, seed, args.lengths) for seed in range(args.draws)] for radius in PUBLISHED
    }
    header = ["radius", *(f"after {length} tokens" for length in args.lengths)]
    header += ["train loss, published", "validation loss, published"]
    rows = []
    for radius, draws in largest.items():
        cells = [
            f"{min(each):.0e} .. {max(each):.0e}, median {np.median(each):.0e}" for each in zip(*draws, strict=True)
        ]
        rows.append([f"{radius:g}", *cells, *PUBLISHED[radius]])
    lines = [
        "# How far the states of an untrained ESN+i grow",
        "",
        f"The largest |h| over {UNITS} units and 32 sequences: the range over {args.draws} draws of the reservoir. Ueda et al. 2025b,",
        "table 2, has the losses; its text says that sentences have at most 128 tokens.",
        "",
        *measure.table(header, rows),
        "",
        f"Command: `{record['command']}`",
        "",
        f"Machine: {measure.describe(record['machine'])}",
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    write_file(args.out / "largest_states.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


def measure_states(radius: float, seed: int, lengths: list[int]) -> list[float]:
    """Returns the largest |h| of one draw up to each length."""
    reservoir = esnlm.Reservoir.draw(
        UNITS,
        vocabulary=TOKENS,
        connectivity=0.5,
        input_connectivity=1.0,
        spectral_radius=radius,
        leak=LEAK,
        activation="relu",
        seed=seed,
    )
    w_rec = np.asarray(reservoir.w_rec, np.float64)  # (N, N)
    w_in = np.asarray(reservoir.w_in, np.float64)  # (N, V)
    tokens = np.random.default_rng([seed, 1]).integers(TOKENS, size=(max(lengths), 32))
    h, largest, found = np.zeros((UNITS, 32)), 0.0, {}  # (N, B)
    for t, read in enumerate(tokens, start=1):
        h = (1 - LEAK) * h + LEAK * np.maximum(w_rec @ h + w_in[:, read], 0)
        largest = max(largest, float(np.abs(h).max()))
        found[t] = largest
    return [found[length] for length in lengths]


if __name__ == "__main__":
    measure.as_command(main)
