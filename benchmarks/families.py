"""Training tokens per second of models of any family, side by side on the same sentences, and of an
LSTM in PyTorch.

    python benchmarks/families.py --store stores/train-1M-bpe8k --configs \\
        configs/frontier/deep_readout.yaml configs/real_text/two_cores/esn_sparse.yaml \\
        configs/real_text/two_cores/lstm.yaml
    python benchmarks/families.py --store stores/train-1M-bpe8k --configs \\
        configs/real_text/two_cores/esn_sparse.yaml --precisions float32 bf16

A configuration sets the model and its training. Its data section is ignored: all models take their
sentences from --store, in the same batches. LSTM (torch) is benchmarks/peers.py's, with 512 units.
Each model has its own process, so that its threads and memory do not disturb the others, and keeps
freed memory like `esnlm train`.

A round is --updates updates. If a model trains on features computed ahead, these are computed for a
whole prefetch window, as in a run, and the round's share of that time is added: `ahead` is this
part of an update's time, and `states/s` the tokens per second of computing features. The time
includes reading the sentences of a window, which a run does in parallel with the updates. Only real
tokens count. Other models are compared with the first configuration that can be measured. With
--precisions, each configuration and PyTorch's LSTM are measured in each of these precisions, in
this order; without it, the LSTM uses float32. With --torch-esn, the first configuration, an echo
state network with a low-rank readout, is also measured in PyTorch: the states of all updates of a
round side by side, by the fastest of PyTorch's products with W_rec, and the readout on real tokens
only; with --compiled also with torch.compile. First losses are for the same sentences, before any
update. The readout is padded as in a run on this device.

Writes families.json and .md under --out, after each round.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import measure
import numpy as np

from esnlm.base.errors import InputError
from esnlm.data.sources import CorpusSize
from esnlm.data.store import TokenStore, open_store
from esnlm.models.devices import choose_compute, find_machine, placement_of
from esnlm.training import config_io
from esnlm.training.batches import EpochPlan, plan_epoch
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.gradient import GradientTrainer
from esnlm.training.inputs import PrecomputedInputs, TokenInputs
from esnlm.training.optimizer import learning_rates
from esnlm.training.run import needs_one_heap
from esnlm.training.update import Updates

if measure.torch is not None:
    import peers

TORCH, TORCH_ESN = "LSTM (torch)", "ESN (torch)"


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__, rounds=5)
    parser.add_argument(
        "--configs", type=Path, nargs="+", required=True, help="configurations of training, YAML"
    )
    parser.add_argument(
        "--store", type=Path, required=True, help="take the sentences from this token store"
    )
    parser.add_argument(
        "--precisions",
        choices=("float32", "tf32", "bf16"),
        nargs="+",
        help="default: that of each configuration",
    )
    parser.add_argument(
        "--torch-esn", action="store_true", help="the first configuration in PyTorch, too"
    )
    parser.add_argument("--compiled", action="store_true", help="and with torch.compile")
    parser.add_argument(
        "--patience",
        type=float,
        help="seconds after which a contender that is not ready is left out",
    )
    parser.add_argument("--updates", type=int, default=20, help="updates a round")
    args = parser.parse_args(arguments)
    record = measure.begin()
    experiments = {file.stem: config_io.read(file) for file in args.configs}

    def write(found: dict) -> None:
        record.update(found)
        measure.write(
            args.out, "families", "Training speed of the families", markdown(record), record
        )

    measure_families(experiments, args, write)
    return record


def measure_families(
    experiments: dict[str, Experiment], args: argparse.Namespace, write: Callable[[dict], None]
) -> None:
    """Calls `write` with the results of all contenders after each round."""
    if args.precisions:
        experiments = {
            f"{name}, {p}": dataclasses.replace(
                own, compute=dataclasses.replace(own.compute, precision=p)
            )
            for name, own in experiments.items()
            for p in args.precisions
        }
    text, window, batch_size = plan(experiments, args)
    vocab_size = text.store.manifest["tokenizer"]["vocab_size"]
    given = text, window, vocab_size
    windows = [text.batches(i) for i in range(args.rounds)]
    count = min(args.updates, *map(len, windows))  # updates a round
    own = {
        name: measure.Apart(Family, experiment, *given, count)
        for name, experiment in experiments.items()
    }
    peer = {}
    if measure.torch is not None:
        first, chosen = next(iter(experiments.values())), args.precisions or ["float32"]
        suffixes = {precision: f", {precision}" if args.precisions else "" for precision in chosen}
        of_esn = [
            (p, compiled)
            for compiled in (False, True)[: 1 + args.compiled]
            for p in chosen[: 1 if compiled else None]
        ]
        for precision, compiled in of_esn if args.torch_esn else []:
            name = TORCH_ESN + suffixes[precision] + ", compiled" * compiled
            peer[name] = measure.Apart(
                Torch, first, text.store, vocab_size, windows, count, precision, compiled
            )
        for precision, suffix in suffixes.items():
            peer[TORCH + suffix] = measure.Apart(
                Torch, None, text.store, vocab_size, windows, count, precision
            )
    about, broken = {}, {}
    until = None if args.patience is None else time.monotonic() + args.patience
    for name, process in (own | peer).items():
        try:
            about[name] = process.ask("about", until=until)
            print(f"{name}: ready", flush=True)
        except RuntimeError as error:  # the others may still be measured
            broken[name, "start"] = str(error)
    turns: dict = {}
    for name in about:
        if name in peer:
            turns[name, "updates"] = peer[name].updates
        else:
            # "warm" is not counted: as in a run, earlier updates leave memory that can be reused.
            turns |= {(name, "warm"): partial(own[name].run, 1), (name, "ahead"): own[name].load}
            turns[name, "updates"] = partial(own[name].run, count)
    shape = {"updates_a_round": count, "batch_size": batch_size, "vocab_size": vocab_size}

    def tell(seconds: dict, failures: dict) -> None:
        write(shape | figures(seconds, broken | failures, about, windows, count))

    measure.interleave(turns, args.rounds, tell)
    for started in (*own.values(), *peer.values()):
        started.close()


def figures(
    seconds: dict, failures: dict, about: dict[str, dict], windows: list, count: int
) -> dict:
    """Returns the results so far, from the seconds and failures of the turns, by the names of
    contender and turn."""
    loads = {name for name in about if about[name]["ahead"] is not None}  # all but PyTorch's
    timed = [
        name
        for name, part in seconds
        if part == "updates" and (name not in loads or (name, "ahead") in seconds)
    ]
    whole = {name: np.array(seconds[name, "updates"]) for name in timed}
    if not whole:
        raise InputError("no model could be measured: " + "; ".join(failures.values()))
    rounds = min(map(len, whole.values()))
    # of a window, whose updates a round makes
    share = count / np.array([len(window) for window in windows[:rounds]])
    ahead = {
        name: np.array(seconds[name, "ahead"]) * share * about[name]["ahead"]
        for name in loads & whole.keys()
    }
    whole |= {name: whole[name] + ahead[name] for name in ahead}
    compared = measure.compare({name: list(own) for name, own in whole.items()}, next(iter(whole)))
    made = [
        [sentence for batch in window[:count] for sentence in batch] for window in windows[:rounds]
    ]
    tokens = np.array([sum(len(sentence) - 1 for sentence in each) for each in made])
    for name, result in compared.items():
        result["tokens_per_s"] = float(np.median(tokens / result["rounds_s"]))
        result |= {key: value for key, value in about.get(name, {}).items() if key != "ahead"}
        if name in ahead:
            result["ahead_s"] = float(np.median(ahead[name]))
            result["states_per_s"] = (
                float(np.median(tokens / ahead[name])) if about[name]["ahead"] else None
            )
    return {
        "tokens_an_update": float(np.median(tokens / count)),
        "contenders": compared,
        "failures": {" ".join(name): error for name, error in failures.items()},
    }


@dataclass(frozen=True)
class Text:
    """Sentences, the plans of some epochs of them, and the prefetch windows to measure."""

    store: TokenStore
    epochs: list[EpochPlan]
    windows: list[tuple[int, range]]  # the number of the epoch, and the updates of the window

    def batches(self, i: int) -> list[list[np.ndarray]]:
        """Returns the sentences of each update of the i-th window."""
        epoch, window = self.windows[i]
        return [[self.store.sentence(s) for s in self.epochs[epoch].updates[u]] for u in window]


def plan(experiments: dict[str, Experiment], args: argparse.Namespace) -> tuple[Text, int, int]:
    """Returns the text, the tokens per prefetch window, and the sentences per update, which must be
    equal for all.

    The windows are those of a training from seed 0. A store that holds fewer than one a round is
    gone through again, in another order.
    """
    sizes = set()
    for experiment in experiments.values():
        if not isinstance(experiment.training, TrainingConfig):
            raise InputError(
                f"training.kind is {experiment.training.kind}: only training by gradients has"
                " updates"
            )
        sizes.add(experiment.training.batch_size)
    if len(sizes) > 1:
        raise InputError(
            f"training.batch_size is {', '.join(map(str, sorted(sizes)))}: give the same for all"
        )
    ready = [
        choose_compute(e.compute, e.model, jax.default_backend()) for e in experiments.values()
    ]
    window_tokens = min(compute.window_tokens for compute in ready)
    (batch_size,) = sizes
    store, epochs, windows = open_store(args.store), [], []
    while len(windows) < args.rounds:
        epoch = plan_epoch(store.lengths, 0, len(epochs), batch_size, window_tokens)
        full = epoch.windows[: max(1, len(epoch.windows) - 1)]  # the last one is not
        windows += [(len(epochs), window) for window in full]
        epochs.append(epoch)
    return Text(store, epochs, windows[: args.rounds]), window_tokens, batch_size


class Family:
    """The updates of one configuration, as in training/gradient.py, on windows chosen here; it compiles
    for all of them."""

    def __init__(
        self, experiment: Experiment, text: Text, window_tokens: int, vocab_size: int, count: int
    ):
        training, config = experiment.training, experiment.model
        measure.set_up(one_heap=needs_one_heap(experiment, vocab_size))  # as in `esnlm train`
        compute = choose_compute(experiment.compute, config, jax.default_backend())
        compute = dataclasses.replace(compute, window_tokens=window_tokens)
        frozen, _ = config.initialize_frozen(vocab_size, 0, text.store)
        model = config.initialize(vocab_size, 0, frozen)
        words = np.ones(1000, np.int64)  # of an update, for schedules that count them
        placement = placement_of(config, find_machine(config, compute), vocab_size)
        optimizer = GradientTrainer(training, config, None, CorpusSize(0, 0, vocab_size)).optimizer
        self.text, self.params = text, placement.shard(model.params)
        self.state = optimizer.init(self.params)
        self.ahead = config.precomputed_width > 0
        make = PrecomputedInputs if self.ahead else TokenInputs
        self.inputs = make(
            model=model.for_device(compute),
            compute=compute,
            seed=0,
            store=text.store,
            epochs=text.epochs,
            placement=placement,
        )
        self.inputs.following = {}  # no reading of other windows while updates are timed
        rates = learning_rates(training, len(words), words)
        self.updates = Updates(self.inputs, optimizer, rates, training.on_nonfinite)
        self.load(0)
        self.said = {
            "ahead": self.ahead,
            "title": config.title,
            "trained": model.counts().trainable,
        }
        self.said |= {"rows": placement.rows, "first_loss": self.run(1)}
        for i in reversed(range(len(text.windows))):
            self.load(i)
            self.run(count)

    def about(self) -> dict:
        """Returns title, trained entries, rows, first loss, and whether features are computed
        ahead."""
        return self.said

    def load(self, i: int) -> None:
        """Loads window i: computes the features ahead, if any, and packs the targets."""
        epoch, window = self.text.windows[i]
        self.inputs.load_window(epoch, window)
        if self.ahead:
            jax.block_until_ready(self.inputs.features)

    def run(self, count: int, _: int = 0) -> float:
        """Runs the first `count` updates of the loaded window and returns the first loss."""
        first = None
        for u in range(count):
            self.params, self.state, result = self.updates.run(self.params, self.state, u)
            first = result if first is None else first
        jax.block_until_ready((self.params, self.state))
        return float(first.loss)


class Torch:
    """PyTorch's LSTM, or an experiment's model in PyTorch, on the same windows, without separate
    turns for features."""

    def __init__(
        self,
        experiment: Experiment | None,
        store: TokenStore,
        vocab_size: int,
        windows: list,
        count: int,
        precision: str,
        compiled: bool = False,
    ):
        measure.set_up(one_heap=True)
        self.windows = [window[:count] for window in windows]
        if experiment is None:
            given = precision, peers.fastest_adamw({"a": np.empty((vocab_size, 512))})
            onednn = peers.onednn_is_faster(precision, (640, 512, vocab_size))
            self.model, title = peers.Lstm(vocab_size, *given, onednn=onednn), "LSTM 512"
        else:
            config = experiment.model
            model = config.initialize(
                vocab_size, 0, config.initialize_frozen(vocab_size, 0, store)[0]
            )
            params = model.params["readout"]
            layout, title = peers.fastest_layout(model.reservoir.w_rec, slots=512)
            given = params, precision, peers.fastest_adamw(params), compiled
            onednn = peers.onednn_is_faster(precision, (640, params["b"].shape[0], vocab_size))
            self.model = peers.PackedWay(
                peers.TorchReservoir(model.reservoir, layout), *given, onednn=onednn
            )
        self.said = {
            "ahead": None,
            "title": title,
            "first_loss": float(self.model.update(windows[0][0])),
        }
        self.updates(0)

    def about(self) -> dict:
        return self.said

    def updates(self, i: int) -> float:
        """Runs the first updates of window i and returns the last loss."""
        return float(self.model.updates(self.windows[i]))  # waits


def markdown(record: dict) -> list[str]:
    count, first = record["updates_a_round"], next(iter(record["contenders"]))
    cells = []
    for name, r in record["contenders"].items():
        cells.append([name, r.get("title", ""), r.get("trained"), r.get("rows"), r["tokens_per_s"]])
        cells[-1] += [1e3 * r[key] / count for key in ("median_s", "min_s", "max_s")]
        cells[-1] += [
            1e3 * r["ahead_s"] / count if r.get("states_per_s") else None,
            r.get("states_per_s"),
            r["slower"],
        ]
    head = [
        "",
        "model",
        "trained",
        "rows",
        "tokens/s",
        "ms an update",
        "least",
        "most",
        "ahead, ms",
        "states/s",
    ]
    head += [f"x {first}"]
    return [
        (
            f"Medians over {len(record['contenders'][first]['rounds_s'])} rounds of {count} updates"
            f" of {record['batch_size']} sentences, {record['tokens_an_update']:.0f} tokens on"
            f" average, in which the models take turns; V = {record['vocab_size']:,}. `ahead` is"
            " what"
        ),
        (
            "an update's share of the features computed ahead takes. `rows` are the readout's: V"
            " and a run's padding."
        ),
        f"`x {first}` is the median over rounds of a model's time over that of {first}.",
        "",
        *measure.table(head, cells),
        *(f"- {name} failed: {error}" for name, error in record["failures"].items()),
    ]


if __name__ == "__main__":
    measure.as_command(main)
