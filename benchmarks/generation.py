"""Text generated token by token: esnlm against a plain loop of SciPy and NumPy.

    python benchmarks/generation.py
    python benchmarks/generation.py --vocab 50257 --tokens 400 --rounds 9

    esnlm   Run.generate, as `esnlm generate` calls it
    SciPy   W_rec as SciPy's CSR matrix, NumPy for the rest, and a Python loop over the tokens, in
            its own process

Both have the same untrained float32 weights (training does not change the time), and choose each
token in the same way, in float64 from the same random numbers. So they write the same text up to
rounding; the table shows how many tokens agree.

The floor is the time to read the data of a token once at the copy bandwidth measured in the same
run: W_rec with its indices, a column of W_in, A, B and the bias, and the state, which is also
written. Data in a cache is read faster, so the share can exceed 1. Writes generation.json and .md
under --out.
"""

import argparse
import dataclasses
from functools import partial
from types import SimpleNamespace

import measure
import numpy as np
import untrained

from esnlm.reservoir.arrays import as_scipy


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__, rounds=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096], help="N")
    parser.add_argument("--vocab", type=int, nargs="+", default=[8192, 50257], help="V")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--tokens", type=int, default=200, help="of a text")
    parser.add_argument("--copy-megabytes", type=int, default=512)
    args = parser.parse_args(arguments)
    record = measure.begin()
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    bandwidth = measure.best_peak(record["copy_bytes_per_s"])
    record["rows"] = [
        measure_generation(size, vocab, args, bandwidth)
        for size in args.sizes
        for vocab in args.vocab
    ]
    measure.write(args.out, "generation", "Generation", markdown(record), record)
    return record


def measure_generation(
    size: int, vocab_size: int, args: argparse.Namespace, copy_bandwidth: float
) -> dict:
    """Returns the results of both at one N and V."""
    model = size, vocab_size, args.rank
    loop, found = measure.Apart(Loop, *model), {}
    contenders = {
        "esnlm": partial(generate, ready(*model), args.tokens),
        "SciPy": partial(loop.generate, args.tokens),
    }
    # a round's number is its seed
    seconds, failures = measure.interleave(contenders, args.rounds, last=found)
    compared = measure.compare(seconds, "esnlm")
    for name, result in compared.items():
        result["tokens_per_s"] = args.tokens / result["median_s"]
        result["agree"] = agreement(found["esnlm"], found[name])
    floor = loop.bytes_of_a_token() / copy_bandwidth
    loop.close()
    row = {
        "size": size,
        "vocab_size": vocab_size,
        "rank": args.rank,
        "tokens": args.tokens,
        "floor_s": floor,
    }
    return row | {"contenders": compared, "failures": failures}


def agreement(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Returns the number of tokens before two texts first differ, or the length of both."""
    different = np.flatnonzero(ours != theirs)
    return int(different[0]) if len(different) else len(ours)


def ready(size: int, vocab_size: int, rank: int):
    """Returns a run whose text is the ids themselves, and which never ends a text early."""
    ends = {"bos": vocab_size - 1, "eos": -1}
    tokenizer = SimpleNamespace(
        vocab_size=vocab_size, encode=lambda text: [], decode=lambda ids: ids, **ends
    )
    return dataclasses.replace(untrained.initialize(size, vocab_size, rank), tokenizer=tokenizer)


def generate(run, tokens: int, seed: int) -> np.ndarray:
    return np.array(run.generate(length=tokens, seed=seed)[0])


class Loop:
    """The same model in plain NumPy and SciPy."""

    def __init__(self, size: int, vocab_size: int, rank: int):
        measure.set_up()
        model = untrained.initialize(size, vocab_size, rank).model
        reservoir, readout = model.reservoir, model.readout
        self.w_rec = as_scipy(reservoir.w_rec).astype(np.float32)  # CSR
        self.w_in = as_scipy(reservoir.w_in).astype(np.float32).tocsc()
        self.leak = np.array(reservoir.leak[...])
        self.a, self.b, self.bias = (np.array(x[...]) for x in (readout.a, readout.b, readout.bias))

    def generate(self, tokens: int, seed: int) -> np.ndarray:
        rng, h, token, chosen = (
            np.random.default_rng((seed, 0)),
            np.zeros_like(self.leak),
            len(self.bias) - 1,
            [],
        )
        for _ in range(tokens):
            drive = self.w_rec @ h
            own = slice(self.w_in.indptr[token], self.w_in.indptr[token + 1])
            drive[self.w_in.indices[own]] += self.w_in.data[own]
            h = (1 - self.leak) * h + self.leak * np.tanh(drive)
            logits = (self.a @ (self.b @ h) + self.bias).astype(np.float64)
            p = np.exp(logits - logits.max())
            token = int(rng.choice(len(p), p=p / p.sum()))
            chosen.append(token)
        return np.array(chosen)

    def bytes_of_a_token(self) -> float:
        """Returns the minimum bytes read or written per token."""
        matrices = (
            8 * self.w_rec.nnz + 4 * (len(self.leak) + 1) + 8 * self.w_in.nnz / self.w_in.shape[1]
        )
        return matrices + self.a.nbytes + self.b.nbytes + self.bias.nbytes + 3 * self.leak.nbytes


def markdown(record: dict) -> list[str]:
    first, cells, notes = record["rows"][0], [], []
    for row in record["rows"]:
        for name, result in row["contenders"].items():
            spread = [1e3 * result[key] / row["tokens"] for key in ("median_s", "min_s", "max_s")]
            cells.append(
                [
                    row["size"],
                    row["vocab_size"],
                    name,
                    result["tokens_per_s"],
                    *spread,
                    result["slower"],
                ]
            )
            cells[-1] += [row["floor_s"] * result["tokens_per_s"], result["agree"]]
        notes += [f"- {name} failed: {error}" for name, error in row["failures"].items()]
    head = [
        "N",
        "V",
        "",
        "tokens/s",
        "ms per token",
        "least",
        "most",
        "x esnlm",
        "floor / time",
        "tokens that agree",
    ]
    copies = ", ".join(
        f"{name} {value / 1e9:.1f}" for name, value in record["copy_bytes_per_s"].items()
    )
    return [
        (
            f"One continuation of {first['tokens']:,} tokens, float32, r = {first['rank']}, one"
            " lane. Medians of rounds in which the contenders take turns; benchmarks/generation.py"
            " describes them and the floor."
        ),
        "",
        *measure.table(head, cells),
        "",
        *notes,
        f"- copy, GB/s read and written: {copies}",
    ]


if __name__ == "__main__":
    measure.as_command(main)
