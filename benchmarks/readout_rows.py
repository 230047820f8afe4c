"""The loss over the vocabulary and its gradient, by the number of tokens V, with and without the rows that a run adds on this device.

    python benchmarks/readout_rows.py

Where V is a round number, the numbers of a column of the logits share a few places of a CPU's cache; esnlm/parallel/placement.py says
more. One turn is the loss, the gradient of Z (C, r) and that of A (V, r), C tokens at once, as an update of a full readout on features that
are trained has them (esnlm/readout/cross_entropy.py). Both contenders have the same V tokens; no added row is a token.

Writes readout_rows.json and .md under --out.
"""

from functools import partial

import jax
import measure
import numpy as np

from esnlm.errors import require
from esnlm.models.base import READOUT_ARRAYS
from esnlm.ops.matmul import PRECISIONS
from esnlm.parallel.placement import Placement, rows_on
from esnlm.readout.cross_entropy import weighted_nll


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[2048, 4096, 8000, 8192, 10240, 16384, 32768, 50257], help="V"
    )
    parser.add_argument("--rank", type=int, default=320, help="r, numbers of a token that A sees")
    parser.add_argument("--tokens", type=int, default=740, help="C, those of an update of 32 sentences")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args(arguments)
    for name in ("rank", "tokens", "rounds"):
        require(getattr(args, name) >= 1, f"--{name} is {getattr(args, name)}: it must be at least 1")
    require(min(args.sizes) >= 1, f"--sizes has {min(args.sizes)}: each must be at least 1")
    record = measure.begin()
    record |= {"rank": args.rank, "tokens": args.tokens, "precision": args.precision, "rounds": args.rounds}
    record["sizes"] = {str(size): measure_size(size, args) for size in args.sizes}
    measure.write(args.out, "readout_rows", "Rows of the readout", markdown(record), record)
    return record


def measure_size(vocab_size: int, args) -> dict:
    """Returns the figures of both contenders at one V; those of `padded` are missing where nothing is added."""
    added = Placement(None, vocab_size, rows_on(jax.default_backend(), vocab_size), READOUT_ARRAYS)
    rows = {"V rows": Placement(None, vocab_size, vocab_size, READOUT_ARRAYS)}
    rows |= {"padded": added} if added.rows > vocab_size else {}
    contenders = {name: partial(gradient, *problem(each, args), args.precision) for name, each in rows.items()}
    seconds, failures = measure.interleave(contenders, args.rounds)
    if failures:  # no memory, say: then there is nothing to compare
        return {"rows": added.rows, "failures": failures}
    return measure.compare(seconds, "V rows") | {"rows": added.rows, "failures": failures}


def problem(padded: Placement, args) -> tuple:
    """Returns Z, A, b_out, targets and weights, drawn at random but for b_out and the weights."""
    rng = np.random.default_rng(0)
    bound = args.rank**-0.5
    z = rng.normal(size=(args.tokens, args.rank)).astype(np.float32)
    w = rng.uniform(-bound, bound, (padded.vocab_size, args.rank)).astype(np.float32)
    readout = padded.place({"readout": {"w": w, "bias": np.zeros(padded.vocab_size, np.float32)}})["readout"]
    readout = padded.masked(readout)
    targets = rng.integers(0, padded.vocab_size, args.tokens).astype(np.int32)
    return jax.device_put(
        (z, readout["w"], readout["bias"], targets, np.full(args.tokens, 1 / args.tokens, np.float32))
    )


def gradient(z, w, bias, targets, weights, precision: str, _: int) -> None:
    """Computes the loss and its gradient."""
    jax.block_until_ready(compute(z, w, bias, targets, weights, precision))


@partial(jax.jit, static_argnums=5)
def compute(z, w, bias, targets, weights, precision: str):
    """Returns (loss, (dz, dw, dbias))."""

    def loss(z, w, bias):
        return weighted_nll(z, w, bias, targets, weights, None, precision)

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(z, w, bias)


def markdown(record: dict) -> list[str]:
    cells = []
    for size, found in record["sizes"].items():
        if found["failures"]:
            cells.append([int(size), found["rows"], *[None] * 5])
            continue
        plain, padded = found["V rows"], found.get("padded")
        operations = 6 * record["tokens"] * record["rank"] * int(size)
        cells.append(
            [
                int(size),
                found["rows"] if padded else None,
                1e3 * plain["median_s"],
                operations / plain["median_s"] / 1e9,
                *([1e3 * padded["median_s"], operations / padded["median_s"] / 1e9] if padded else [None, None]),
                1 / padded["slower"] if padded else None,
            ]
        )
    head = ["V", "rows", "ms, V rows", "GFLOP/s", "ms, padded", "GFLOP/s", "times as fast"]
    return [
        f"Loss and gradient of {record['tokens']} tokens at once, rank {record['rank']}, {record['precision']}: medians over"
        f" {record['rounds']} rounds, in which both take turns. GFLOP/s are those of the three products. Where `rows` is"
        " empty, a run adds none.",
        "",
        *measure.table(head, cells),
    ]


if __name__ == "__main__":
    measure.as_command(main)
