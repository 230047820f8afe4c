"""What the precision of the readout's products does to a trained run's scores.

    python benchmarks/precision.py --run runs/first --pairs blimp/

Each precision scores the same minimal pairs; beside it stand the largest and the mean error of a sentence's
log-probability against float64 (NumPy, on --reference sentences) and the share of the pairs whose answer is another
than float32's. On a CPU tf32 is emulated: the factors of a product are rounded to 10 bits, as the hardware does.

Writes precision.json and .md under --out.
"""

import argparse
import dataclasses
import time
from pathlib import Path

import measure
import numpy as np
import scipy.sparse

import esnlm
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.sequences import encode

PRECISIONS = ("float32", "tf32", "bf16")


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--pairs", type=Path, nargs="+", required=True)
    parser.add_argument("--limit", type=int, default=67_000, help="pairs, spread over the paradigms")
    parser.add_argument("--reference", type=int, default=400, help="sentences in float64")
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    args = parser.parse_args(arguments)
    measure.set_up()
    run = esnlm.load(args.run)
    pairs = minimal_pairs.load(args.pairs)
    pairs = pairs[:: max(1, len(pairs) // args.limit)][: args.limit]
    sequences = encode(
        [sentence for pair in pairs for sentence in (pair.good, pair.bad)], run.tokenizer, "paper"
    )
    spread = np.linspace(0, len(sequences) - 1, min(args.reference, len(sequences))).astype(int)
    weights = float64_weights(run)
    truth = np.array([float64_log_prob(*weights, sequences[i]) for i in spread])
    record = {
        "command": measure.command(),
        "load_before": measure.load(),
        "machine": measure.machine(),
        "model": run.config.model.title,
        "pairs": len(pairs),
        "rows": {},
    }
    answers = {}
    for precision in PRECISIONS:
        compute = dataclasses.replace(run.config.compute, precision=precision)
        other = dataclasses.replace(run, config=dataclasses.replace(run.config, compute=compute))
        began = time.perf_counter()
        found = np.array([log_probs.sum(dtype=np.float64) for log_probs in other.token_log_probs_of(sequences)])
        answers[precision] = found[::2] > found[1::2]
        error = np.abs(found[spread] - truth)
        record["rows"][precision] = {
            "largest_error_nats": float(error.max()),
            "mean_error_nats": float(error.mean()),
            "accuracy": float(answers[precision].mean()),
            "answers_changed": float((answers[precision] != answers["float32"]).mean()),
            "seconds": time.perf_counter() - began,
        }
        print(precision, record["rows"][precision], flush=True)
    record["load_after"] = measure.load()
    measure.write(args.out, "precision", "Precision", markdown(record, len(spread)), record)
    return record


def float64_weights(run: esnlm.Run) -> tuple:
    """W_rec (sparse), the columns of W_in (V, N) (sparse), a, f, the readout's factors from the states on, and its bias."""
    reservoir, readout = run.model.reservoir, run.model.readout
    w_rec, w_in = (_scipy(matrix) for matrix in (reservoir.w_rec, reservoir.w_in))
    factors = [readout.b, readout.a] if hasattr(readout, "a") else [readout.w]
    f = np.tanh if run.config.model.reservoir.activation == "tanh" else lambda x: np.maximum(x, 0)
    dense = (np.asarray(array[...], np.float64) for array in (*factors, readout.bias, reservoir.leak))
    *factors, bias, a = dense
    return w_rec, w_in.T.tocsr(), a, f, factors, bias


def float64_log_prob(w_rec, columns, a, f, factors, bias, ids: np.ndarray) -> float:
    """log p of one sentence of an echo state network in float64 NumPy."""
    h, total = np.zeros(len(a)), 0.0
    for token, following in zip(ids[:-1], ids[1:], strict=True):
        h = (1 - a) * h + a * f(w_rec @ h + columns[[token]].toarray()[0])
        o = h
        for w in factors:
            o = w @ o
        o = o + bias
        total += o[following] - o.max() - np.log(np.exp(o - o.max()).sum())
    return total


def _scipy(matrix):
    row, column = np.asarray(matrix.indices).T
    return scipy.sparse.csr_array((np.asarray(matrix.data, np.float64), (row, column)), shape=matrix.shape)


def markdown(record: dict, reference: int) -> list[str]:
    head = ["", "largest error, nats", "mean error, nats", "accuracy", "answers that change", "s"]
    cells = [
        [
            name,
            row["largest_error_nats"],
            row["mean_error_nats"],
            f"{row['accuracy']:.2%}",
            f"{row['answers_changed']:.3%}",
            row["seconds"],
        ]
        for name, row in record["rows"].items()
    ]
    return [
        f"{record['model']}, {record['pairs']:,} minimal pairs; errors of a sentence's log-probability on {reference} sentences. The"
        " accuracy is of all pairs, ties wrong.",
        "",
        *measure.table(head, cells),
        "",
    ]


if __name__ == "__main__":
    measure.as_command(main)
