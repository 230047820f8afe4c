"""Compiles the hot programs of a run for an absent device, and reports XLA's analysis of them.

    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100
    # eight GPUs: data x vocabulary
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100:1x8x1 --mesh 2x4
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target tpu-v5e:4x4 --only 'ESN 4,096'
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100 --vocabulary 8192 \\
        --configs FILE FILE

The compilers for other devices are plugins of JAX and need no such device. Install the plugins that
match your JAX into separate folders, and list the folders in ESNLM_AOT, separated as in PATH:

    # VERSION of jax
    pip install --no-deps --target FOLDER jax-cuda13-plugin==VERSION jax-cuda13-pjrt==VERSION
    # the version that the extra jax[tpu] of this jax asks for
    pip install --no-deps --target FOLDER "libtpu==..."

It compiles the programs of a run, with the settings that a run chooses on such a device. It runs
and measures nothing:

    update     loss, gradient and optimizer step of 32 sentences (training/update.py): 656
               predictions from rows of their own; with precomputed features 31 more from the row
               after BOS
    time step  features of a prefetch window (features/recurrence.py); a loop's body counts once
    scoring    log-probabilities of a chunk of features (evaluation/scoring.py)

GFLOP and GB are XLA's own count (`cost_analysis`). For a GPU XLA gives none, and GB are the
operands and results of all kernels in the compiled text; of the operand of a gather or scatter only
the rows count; the body of a loop counts once. "least" is the minimum for a program that keeps its
logits in memory: in an update the products read the parameters, and A once more, and write the
gradient; the optimizer reads both and its state, and writes parameters and state; logits are
written and read, and probabilities twice. Kernels, loops, conditionals and exchanges are counted in
the compiled text, which XLA_FLAGS=--xla_dump_to=FOLDER keeps. On several devices all figures are of
one of them. Writes compile_for.TARGET.json and .md under --out.
"""

import contextlib
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

# a plugin shall only compile: were it asked for devices, it would look for its own
os.environ["JAX_PLATFORMS"] = "cpu"
# or it asks the network which TPU this machine has
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import jax
import measure
import numpy as np
from flax import nnx
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esnlm.base.errors import InputError
from esnlm.data.sources import CorpusSize
from esnlm.evaluation import scoring
from esnlm.features import dropout, recurrence
from esnlm.features.batching import PackedSteps
from esnlm.features.recurrence import BY_DEVICE
from esnlm.features.stream import FeatureStream
from esnlm.machine.mesh import (
    BY_SLOT,
    BY_TOKEN,
    BY_UNIT,
    REPLICATED,
    Placement,
    make_mesh,
    rows_on,
)
from esnlm.models.base import READOUT_ARRAYS
from esnlm.models.devices import choose_compute
from esnlm.training import config_io, inputs
from esnlm.training.batches import Batch
from esnlm.training.config import Experiment
from esnlm.training.gradient import GradientTrainer
from esnlm.training.inputs import Inputs
from esnlm.training.update import Updates

CONFIGS = Path(__file__).parents[1] / "configs"
MODELS = {  # name: configuration and settings
    "ESN 4,096": ("esn_at_scale/esn.yaml", "--model.reservoir.state_size=4096"),
    "ESN 65,536": ("esn_at_scale/esn.yaml", "--model.reservoir.state_size=65536"),
    "LSTM": ("esn_at_scale/lstm.yaml",),
    "GPT-2": ("esn_at_scale/gpt2.yaml",),
    "deep readout": ("frontier/wide_bigrams.yaml",),
}
ROWS, FIRST_TARGETS = 656, 31  # predictions of an update from rows of their own, and the others
# of an update through time: the longest sentence, padded, and the slots that all are packed into
LENGTH, SLOTS = (
    96,
    8,
)
# that a window has room for; of the run, whose learning rates are a table
STEPS, UPDATES = (
    128,
    1000,
)
EXCHANGES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")

# XLA's description of a GPU that is not present: fields of its GpuDeviceInfoProto.
H100 = (
    "threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152"
    " threads_per_core_limit: 2048 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535"
    " block_dim_limit_z: 65535 registers_per_core_limit: 65536 registers_per_block_limit: 65536"
    " core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 l2_cache_size: 52428800"
    " shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448 memory_bandwidth:"
    " 3352320000000 device_memory_size: 84942979072 cuda_compute_capability { major: 9 }"
)
# JAX's name of the platform, the smallest topology (for GPUs partitions x hosts x devices per
# host), and XLA's description.
TARGETS = {"h100": ("cuda", "1x1x1", H100), "cpu": ("cpu", "", "")}
TARGETS |= {
    f"tpu-{kind}": ("tpu", shape, kind)
    for kind, shape in (("v5e", "2x2"), ("v5p", "2x2x1"), ("v6e", "2x2"))
}
BACKENDS = {"cuda": "gpu", "tpu": "tpu", "cpu": "cpu"}  # by which a run chooses its settings


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "--target", required=True, help=f"{', '.join(TARGETS)}, or several: h100:1x8x1, tpu-v5e:4x4"
    )
    parser.add_argument(
        "--mesh", help="DATAxVOCABULARY, on several devices (default: all along vocabulary)"
    )
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    parser.add_argument("--vocabulary", type=int, default=50_257, help="tokens")
    parser.add_argument("--configs", type=Path, nargs="+", help="compile these models instead")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="SECTION.KEY=VALUE", help="settings of all models"
    )
    parser.add_argument(
        "--only", default="", help="a regular expression: the models to compile (default: all)"
    )
    args = parser.parse_args(arguments)
    platform, devices = find(args.target)
    sizes = (
        dict(zip(("data", "vocabulary"), map(int, args.mesh.split("x")), strict=True))
        if args.mesh
        else None
    )
    mesh = make_mesh(sizes, devices if ":" in args.target or sizes else devices[:1])
    models = {file.stem: (file.resolve(),) for file in args.configs} if args.configs else MODELS
    record = measure.begin() | {"programs": {}}
    for name in filter(re.compile(args.only).search, models):
        file, *settings = models[name]
        settings += [
            "--run=unused",
            f"--compute.precision={args.precision}",
            *(f"--{each}" for each in args.set),
        ]
        experiment = config_io.read(CONFIGS / file, settings)
        model = Model(experiment, args.vocabulary, BACKENDS[platform], mesh, devices[0])
        with (
            contextlib.nullcontext()
            if mesh is None
            else jax.sharding.use_abstract_mesh(mesh.abstract_mesh)
        ):
            for what, traced, least in model.programs():
                label = f"{name}, {what}"
                record["programs"][label] = found = compile_it(traced, platform, least)
                print(label, found, flush=True)
        file, title = (
            f"compile_for.{args.target.replace(':', '.')}",
            f"Compiled for {args.target}, {args.precision}",
        )
        measure.write(args.out, file, title, markdown(record), record)
    return record


def find(name: str) -> tuple[str, list[Any]]:
    """Returns the platform of a target and its devices, to compile for."""
    kind, _, shape = name.partition(":")
    if kind not in TARGETS:
        raise InputError(f"--target {name}: no target of that name; choose {', '.join(TARGETS)}")
    platform, smallest, info = TARGETS[kind]
    if platform == "cpu":
        return platform, jax.devices()
    sys.path += filter(None, os.environ.get("ESNLM_AOT", "").split(os.pathsep))
    pattern, shape = {"cuda": "jax_plugins/xla_cuda*", "tpu": "libtpu"}[platform], shape or smallest
    if not any(any(Path(folder).glob(pattern)) for folder in filter(None, sys.path)):
        raise InputError(
            f"--target {name}: no plugin that compiles for {platform} was found; install it into a"
            " folder of its own, as benchmarks/compile_for.py says, and name the folder in"
            " ESNLM_AOT"
        )
    if platform == "tpu":
        return platform, list(topologies.get_topology_desc(f"{info}:{shape}", "tpu").devices)
    config = (
        f'gpu_device_info {{ {info} }} platform_name: "CUDA" dnn_version_info {{ major: 9 minor:'
        " 10 }"
    )
    found = topologies.get_topology_desc(shape, "cuda", target_config=config, topology=shape)
    return platform, list(found.devices)


class Absent(Placement):
    """A placement on absent devices, where no array can be put."""

    def replicate(self, tree: Any) -> Any:
        return tree


class NoText(Inputs):
    """The inputs of updates, without sentences."""

    batches = end_update = stream = None


class Model:
    """An untrained model as in a run on a kind of device; its programs are traced with shapes
    instead of arrays."""

    def __init__(
        self, experiment: Experiment, vocab_size: int, backend: str, mesh: Mesh | None, device: Any
    ):
        self.experiment, self.config, self.devices = (
            experiment,
            experiment.model,
            mesh.size if mesh else 1,
        )
        self.compute = choose_compute(experiment.compute, self.config, backend, self.devices)
        whole = self.config.initialize(
            vocab_size, 0, self.config.initialize_frozen(vocab_size, 0)[0]
        )
        self.model, self.mesh = (
            whole.for_device(self.compute),
            mesh or Mesh(np.array([device]), ("device",)),
        )
        # features that a trunk makes
        reads_whole = self.config.precomputed_width > 0 and not self.config.features_are_frozen
        is_cut = (
            mesh is not None and self.config.feature_size % self.devices == 0 and not reads_whole
        )
        can_be_padded = mesh is not None or self.config.readout_can_be_padded
        rows = (
            rows_on(backend, vocab_size, mesh.shape["vocabulary"] if mesh else 1)
            if can_be_padded
            else vocab_size
        )
        by_token = self.config.token_arrays if mesh else READOUT_ARRAYS
        self.placement = Absent(mesh, vocab_size, rows, by_token, ("readout.b",) if is_cut else ())
        given = self.compute.batch_slots, self.compute.window_tokens
        self.stream_rows = FeatureStream(None, *given, placement=self.placement).rows_per_device(
            0, self.compute.window_tokens
        )
        self.params = self.placed(whole.params)

    def programs(self) -> Iterator[tuple[str, Any, float]]:
        """Yields the name of each program, the traced program, and the minimum bytes that it moves
        on a device."""
        yield "update", *self.update()
        if self.config.precomputed_width:
            yield "time step", *self.time_step()
        yield "scoring", *self.scoring()

    def update(self) -> tuple[Any, float]:
        training, compute, config, placement = (
            self.experiment.training,
            self.compute,
            self.config,
            self.placement,
        )
        key = self.shapes(jax.eval_shape(lambda: dropout.epoch_key(0, 0)))
        if config.precomputed_width:
            trunk = self.model.trunk
            forward = partial(inputs.gather_features, trunk=trunk, placement=placement)
            chunk_tokens = compute.chunk_tokens
            buffer = self.buffer(
                config.precomputed_width, BY_UNIT if placement.by_unit else BY_DEVICE
            )
            frozen = self.model.frozen_readout_arrays
            batch = self.packed(FIRST_TARGETS)._replace(inputs=buffer)
        else:
            graphdef, *(_, frozen) = nnx.split(self.model, nnx.Param, ...)
            forward = partial(inputs.run_model, graphdef=graphdef, placement=placement)
            chunk_tokens = None
            shape = LENGTH, math.lcm(SLOTS, self.devices)
            read = (
                self.array(*shape, dtype=kind, spec=BY_SLOT)
                for kind in (np.int32, np.int32, np.uint32)
            )
            batch = self.packed(0)._replace(inputs=PackedSteps(*read))
        batch = batch._replace(key=key if config.dropout else None)
        size = CorpusSize(0, 0, placement.vocab_size)
        optimizer = GradientTrainer(training, config, None, size).optimizer
        no_text = NoText(
            model=self.model,
            compute=compute,
            seed=0,
            store=None,
            epochs=[],
            placement=placement,
            forward=forward,
            chunk_tokens=chunk_tokens,
        )
        state = self.placed(jax.eval_shape(optimizer.init, self.params))
        least = 5 * own_bytes(self.params) + 2 * own_bytes(state)
        least += (
            4 * ROWS * config.precomputed_width / self.devices if config.precomputed_width else 0
        )
        least += (
            5
            * 4
            * ROWS
            * placement.rows
            / (mesh.shape["vocabulary"] if (mesh := placement.mesh) else 1)
        )
        least += own_bytes(self.params.get("readout", {}).get("a", ()))
        function = Updates(no_text, optimizer, np.ones(1), training.on_nonfinite)._update
        active, rates = self.array(dtype=bool), self.array(UPDATES)
        return (
            function.trace(self.params, state, active, rates, self.shapes(frozen), batch),
            least,
        )

    def time_step(self) -> tuple[Any, float]:
        mesh, slots, width = (
            self.placement.mesh,
            self.compute.batch_slots,
            self.config.precomputed_width,
        )
        lead = () if mesh is None else (self.devices,)
        read = partial(self.array, *lead, dtype=np.int32, spec=BY_DEVICE)
        steps = PackedSteps(
            tokens=read(STEPS, slots),
            positions=read(STEPS, slots),
            first_rows=read(STEPS),
            count=read(),
            first_token=read(),
        )
        given = self.shapes(self.model.cell), steps, self.buffer(width, BY_DEVICE), None
        matrices = self.config.recurrence.matrices
        is_dense = self.compute.kernel == "dense"
        # An entry of a sparse matrix is a value and an index.
        matrix = sum(m.copies * (4 * m.size**2 if is_dense else 8 * m.nonzeros) for m in matrices)
        least = 3 * 4 * slots * width + matrix  # states are read and written, and so are features
        if mesh is None:
            return recurrence.run.trace(*given, rate=0.0), least
        return recurrence.run_on_mesh.trace(*given, mesh=mesh, rate=0.0), least

    def scoring(self) -> tuple[Any, float]:
        rows, width = self.compute.chunk_tokens, self.config.feature_size
        readout = jax.eval_shape(
            lambda given: self.placement.mask_padding_logits(self.model.readout_arrays(given)),
            self.params,
        )
        readout = self.placed({"readout": readout})["readout"]
        counts = (self.array(count, dtype=np.int32) for count in (rows, 2 * rows, 2 * rows))
        given = readout, self.buffer(width, BY_DEVICE), *counts, self.compute.precision
        return scoring._pair_log_probs.trace(*given), own_bytes(readout) + 4 * rows * width

    # ---- shapes in place of arrays

    def array(
        self, *shape: int, dtype: Any = np.float32, spec: PartitionSpec = REPLICATED
    ) -> jax.ShapeDtypeStruct:
        spec = REPLICATED if self.placement.mesh is None or not shape else spec
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, spec))

    def shapes(self, tree: Any) -> Any:
        """Returns the shapes of a tree of replicated arrays."""
        return jax.tree.map(lambda x: self.array(*x.shape, dtype=x.dtype), tree)

    def placed(self, tree: Any) -> Any:
        """Returns the shapes of a tree of trained arrays, padded with rows if they are not yet."""

        def of_leaf(spec: PartitionSpec, x: Any) -> jax.ShapeDtypeStruct:
            shape = (self.placement.rows, *x.shape[1:]) if spec == BY_TOKEN else x.shape
            return self.array(*shape, dtype=x.dtype, spec=spec)

        return self.placement._map(of_leaf, tree)

    def buffer(self, width: int, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        return self.array(self.devices * self.stream_rows, width, spec=spec)

    def packed(self, first_targets: int) -> Batch:
        by_row = (
            self.array(ROWS, dtype=kind) for kind in (np.int32, np.int32, np.float32, np.uint32)
        )
        return Batch(
            *by_row, *(self.array(first_targets, dtype=kind) for kind in (np.int32, np.float32))
        )


def own_bytes(tree: Any) -> int:
    """Returns the bytes of a tree on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves
    )


def compile_it(traced: Any, platform: str, least: float) -> dict:
    """Compiles a program and returns its analysis for one device, or {"failed": reason}."""
    began = time.perf_counter()
    try:
        compiled = traced.lower(lowering_platforms=(platform,)).compile()
    except Exception as error:  # if one program does not fit, the others may
        return {"failed": measure.one_line(error)}
    seconds, memory, text = (
        time.perf_counter() - began,
        compiled.memory_analysis(),
        compiled.as_text(),
    )
    cost = compiled.cost_analysis() or {}
    flops, moved = cost.get("flops", math.nan), cost.get("bytes accessed", moved_bytes(text))
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    sizes = {
        "GFLOP": flops,
        "GB": moved,
        "least GB": least,
        "held GB": held,
        "temporary GB": memory.temp_size_in_bytes,
    }
    found = {"compiled in s": seconds} | {key: size / 1e9 for key, size in sizes.items()}
    return found | {"GB / least": moved / least} | count(text)


def moved_bytes(text: str) -> int:
    """Returns the bytes that the kernels of a compiled text read and write."""
    computations: dict[str, dict[str, tuple[str, str, list[str], str]]] = {}
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if begins := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*{$", line):
            own = computations[begins[1]] = {}
        elif found := re.match(
            r"\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*?)\)(.*)", line
        ):
            name, shape, kind, given, rest = found.groups()
            own[name] = (
                shape,
                kind,
                re.findall(r"%([\w.-]+)", given) if kind != "parameter" else [given],
                rest,
            )
    entry = computations[re.search(r"^ENTRY %?([\w.-]+)", text, re.MULTILINE)[1]]
    return sum(_moved(computations, own) for own in [entry, *_bodies(computations, entry)])


KERNELS = (
    "fusion",
    "custom-call",
    "copy",
    "dot",
    "reduce",
    "scatter",
    "gather",
    "sort",
    "transpose",
)
IN_PLACE = ("scatter", "dynamic-update-slice")


def _moved(computations: dict, own: dict) -> int:
    total = 0
    for shape, kind, given, rest in own.values():
        if kind not in KERNELS:
            continue
        sizes, written = [size_of(own[name][0]) for name in given], size_of(shape)
        called = re.search(r"calls=%?([\w.-]+)", rest)
        if kind == "fusion" and called:
            inside = computations[called[1]]
            for name, (_, what, number, _) in inside.items():
                if what == "parameter":
                    sizes[int(number[0])] = min(sizes[int(number[0])], _read(inside, name))
            _, root, parts, _ = inside[next(reversed(inside))]
            while root == "bitcast":
                _, root, parts, _ = inside[parts[0]]
            written = (
                size_of(inside[parts[-1 if root == "scatter" else 1]][0])
                if root in IN_PLACE
                else written
            )
        total += sum(sizes) + written
    return total


def _read(inside: dict, name: str) -> float:
    """Returns the maximum bytes that a fusion reads of one of its operands."""
    total = 0.0
    for own, (shape, kind, given, _) in inside.items():
        if name not in given or kind == "parameter":
            continue
        if kind == "bitcast":
            total += _read(inside, own)
        elif kind in ("gather", "dynamic-slice") and given[0] == name:
            total += size_of(shape)
        elif kind in IN_PLACE and given[0] == name:
            total += size_of(inside[given[-1 if kind == "scatter" else 1]][0])
        else:
            return math.inf
    return total


def _bodies(computations: dict, own: dict) -> list[dict]:
    named = (
        re.search(r"body=%?([\w.-]+)", rest) for _, kind, _, rest in own.values() if kind == "while"
    )
    return [
        body
        for each in named
        for body in (computations[each[1]], *_bodies(computations, computations[each[1]]))
    ]


def size_of(shape: str) -> int:
    """Returns the bytes of a shape in XLA's notation."""
    bits = {"pred": 8, "bf16": 16}
    parts = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(
        (bits.get(kind) or int(re.sub(r"\D", "", kind) or 0))
        // 8
        * math.prod(map(int, filter(None, dims.split(","))))
        for kind, dims in parts
    )


def count(text: str) -> dict:
    """Counts the kernels, loops, conditionals and exchanges of each kind in a compiled text."""
    found = Counter(
        re.findall(r"^\s*(?:ROOT )?%?[\w.-]+ = .*? ([a-z][\w-]*)\(", text, re.MULTILINE)
    )
    exchanges = {kind: found[kind] + found[f"{kind}-start"] for kind in EXCHANGES}
    told = ", ".join(f"{times} {kind}" for kind, times in exchanges.items() if times)
    gathered = re.findall(r" = (\(.*?\)|\S+) all-gather(?:-start)?\(", text)
    return {
        "kernels": found["fusion"] + found["custom-call"],
        "while": found["while"],
        "conditional": found["conditional"],
        "exchanges": told or "none",
        "largest gathered MB": max(map(size_of, gathered), default=0) / 1e6,
    }


def markdown(record: dict) -> list[str]:
    failed = {
        name: found["failed"] for name, found in record["programs"].items() if "failed" in found
    }
    rows = {name: found for name, found in record["programs"].items() if name not in failed}
    head = ["program", *next(iter(rows.values()), {})]
    lines = ["Compiled, not run; benchmarks/compile_for.py describes the programs and columns.", ""]
    lines += measure.table(head, [[name, *found.values()] for name, found in rows.items()])
    return [*lines, "", *(f"- {name} does not compile: {why}" for name, why in failed.items())]


if __name__ == "__main__":
    measure.as_command(main)
