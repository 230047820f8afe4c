"""Minimal pairs per second: esnlm, which evaluates each prefix once, against padded batches.

    python benchmarks/scoring.py --pairs data/blimp --tokenizer gpt2 --limit 4000

    esnlm          Run.token_log_probs_of_ids, as `eval_blimp.py` calls it
    plain jax      padded batches of --batch sentences, all logits, jax.nn.log_softmax; the same
                   recurrence kernel
    plain torch    the same in PyTorch: torch.sparse, a Python loop over time, torch.log_softmax

The readout is untrained, which does not change the time. Each contender scores all sentences in its
turn, and the log-probabilities are compared.

Writes scoring.json and .md under --out.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import measure
import numpy as np
import untrained
from jax import lax

from esnlm.data.tokenizer import load_tokenizer
from esnlm.evaluation import conventions, minimal_pairs

if measure.torch is not None:
    import peers
    import torch

BASELINE = "esnlm"


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__, rounds=3)
    parser.add_argument(
        "--pairs",
        type=Path,
        nargs="+",
        required=True,
        help="JSONL files of minimal pairs, or a folder",
    )
    parser.add_argument("--tokenizer", default="gpt2", help="of the pairs: gpt2 or a folder")
    parser.add_argument(
        "--limit", type=int, default=4000, help="sentences, spread over the paradigms"
    )
    parser.add_argument("--size", type=int, default=4096, help="N")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--batch", type=int, default=32, help="sentences in a padded batch")
    args = parser.parse_args(arguments)
    record = measure.begin()
    sentences, vocab_size = read(args)
    record["row"] = measure_scoring(sentences, vocab_size, args)
    text = markdown(record)
    print("\n".join(text))
    measure.write(args.out, "scoring", "Scoring minimal pairs", text, record)
    return record


def read(args: argparse.Namespace) -> tuple[list[np.ndarray], int]:
    """Returns the sentences as ids, good and bad in turn, and the vocabulary size."""
    pairs = measure.spread(minimal_pairs.load(args.pairs), args.limit // 2)
    tokenizer = load_tokenizer(args.tokenizer)
    text = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    return conventions.encode(text, tokenizer, "paper"), tokenizer.vocab_size


def measure_scoring(sentences: list[np.ndarray], vocab_size: int, args: argparse.Namespace) -> dict:
    """Returns the speed and the scores of each contender."""
    run = untrained.initialize(args.size, vocab_size, args.rank)
    cell, params = run.model.for_device(run.config.compute).cell, run.model.params["readout"]
    batches = [sentences[i : i + args.batch] for i in range(0, len(sentences), args.batch)]
    contenders = {
        BASELINE: lambda _: np.array([x.sum() for x in run.token_log_probs_of_ids(sentences)]),
        "plain jax": lambda _: np.concatenate(
            [plain_jax(cell, params, batch, args.batch) for batch in batches]
        ),
    }
    if measure.torch is not None:
        torch_way = measure.Apart(PlainTorch, args.size, vocab_size, args.rank, batches)
        contenders["plain torch"] = torch_way.score
    found = {}
    seconds, failures = measure.interleave(contenders, args.rounds, last=found)
    if measure.torch is not None:
        torch_way.close()
    compared = measure.compare(seconds, BASELINE)
    for name, result in compared.items():
        result["sentences_per_s"] = len(sentences) / result["median_s"]
        result["largest_difference"] = float(np.abs(found[name] / found[BASELINE] - 1).max())
    predictions = sum(len(sentence) - 1 for sentence in sentences)
    padded = sum(len(batch) * (max(map(len, batch)) - 1) for batch in batches)
    distinct = len(
        {sentence[:t].tobytes() for sentence in sentences for t in range(1, len(sentence))}
    )
    return {
        "size": args.size,
        "vocab_size": vocab_size,
        "rank": args.rank,
        "sentences": len(sentences),
        "predictions": predictions,
        "distinct_prefixes": distinct,
        "real_share_of_padded": predictions / padded,
        "contenders": compared,
        "failures": failures,
        "states_per_s": distinct / compared[BASELINE]["median_s"],
        "minutes_for_blimp": 134_000 / compared[BASELINE]["sentences_per_s"] / 60,
    }


def plain_jax(cell, params: dict, sentences: list[np.ndarray], width: int) -> np.ndarray:
    """Returns log p of each sentence. The length is padded to a multiple of 8, so that few shapes
    are compiled."""
    length = -(-(max(map(len, sentences)) - 1) // 8) * 8
    inputs, targets = np.zeros((2, length, width), np.int32)
    mask = np.zeros((length, width), np.float32)
    for i, sentence in enumerate(sentences):
        own = slice(len(sentence) - 1)
        inputs[own, i], targets[own, i], mask[own, i] = sentence[:-1], sentence[1:], 1
    return np.asarray(_plain_jax(cell, params, inputs, targets, mask))[: len(sentences)]


@jax.jit
def _plain_jax(cell, params, inputs, targets, mask):
    def step(h, tokens):
        h = cell.step(h, tokens)
        return h, h.T

    states = lax.scan(step, cell.initial_state(inputs.shape[1]), inputs)[1]  # (T, B, N)
    with jax.default_matmul_precision("float32"):
        # (T, B, V)
        log_probs = jax.nn.log_softmax(states @ params["b"].T @ params["a"].T + params["bias"])
    return (jnp.take_along_axis(log_probs, targets[..., None], axis=2)[..., 0] * mask).sum(0)


class PlainTorch:
    """PyTorch on the same batches, in its own process, since its threads and JAX's would wait for
    each other."""

    def __init__(self, size: int, vocab_size: int, rank: int, batches: list):
        measure.set_up()
        measure.torch_precision("float32")
        model = untrained.initialize(size, vocab_size, rank).model
        self.reservoir = peers.TorchReservoir(model.reservoir)
        self.readout = peers.Readout(model.params["readout"])
        self.batches = batches

    def score(self, _: int) -> np.ndarray:
        """Returns log p of each sentence."""
        with torch.no_grad():
            return np.concatenate([self._score(batch) for batch in self.batches])

    def _score(self, sentences: list[np.ndarray]) -> np.ndarray:
        inputs, targets = (
            torch.from_numpy(x).to(measure.TORCH_DEVICE) for x in peers.pad(sentences)
        )  # (B, T)
        h, states = self.reservoir.zeros(len(sentences)), []
        for t in range(inputs.shape[1]):
            h = self.reservoir.step(h, inputs[:, t])
            states.append(h.T)
        log_probs = torch.log_softmax(self.readout(torch.stack(states, dim=1)), dim=-1)  # (B, T, V)
        chosen = log_probs.gather(2, targets.clamp(min=0)[..., None])[..., 0]
        return (chosen * (targets != peers.IGNORED)).sum(1).cpu().numpy()


def markdown(record: dict) -> list[str]:
    row = record["row"]
    results = sorted(row["contenders"].items(), key=lambda item: item[1]["median_s"])
    cells = [
        [
            name,
            r["sentences_per_s"],
            r["median_s"],
            r["min_s"],
            r["max_s"],
            r["slower"],
            r["largest_difference"],
        ]
        for name, r in results
    ]
    return [
        (
            f"{row['sentences']:,} sentences, N = {row['size']:,}, V = {row['vocab_size']:,}, r ="
            f" {row['rank']}, float32. Medians over rounds in turns. Difference: the largest of a"
            " sentence's log-probability from esnlm's, as a share of it."
        ),
        "",
        *measure.table(
            ["", "sentences/s", "s", "least", "most", f"x {BASELINE}", "difference"], cells
        ),
        "",
        (
            f"- {row['predictions']:,} predictions, {row['real_share_of_padded']:.0%} of the padded"
            f" batches; {row['distinct_prefixes']:,} distinct prefixes"
            f" ({row['distinct_prefixes'] / row['predictions']:.0%})"
        ),
        (
            f"- esnlm: {row['states_per_s']:,.0f} states/s;"
            f" BLiMP's 134,000 sentences at this rate: {row['minutes_for_blimp']:.1f} minutes"
        ),
        *(f"- {name} failed: {error}" for name, error in row["failures"].items()),
    ]


if __name__ == "__main__":
    measure.as_command(main)
