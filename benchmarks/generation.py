"""Text generated token by token, one continuation at a time: esnlm against a plain loop of SciPy and NumPy.

    python benchmarks/generation.py
    python benchmarks/generation.py --vocab 50257 --tokens 400 --rounds 9

    esnlm               Run.generate, as `esnlm generate` calls it
    SciPy               W_rec as SciPy's CSR matrix, NumPy for everything else, and a Python loop over the tokens
    SciPy, one thread   the same, where the library behind NumPy's products has one thread; it takes a thread a core by itself

All have the same float32 weights. They are untrained, which changes no time. All choose each token in the same way, in float64
from the random numbers of one generator, so they write the same text unless rounding decides; the table says how many tokens
agree. Nothing ends a text early: the tokenizer here has no EOS. Each loop of SciPy runs in a process of its own, so that its
threads do not disturb esnlm's, and they take turns.

The floor is what has to be read for a token, each byte once, at the copy bandwidth measured in the same run: W_rec with its
indices, a column of W_in, A, B and the bias, and the state, which is also written. What stays in a cache is read faster than
that, so the share can pass 1.

The parts are measured apart, in turns of their own. `read` is the state after a token, and `choose` the choice from the logits.

Writes generation.json and .md under --out.
"""

import argparse
import dataclasses
import os
from functools import partial
from types import SimpleNamespace

import jax
import measure
import numpy as np
import untrained

import esnlm
from esnlm.evaluation.generation import choose
from esnlm.readout import linear
from esnlm.reservoir.arrays import as_scipy

BASELINE = "esnlm"
THREADS = {"SciPy": None, "SciPy, one thread": "1"}  # None: as many as the library takes by itself
PARTS = ("read", "logits", "choose")
CALLS = 20  # of a part in a turn, so that asking another process for it does not count


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096], help="N")
    parser.add_argument("--vocab", type=int, nargs="+", default=[8192, 50257], help="V")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--tokens", type=int, default=200, help="of a text")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--copy-megabytes", type=int, default=512)
    args = parser.parse_args(arguments)
    record = measure.begin()
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    bandwidth = measure.best_peak(record["copy_bytes_per_s"])
    record["rows"] = [measure_generation(size, vocab, args, bandwidth) for size in args.sizes for vocab in args.vocab]
    text = markdown(record)
    print("\n".join(text))
    measure.write(args.out, "generation", "Generation", text, record)
    return record


def measure_generation(size: int, vocab_size: int, args: argparse.Namespace, copy_bandwidth: float) -> dict:
    """Returns one row: all contenders at one N and V."""
    model = (size, vocab_size, args.rank)
    contenders = {BASELINE: Esnlm(*model)} | {name: start(threads, *model) for name, threads in THREADS.items()}
    found = {}

    def generate(name: str, i: int) -> None:
        found[name] = contenders[name].generate(args.tokens, args.temperature, i)

    seconds, failures = measure.interleave({name: partial(generate, name) for name in contenders}, args.rounds)
    compared = measure.compare(seconds, BASELINE)
    for name, result in compared.items():
        result["tokens_per_s"] = args.tokens / result["median_s"]
        result["agree"] = agreement(found[BASELINE], found[name])
    turns = {
        (name, part): partial(contender.repeat, part, args.temperature)
        for name, contender in contenders.items()
        for part in PARTS
    }
    alone, _ = measure.interleave(turns, args.rounds)
    parts = {name: {part: float(np.median(alone[name, part])) / CALLS for part in PARTS} for name in contenders}
    floor = contenders["SciPy"].bytes_of_a_token() / copy_bandwidth
    for name in THREADS:
        contenders[name].close()
    return {
        "size": size,
        "vocab_size": vocab_size,
        "rank": args.rank,
        "tokens": args.tokens,
        "contenders": compared,
        "failures": failures,
        "floor_s": floor,
        "share_of_floor": floor * compared[BASELINE]["tokens_per_s"],
        "parts_s": parts,
    }


def agreement(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Returns after how many tokens two texts differ for the first time, or the length of both."""
    different = np.flatnonzero(ours != theirs)
    return int(different[0]) if len(different) else len(ours)


class Contender:
    """What writes texts, and has the parts of a token as methods."""

    def repeat(self, part: str, temperature: float, i: int) -> None:
        """Computes a part of a token again and again."""
        for _ in range(CALLS):
            getattr(self, part)(temperature)


class Esnlm(Contender):
    """A run whose text is the ids themselves."""

    def __init__(self, size: int, vocab_size: int, rank: int):
        ends = {"bos": vocab_size - 1, "eos": -1}
        tokenizer = SimpleNamespace(vocab_size=vocab_size, encode=lambda text: [], decode=lambda ids: ids, **ends)
        run = untrained.initialize(size, vocab_size, rank)
        self.run: esnlm.Run = dataclasses.replace(run, tokenizer=tokenizer)
        self.reader = run.model.for_device(run.config.compute).reader(1, 1)
        self.readout = run.model.readout_arrays(run.model.params)
        self.features = self.reader(np.array([0]))
        self.found, self.rng = self.logits(), np.random.default_rng(0)

    def generate(self, tokens: int, temperature: float, seed: int) -> np.ndarray:
        return self.run.generate(length=tokens, temperature=temperature, seed=seed)[0]

    def read(self, temperature: float) -> None:
        self.reader(np.array([0])).block_until_ready()

    def logits(self, temperature: float = 1.0) -> np.ndarray:
        return np.asarray(_logits(self.readout, self.features), np.float64)[0]

    def choose(self, temperature: float) -> int:
        return choose(self.found, temperature, None, self.rng)


@jax.jit
def _logits(readout: dict, features: jax.Array) -> jax.Array:
    return linear.logits(readout, features, "float32")


def start(threads: str | None, *model: int) -> measure.Apart:
    """Starts a loop of SciPy in a process of its own, with so many threads for NumPy's products."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    if threads is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = threads
    try:
        return measure.Apart(Loop, *model)
    finally:
        if threads is not None:
            os.environ.pop("OPENBLAS_NUM_THREADS")
            os.environ |= {} if before is None else {"OPENBLAS_NUM_THREADS": before}


class Loop(Contender):
    """The same model, written down plainly."""

    def __init__(self, size: int, vocab_size: int, rank: int):
        measure.set_up()
        model = untrained.initialize(size, vocab_size, rank).model
        reservoir, readout = model.reservoir, model.readout
        self.w_rec = as_scipy(reservoir.w_rec).astype(np.float32)  # CSR
        self.w_in = as_scipy(reservoir.w_in).astype(np.float32).tocsc()
        self.leak = np.array(reservoir.leak[...])
        self.a, self.b, self.bias = (np.array(x[...]) for x in (readout.a, readout.b, readout.bias))
        self.keep, self.bos = 1 - self.leak, vocab_size - 1
        self.h, self.rng = self.advance(np.zeros_like(self.leak), self.bos), np.random.default_rng(0)
        self.found = self.logits_of(self.h)

    def generate(self, tokens: int, temperature: float, seed: int) -> np.ndarray:
        rng, h, token, chosen = np.random.default_rng((seed, 0)), np.zeros_like(self.leak), self.bos, []
        for _ in range(tokens):
            h = self.advance(h, token)
            token = self.choice(self.logits_of(h), temperature, rng)
            chosen.append(token)
        return np.array(chosen)

    def advance(self, h: np.ndarray, token: int) -> np.ndarray:
        drive = self.w_rec @ h
        own = slice(self.w_in.indptr[token], self.w_in.indptr[token + 1])
        drive[self.w_in.indices[own]] += self.w_in.data[own]
        return self.keep * h + self.leak * np.tanh(drive)

    def logits_of(self, h: np.ndarray) -> np.ndarray:
        return self.a @ (self.b @ h) + self.bias

    def choice(self, logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
        logits = logits.astype(np.float64)
        if temperature == 0:
            return int(logits.argmax())
        p = np.exp((logits - logits.max()) / temperature)
        return int(rng.choice(len(p), p=p / p.sum()))

    def bytes_of_a_token(self) -> float:
        """Returns the bytes that must be read or written for a token."""
        matrices = 8 * self.w_rec.nnz + 4 * (len(self.leak) + 1) + 8 * self.w_in.nnz / self.w_in.shape[1]
        return matrices + self.a.nbytes + self.b.nbytes + self.bias.nbytes + 3 * self.leak.nbytes

    def read(self, temperature: float) -> None:
        self.advance(self.h, 0)

    def logits(self, temperature: float) -> None:
        self.logits_of(self.h)

    def choose(self, temperature: float) -> int:
        return self.choice(self.found, temperature, self.rng)


def markdown(record: dict) -> list[str]:
    first, cells, parts = record["rows"][0], [], []
    for row in record["rows"]:
        for name, result in row["contenders"].items():
            spread = [1e3 * result[key] / row["tokens"] for key in ("median_s", "min_s", "max_s")]
            cells.append([row["size"], row["vocab_size"], name, result["tokens_per_s"], *spread, result["slower"]])
            cells[-1].append(f"{result['agree']:,}")
            own = row["parts_s"][name]
            parts.append([row["size"], row["vocab_size"], name, *(1e3 * own[part] for part in PARTS)])
    head = ["N", "V", "", "tokens/s", "ms a token", "least", "most", f"x {BASELINE}", "tokens that agree"]
    floors = [
        f"- N = {row['size']:,}, V = {row['vocab_size']:,}: floor {1e3 * row['floor_s']:.3g} ms a token, {1 / row['floor_s']:,.0f}"
        f" tokens/s; esnlm reaches {row['share_of_floor']:.0%} of it"
        for row in record["rows"]
    ]
    failed = [f"- {name} failed: {error}" for row in record["rows"] for name, error in row["failures"].items()]
    copies = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in record["copy_bytes_per_s"].items())
    return [
        f"One continuation of {first['tokens']:,} tokens, float32, r = {first['rank']}, one lane. Medians of rounds in which the"
        " contenders take turns;",
        f"`x {BASELINE}` is the median over rounds of a contender's time over esnlm's. benchmarks/generation.py says who is who and"
        " what the floor is.",
        "",
        *measure.table(head, cells),
        "",
        *floors,
        *failed,
        f"- copy, GB/s read and written: {copies}",
        "",
        "The parts of a token, ms, each measured apart:",
        "",
        *measure.table(["N", "V", "", *PARTS], parts),
    ]


if __name__ == "__main__":
    measure.as_command(main)
