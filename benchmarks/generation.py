"""Text generated token by token, one continuation at a time: esnlm against a plain loop of SciPy and NumPy.

    python benchmarks/generation.py
    python benchmarks/generation.py --vocab 50257 --tokens 400 --rounds 9

    esnlm    Run.generate, as `esnlm generate` calls it
    scipy    W_rec as SciPy's CSR matrix, NumPy for everything else, and a Python loop over the tokens

Both have the same float32 weights. They are untrained, which changes no time. Both choose each token in the same way, in
float64 from the random numbers of one generator, so they write the same text unless rounding decides; the table says how many
tokens agree. Nothing ends a text early: the tokenizer here has no EOS.

The floor is what has to be read for a token, each byte once, at the copy bandwidth measured in the same run: W_rec with its
indices, a column of W_in, A, B and the bias, and the state, which is also written. Where some of it stays in a cache, the share
can pass 1.

The parts are measured apart, in turns of their own. `read` is the state after a token, and `choose` the choice from the logits.

Writes generation.json and .md under --out.
"""

import argparse
import dataclasses
from functools import partial
from types import SimpleNamespace

import measure
import numpy as np
import untrained

import esnlm
from esnlm.evaluation import generation
from esnlm.models.echo_state import EchoState
from esnlm.reservoir.arrays import as_scipy

BASELINE = "esnlm"


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096], help="N")
    parser.add_argument("--vocab", type=int, nargs="+", default=[8192, 50257], help="V")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--tokens", type=int, default=200, help="of a text")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--copy-megabytes", type=int, default=512)
    args = parser.parse_args(arguments)
    record = measure.begin()
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    record["rows"] = []
    for size in args.sizes:
        for vocab_size in args.vocab:
            row = measure_generation(size, vocab_size, args, measure.best_peak(record["copy_bytes_per_s"]))
            record["rows"].append(row)
            print(row, flush=True)
    measure.write(args.out, "generation", "Generation", markdown(record), record)
    return record


def measure_generation(size: int, vocab_size: int, args: argparse.Namespace, copy_bandwidth: float) -> dict:
    """Returns one row: both contenders at one N and V."""
    run = with_tokenizer(untrained.initialize(size, vocab_size, args.rank))
    loop = Loop(run.model)
    settings = {"length": args.tokens, "temperature": args.temperature}
    contenders = {BASELINE: partial(run.generate, **settings), "scipy": partial(loop.generate, **settings)}
    found = {}

    def generate(name, i):
        (found[name],) = contenders[name](seed=i)

    seconds, failures = measure.interleave({name: partial(generate, name) for name in contenders}, args.rounds)
    compared = measure.compare(seconds, BASELINE)
    for result in compared.values():
        result["tokens_per_s"] = args.tokens / result["median_s"]
    floor = loop.bytes_of_a_token() / copy_bandwidth
    alone, _ = measure.interleave(esnlm_parts(run, args.temperature) | loop.parts(args.temperature), args.rounds)
    return {
        "size": size,
        "vocab_size": vocab_size,
        "rank": args.rank,
        "tokens": args.tokens,
        "contenders": compared,
        "failures": failures,
        "agree": agreement(*found.values()),
        "floor_s": floor,
        "share_of_floor": {name: floor * result["tokens_per_s"] for name, result in compared.items()},
        "parts_s": {name: float(np.median(own)) for name, own in alone.items()},
    }


def with_tokenizer(run: esnlm.Run) -> esnlm.Run:
    """Returns the run with a tokenizer whose text is the ids themselves, and which has no EOS."""
    size = run.tokenizer.vocab_size
    tokenizer = SimpleNamespace(vocab_size=size, bos=size - 1, eos=-1, encode=lambda text: [], decode=lambda ids: ids)
    return dataclasses.replace(run, tokenizer=tokenizer)


def agreement(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Returns after how many tokens two texts differ for the first time, or the length of both."""
    different = np.flatnonzero(ours != theirs)
    return int(different[0]) if len(different) else len(ours)


def esnlm_parts(run: esnlm.Run, temperature: float) -> dict[str, measure.Contender]:
    """Returns the parts of a token as esnlm computes them."""
    compute, rng = run.config.compute, np.random.default_rng(0)
    read = run.model.for_device(compute).reader(1, 1)
    readout = run.config.model.readout_arrays(run.model.params)
    features = read(np.array([run.tokenizer.bos]))

    def logits(_: int = 0) -> np.ndarray:
        return np.asarray(generation._logits(readout, features, compute.precision), np.float64)[0]

    found = logits()
    return {
        "esnlm: read": lambda i: read(np.array([i])).block_until_ready(),
        "esnlm: logits": logits,
        "esnlm: choose": lambda _: generation.choose(found, temperature, None, rng),
    }


class Loop:
    """The same model, written down plainly."""

    def __init__(self, model: EchoState):
        reservoir, readout = model.reservoir, model.readout
        self.w_rec = as_scipy(reservoir.w_rec).astype(np.float32)  # CSR
        self.w_in = as_scipy(reservoir.w_in).astype(np.float32).tocsc()
        self.leak = np.asarray(reservoir.leak[...])
        self.a, self.b, self.bias = (np.asarray(x[...]) for x in (readout.a, readout.b, readout.bias))
        self.keep, self.bos = 1 - self.leak, len(self.bias) - 1

    def generate(self, *, length: int, temperature: float, seed: int) -> list[np.ndarray]:
        """Returns one text of so many tokens."""
        rng, h, chosen = np.random.default_rng((seed, 0)), np.zeros_like(self.leak), []
        token = self.bos
        for _ in range(length):
            h = self.read(h, token)
            token = self.choose(self.logits(h), temperature, rng)
            chosen.append(token)
        return [np.array(chosen)]

    def read(self, h: np.ndarray, token: int) -> np.ndarray:
        drive = self.w_rec @ h
        own = slice(self.w_in.indptr[token], self.w_in.indptr[token + 1])
        drive[self.w_in.indices[own]] += self.w_in.data[own]
        return self.keep * h + self.leak * np.tanh(drive)

    def logits(self, h: np.ndarray) -> np.ndarray:
        return self.a @ (self.b @ h) + self.bias

    def choose(self, logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
        if temperature == 0:
            return int(logits.argmax())
        logits = logits.astype(np.float64)
        p = np.exp((logits - logits.max()) / temperature)
        return int(rng.choice(len(p), p=p / p.sum()))

    def bytes_of_a_token(self) -> float:
        """Returns the bytes that must be read or written for a token."""
        matrices = 8 * self.w_rec.nnz + 4 * (len(self.leak) + 1) + 8 * self.w_in.nnz / self.w_in.shape[1]
        return matrices + self.a.nbytes + self.b.nbytes + self.bias.nbytes + 3 * self.leak.nbytes

    def parts(self, temperature: float) -> dict[str, measure.Contender]:
        """Returns the parts of a token."""
        h, rng = self.read(np.zeros_like(self.leak), self.bos), np.random.default_rng(0)
        logits = self.logits(h)
        return {
            "scipy: read": lambda i: self.read(h, i),
            "scipy: logits": lambda _: self.logits(h),
            "scipy: choose": lambda _: self.choose(logits, temperature, rng),
        }


def markdown(record: dict) -> list[str]:
    rows, first = record["rows"], record["rows"][0]
    cells, parts = [], []
    for row in rows:
        ours, theirs = (row["contenders"][name] for name in (BASELINE, "scipy"))
        share = row["share_of_floor"][BASELINE]
        cells.append([row["size"], row["vocab_size"], ours["tokens_per_s"], theirs["tokens_per_s"], theirs["slower"]])
        cells[-1] += [1 / row["floor_s"], f"{share:.0%}", f"{row['agree']:,} of {row['tokens']:,}"]
        for who in (BASELINE, "scipy"):
            own = [1e3 * row["parts_s"][f"{who}: {part}"] for part in ("read", "logits", "choose")]
            parts.append([row["size"], row["vocab_size"], who, *own])
    head = ["N", "V", "esnlm, tokens/s", "SciPy, tokens/s", "x SciPy", "floor, tokens/s", "esnlm / floor", "same tokens"]
    copies = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in record["copy_bytes_per_s"].items())
    return [
        f"One continuation of {first['tokens']:,} tokens, float32, r = {first['rank']}: medians of rounds in which esnlm and a loop"
        " of SciPy and NumPy take turns.",
        "`x SciPy`: how many times longer the loop takes, the median over the rounds. benchmarks/generation.py says what the",
        "floor is.",
        "",
        *measure.table(head, cells),
        "",
        "The parts of a token, ms, each measured apart:",
        "",
        *measure.table(["N", "V", "", "read", "logits", "choose"], parts),
        "",
        f"Copy bandwidth in GB/s, read and written: {copies}.",
    ]


if __name__ == "__main__":
    measure.as_command(main)
