"""Effect of the precision of the readout's products, and of the states that W_rec reads, on a
trained run's scores.

    python benchmarks/precision.py --run runs/first --pairs blimp/

Each precision scores the same minimal pairs. Its row has the largest and the mean error of a
sentence's log-probability against float64 (NumPy, on --reference sentences), and the share of the
pairs whose answer is not that of float32. On a CPU tf32 is emulated: the factors of a product are
rounded to 10 bits, as the hardware does. "bf16 states" is `compute.state_precision: bf16` with a
readout in float32. Its rounding is the same on every device: what W_rec reads is rounded to
bfloat16, and its sums are in float32. "dense tf32" and "dense bf16" are the kernel `dense`, which
rounds W_rec too. Errors of a state are those after the last token of the sentences in float64,
whose units are within -1 and 1.

Writes precision.json and .md under --out.
"""

import dataclasses
import time
from itertools import product
from pathlib import Path

import measure
import numpy as np

import esnlm
from esnlm.base.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.conventions import encode, sum_log_probs
from esnlm.models.echo_state import EchoState
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import ReservoirLayer

PRECISIONS = {
    "float32": {"precision": "float32", "state_precision": "float32"},
    "tf32": {"precision": "tf32", "state_precision": "float32"},
    "bf16": {"precision": "bf16", "state_precision": "float32"},
    "bf16 states": {"precision": "float32", "state_precision": "bf16"},
    "dense tf32": {"precision": "float32", "state_precision": "tf32", "kernel": "dense"},
    "dense bf16": {"precision": "float32", "state_precision": "bf16", "kernel": "dense"},
}


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--pairs", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--limit", type=int, default=67_000, help="pairs, spread over the paradigms"
    )
    parser.add_argument("--reference", type=int, default=400, help="sentences in float64")
    parser.add_argument(
        "--rows", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="float32 and these"
    )
    parser.add_argument("--name", default="precision", help="of the files")
    args = parser.parse_args(arguments)
    record = measure.begin()
    run = esnlm.load(args.run)
    pairs = measure.spread(minimal_pairs.load(args.pairs), args.limit)
    sequences = encode(
        [sentence for pair in pairs for sentence in (pair.good, pair.bad)], run.tokenizer, "paper"
    )
    checked = measure.spread(range(len(sequences)), args.reference)
    log_probs, states = float64_log_probs(run.model, [sequences[i] for i in checked])
    truth = sum_log_probs(log_probs)
    record |= {"model": run.config.model.title, "pairs": len(pairs), "rows": {}}
    answers = {}
    for precision in dict.fromkeys(["float32", *args.rows]):
        began, rounded = time.perf_counter(), with_precision(run, **PRECISIONS[precision])
        found = sum_log_probs(rounded.token_log_probs_of_ids(sequences))
        state_error = np.abs(last_states(rounded, [sequences[i] for i in checked]) - states)
        answers[precision] = found[::2] > found[1::2]
        error = np.abs(found[checked] - truth)
        record["rows"][precision] = {
            "largest_error_nats": float(error.max()),
            "mean_error_nats": float(error.mean()),
            "largest_error_state": float(state_error.max()),
            "rms_error_state": float(np.sqrt((state_error**2).mean())),
            "accuracy": float(answers[precision].mean()),
            "answers_changed": float((answers[precision] != answers["float32"]).mean()),
            "seconds": time.perf_counter() - began,
        }
        print(precision, record["rows"][precision], flush=True)
    measure.write(args.out, args.name, "Precision", markdown(record, len(checked)), record)
    return record


def with_precision(run: esnlm.Run, **settings: str) -> esnlm.Run:
    """Returns the same run with another precision of the readout's products or of the states."""
    compute = dataclasses.replace(run.config.compute, **settings)
    return dataclasses.replace(run, config=dataclasses.replace(run.config, compute=compute))


def last_states(run: esnlm.Run, sequences: list[np.ndarray]) -> np.ndarray:
    """Returns the state that predicts the last token of each sequence, (sequences, N)."""
    stream = run.model.for_device(run.config.compute).stream(run.config.compute)
    buffer, rows = stream.read([ids[:-1] for ids in sequences])
    return np.asarray(buffer[np.array([row[-1] for row in rows])])


def float64_log_probs(
    model: EchoState, sequences: list[np.ndarray]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns log p of all tokens but the first of each sequence, and the last state of each,
    (sequences, N).

    Both are in float64 NumPy, of one layer of reservoir; raises InputError for other models.
    """
    reservoir = getattr(model, "reservoir", None)
    is_known = isinstance(reservoir, ReservoirLayer) and reservoir.embedding is None
    if not is_known or (reservoir.update_rule, reservoir.activation) not in product(
        ["leaky_output"], ["tanh", "relu"]
    ):
        raise InputError(
            "--run: needs one layer without an embedding, the update rule leaky_output, and tanh or"
            " relu"
        )
    readout = model.readout
    w_rec, columns = as_scipy(reservoir.w_rec), as_scipy(reservoir.w_in).T.tocsr()  # (N, N), (V, N)
    factors = [readout.b, readout.a] if hasattr(readout, "a") else [readout.w]
    *factors, bias, leak = (
        np.asarray(array[...], np.float64) for array in (*factors, readout.bias, reservoir.leak)
    )
    a, f = leak[:, None], np.tanh if reservoir.activation == "tanh" else lambda x: np.maximum(x, 0)
    found = [np.empty(len(ids) - 1) for ids in sequences]
    h = np.zeros((len(leak), len(sequences)))
    for t in range(max(map(len, sequences)) - 1):
        running = [i for i, ids in enumerate(sequences) if len(ids) > t + 1]
        drive = w_rec @ h[:, running] + columns[[sequences[i][t] for i in running]].toarray().T
        h[:, running] = (1 - reservoir.decay * a) * h[:, running] + a * f(drive)
        o = h[:, running]
        for w in factors:
            o = w @ o
        o += bias[:, None]  # (V, B)
        o -= o.max(0)
        for slot, i in enumerate(running):
            found[i][t] = o[sequences[i][t + 1], slot] - np.log(np.exp(o[:, slot]).sum())
    return found, h.T


def markdown(record: dict, reference: int) -> list[str]:
    head = [
        "",
        "largest error, nats",
        "mean error, nats",
        "largest of a state",
        "root mean square of a state",
        "accuracy",
    ]
    head += ["answers that change", "s"]
    errors = ("largest_error_nats", "mean_error_nats", "largest_error_state", "rms_error_state")
    cells = []
    for name, row in record["rows"].items():
        cells.append([name, *(row[key] for key in errors), f"{row['accuracy']:.2%}"])
        cells[-1] += [f"{row['answers_changed']:.3%}", row["seconds"]]
    return [
        (
            f"{record['model']}, {record['pairs']:,} minimal pairs; errors of a sentence's"
            f" log-probability on {reference} sentences. The accuracy is of all pairs, ties wrong."
        ),
        "",
        *measure.table(head, cells),
        "",
    ]


if __name__ == "__main__":
    measure.as_command(main)
