"""Compiles every hot program for a device that is not there, and says what it would hold, launch, move and multiply.

    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target tpu-v5e
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100 --only 'window' --list
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100:1x8x1          # many devices: sharded_programs.py
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100 --configs FILE FILE    # any family: family_programs.py

The compilers of other devices are plugins of JAX, which need no such device. Install those of the JAX at hand into folders
of their own, so that nothing else meets them, and name the folders in ESNLM_AOT, separated as in PATH:

    pip install --no-deps --target FOLDER jax-cuda13-plugin==VERSION jax-cuda13-pjrt==VERSION    # VERSION of jax
    pip install --no-deps --target FOLDER "libtpu==..."      # the version that the extra jax[tpu] of this jax asks for

Each program is compiled in a process of its own, at the sizes of the papers, from shapes alone: no array is made. It is the
function that a run calls, with the settings that a run chooses on such a device (compute.py):

    window    features of a prefetch window, one time step of all batch slots (features/recurrence.py), for every kernel of
              W_rec; "prefix tree" is that of scoring. The kernel that a run chooses is marked with *.
    update    one update of the compiled loop (training/update.py): ROWS rows of features and 31 first targets beside them,
              with a smaller bucket beside it, as in a run
    scoring   log-probabilities of a chunk of features (evaluation/scoring.py)
    ESN+i     loss and gradient of an update through time, and the optimizer's step on it (training/end_to_end.py)

Nothing here is measured. Memory is what the compiler plans. Kernels, bytes and products are counted in the compiled text, by
the rules of benchmarks/hlo.py. "bound" is the least time of these kernels: each takes as long as its bytes at the main
memory's bandwidth or its products at the highest speed, whichever is longer. Starting a kernel takes time too, and a cache
may spare bytes: what the second-level cache of a GPU holds from one kernel to the next is counted as if it came from memory.
"share" is how much of the bound the unavoidable work has (`needed` below).

A kernel in Triton is compiled to machine code too, but the text does not say what it reads. For those of "fused" updates and
chunks a model says it (`cross_entropy_traffic`): operands and results pass the main memory once, and what tiles read again
comes from the second-level cache, in the time that its speed asks for (benchmarks/targets.py). That it is there is an
assumption of the model. Registers that spill are in no bound.

For the recurrence's kernel `fused` another model says it (`fused_traffic`): what must come from the main memory, and "from
cache", the states that it gathers there, which take their time at the cache's bandwidth. The model is worked out from the program
in reservoir/fused.py; that a tile's states stay in the cache is its assumption.

Writes compile_for.TARGET.json and .md under --out.
"""

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hlo
import jax
import jax.numpy as jnp
import measure
import numpy as np
import targets
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from targets import Target

from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import TrainingConfig
from esnlm.errors import require
from esnlm.evaluation import scoring
from esnlm.features import dropout, recurrence
from esnlm.features.layout import PackedBatch
from esnlm.models.echo_state import EchoState, EchoStateConfig
from esnlm.ops.matmul import PRECISIONS
from esnlm.readout import fused_cross_entropy, padding
from esnlm.readout.linear import FullRankReadout, ReadoutConfig
from esnlm.reservoir import fused, sparse
from esnlm.reservoir.arrays import Frozen
from esnlm.reservoir.by_unit import OwnUnits
from esnlm.reservoir.cell import Reservoir
from esnlm.reservoir.topology.base import largest_poisson_count
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import end_to_end, update
from esnlm.training.batches import PackedTargets, WindowTargets

VOCAB_SIZE, RANK, SENTENCES = 50_257, 512, 32  # V, r, and the sentences of an update
SIZES = (4096, 65_536)  # N of the sparse ESN
ESN_I_SIZES = (512, 2048)  # N of the dense ESN+i
# Rows of features in an update: 32 sentences like the corpus's, which share the row after BOS.
ROWS, SMALLER_BUCKET = 656, 528
CHOICES = ("window", "update", "scoring")  # programs of which a run chooses one
STEPS = 128  # time steps that a window has room for
UPDATES = 1000  # of a run, whose learning rates are a table
# Of an update of the ESN+i: its longest sentence, padded, and the slots that its 32 sentences are packed into.
LENGTH, PACKED_SLOTS = 96, 8

Shapes = Any  # a tree of jax.ShapeDtypeStruct
Needed = Sequence[tuple[float, dict[str, float]]]


@dataclass(frozen=True)
class Program:
    """A jitted function and the shapes of its arguments."""

    function: Any
    arguments: tuple
    unit: str  # what is counted: a time step or an update of its loop, or the whole call
    items: int  # tokens or predictions of a unit
    needed: Needed  # stages of (bytes, flops by precision) that nothing can do without
    chosen: bool = True  # a run on this device chooses it
    models: hlo.Models | None = None  # of its kernels in Triton

    @property
    def is_loop(self) -> bool:
        return self.unit in ("time step", "update")


def main(arguments: list[str] | None = None) -> dict:
    import family_programs  # they import this module
    import sharded_programs

    parser = measure.arguments(__doc__)
    parser.add_argument("--target", required=True, help=f"{', '.join(targets.TARGETS)}, or a larger one: tpu-v5e:4x4")
    parser.add_argument("--only", default="", help="a regular expression: the programs to compile (default: all)")
    parser.add_argument("--list", action="store_true", help="say which programs there are, and compile nothing")
    parser.add_argument("--configs", type=Path, nargs="+", default=[], help="compile these models' updates instead")
    parser.add_argument("--vocabulary", type=int, default=VOCAB_SIZE, help="tokens of their vocabulary")
    parser.add_argument("--text", type=Path, help="a folder for the compiled texts")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    target, topology = targets.find(args.target)
    is_sharded = ":" in args.target
    advice = f"--configs: their updates are compiled for one device: give --target {target.name}"
    require(not (is_sharded and args.configs), advice)
    require(args.vocabulary >= 1, f"--vocabulary is {args.vocabulary}: it must be at least 1")
    file, title, table = f"compile_for.{args.target.replace(':', '.')}", target.title, markdown
    made: dict[str, Callable[[], Any]]
    compile_it: Callable = compile_program
    if args.configs:
        made = {**family_programs.programs(target, args.configs, args.vocabulary)}
        file, table = f"compile_for.families.{args.target}", family_programs.markdown
    elif is_sharded:
        made = {**sharded_programs.programs(target, topology)}
        compile_it, title, table = sharded_programs.compile_program, args.target, sharded_programs.markdown
    else:
        made = {**programs(target)}
    names = list(filter(re.compile(args.only).search, made))
    if args.list:
        print("\n".join(names))
        return {}
    targets.require_plugin(target)
    if args.program:
        print(json.dumps(compile_it(args.program, made[args.program], target, topology, args.text)))
        return {}
    record = measure.begin() | {"target": args.target, "programs": {}}
    for name in names:
        record["programs"][name] = found = compile_apart(name, args)
        long = ("kernels", "collectives")
        print(name, {key: value for key, value in found.items() if key not in long}, flush=True)
        measure.write(args.out, file, f"Compiled for {title}", table(record, target), record)
    return record


def compile_apart(name: str, args: argparse.Namespace) -> dict:
    """Returns what `compile_program` finds in a process of its own, or {"failed": why it found nothing}."""
    command = [sys.executable, __file__, "--target", args.target, "--program", name]
    command += ["--text", str(args.text)] * (args.text is not None)
    command += ["--vocabulary", str(args.vocabulary), *(["--configs", *map(str, args.configs)] if args.configs else [])]
    # The plugin shall only compile: were it asked for devices, it would look for its own.
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    said = [line for line in done.stderr.splitlines() if re.match(r"(\w+\.)*\w*(Error|error|Exception)\b", line)]
    return {"failed": " ".join((said or done.stderr.splitlines() or [f"status {done.returncode}"])[-1].split())[:240]}


# ---- one program


def compile_program(
    name: str, make: Callable[[], Program], target: Target, topology: str, text_folder: Path | None = None
) -> dict:
    """Compiles a program and returns what it would do on one device of the target."""
    here = Mesh(np.array([targets.device(target, topology)]), ("device",))  # first, since it makes JAX look for plugins
    program = make()
    sharding = NamedSharding(here, PartitionSpec())

    def placed(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    began = time.perf_counter()
    with jax.sharding.use_abstract_mesh(
        here.abstract_mesh
    ):  # from jax 0.11 on, it says for which GPU a kernel in Triton is
        traced = program.function.trace(*jax.tree.map(placed, program.arguments))
        return compile_traced(traced, program, name, target, text_folder, began)


def compile_traced(
    traced: Any, program: Program, name: str, target: Target, text_folder: Path | None, began: float
) -> dict:
    """Compiles a program that was traced, and returns what it would do on each device."""
    compiled = traced.lower(lowering_platforms=(target.platform,)).compile()
    compile_s = time.perf_counter() - began
    text = compiled.as_text()
    if text_folder is not None:
        text_folder.mkdir(parents=True, exist_ok=True)
        (text_folder / (re.sub(r"\W+", "_", f"{target.name} {name}") + ".txt")).write_text(text, encoding="utf-8")
    memory = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "unit": program.unit,
        "items": program.items,
        "chosen": program.chosen,
        "compile_s": compile_s,
        "compiler_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "held_bytes": held,
        "temporary_bytes": memory.temp_size_in_bytes,
        **count(text, program, target),
    }


def count(text: str, program: Program, target: Target) -> dict:
    """Returns what the compiled text of a program does in one unit, and the bound on its time."""
    module = hlo.parse(text)
    found = hlo.kernels(module, hlo.main_loop(module) if program.is_loop else None, program.models)
    if target.platform == "tpu":  # its scalar unit does these beside the others; a GPU launches a kernel for each
        found = [kernel for kernel in found if not kernel.is_scalar]
    work = hlo.total(found)
    limits = target.bandwidth, target.flops, target.cache_bandwidth
    times = [(kernel.times * kernel.seconds(*limits), kernel) for kernel in found]
    bound = sum(seconds for seconds, _ in times)
    needed = sum(
        max(moved / target.bandwidth, sum(own / target.flops[precision] for precision, own in flops.items()))
        for moved, flops in program.needed
    )
    longest = sorted(times, key=lambda item: -item[0])[:12]
    exchanges = hlo.collectives(module, hlo.main_loop(module) if program.is_loop else None)
    return {
        "collectives": [vars(each) for each in exchanges],
        "launches": work.launches,
        "in_loops": sum(kernel.times for kernel in found if kernel.times > 1),
        "bytes_read": work.bytes_read,
        "bytes_written": work.bytes_written,
        "bytes_cached": work.bytes_cached,
        "flops": work.flops,
        "bound_s": bound,
        "needed_s": needed,
        "needed_bytes": sum(moved for moved, _ in program.needed),
        "kernels": [
            {"name": own.name, "times": own.times, "ms": 1e3 * seconds}
            | {"bytes_read": own.bytes_read, "bytes_written": own.bytes_written, "flops": own.flops}
            for seconds, own in longest
        ],
    }


# ---- the programs


def programs(target: Target) -> dict[str, Callable[[], Program]]:
    """Returns what makes each program, by its name."""
    found: dict[str, Callable[[], Program]] = {}
    for size in SIZES:
        for kernel in sparse.KERNELS:
            if kernel != "fused" or target.backend == "gpu":
                found[f"window, N {size:,}, {kernel}"] = partial(window, target, size, kernel)
        if target.backend == "gpu":
            found[f"window, N {size:,}, fused, bf16 states"] = partial(window, target, size, "fused", precision="bf16")
        found[f"window, N {size:,}, prefix tree"] = partial(window, target, size, "auto", prefix_tree=True)
    precisions = [precision for precision in PRECISIONS if precision != "tf32" or target.platform == "cuda"]
    kernels = ("plain", "fused") if target.backend == "gpu" else ("plain",)
    for name, make in {"update": readout_update, "scoring": scoring_chunk}.items():
        for size in SIZES:
            for precision in precisions:
                for kernel in kernels:
                    label = f"{name}, N {size:,}, {precision}{', fused' * (kernel == 'fused')}"
                    found[label] = partial(make, target, size, precision, kernel)
    for size in ESN_I_SIZES:
        for precision in precisions:
            found[f"ESN+i gradient, N {size:,}, {precision}"] = partial(esn_i_gradient, target, size, precision)
        found[f"ESN+i step, N {size:,}"] = partial(esn_i_step, target, size)
    return found


def window(target: Target, size: int, kernel: str, prefix_tree: bool = False, precision: str = "float32") -> Program:
    """Returns the recurrence over a prefetch window, without dropout, with states of a precision."""
    model = sparse_model(size)
    compute, window_tokens, slots = settings(target, model)
    chosen = compute.kernel if kernel == "auto" else kernel
    arguments = (
        abstract_reservoir(model.reservoir, chosen, precision),
        integers(STEPS, slots),
        None if prefix_tree else shape(STEPS, slots, dtype=bool),
        integers(STEPS, slots) if prefix_tree else None,
        integers(STEPS),
        integers(),
        shape(window_tokens + slots, size),
        None if prefix_tree else integers(),
    )
    nonzeros = round(size * model.reservoir.mean_degree)
    # Every entry of W_rec is multiplied with every slot's state, and the features are written. A kernel that takes few slots at
    # a time finds all else in a cache.
    needed: Needed = [(4 * size * slots, {"float32": 2.0 * nonzeros * slots})]
    models = {"reservoir_step": fused_traffic(size, nonzeros, slots, precision)} if chosen == "fused" else None
    is_chosen = chosen == compute.kernel and precision == compute.state_precision
    return Program(recurrence.run, arguments, "time step", slots, needed, is_chosen, models)


def fused_traffic(size: int, nonzeros: int, slots: int, precision: str = "float32") -> hlo.Traffic:
    """Returns what one time step of reservoir/fused.py moves, by this model:

    - Each state that W_rec reads comes from the main memory once, and from the cache each other time that it is gathered.
    - The entries of W_rec, 8 bytes each, and the arrays of numbers a unit come from the main memory once for each tile of slots.
    - Of each token's column of W_in, a program finds one entry by its bucket: 32 bytes for the bucket, and for the value and
      the unit each, from the cache, which is how much a GPU reads at least.
    - New states and features are written once. With bf16 states, those of the leak in float32 are read and written as well.
    """
    item = 2 if precision == "bf16" else 4
    tile = fused.slots_of_tile(size, slots, item)
    states, gathered = size * slots, nonzeros * slots * item
    kept = 4 * states if precision == "bf16" else 0
    rows = -(-slots // tile) * (8 * nonzeros + 4 * 5 * size)
    lookups = 3 * 32 * slots * -(-size // fused.ROWS)
    own = 0 if kept else item * states  # read again, for the leak
    read = item * states + kept + rows
    return hlo.Traffic(read, item * states + kept + 4 * states, gathered - item * states + own + lookups)


def readout_update(target: Target, size: int, precision: str, kernel: str = "plain") -> Program:
    """Returns the loop of updates of a low-rank readout on features of a window, with a kernel of the cross-entropy."""
    model = sparse_model(size)
    compute, window_tokens, slots = settings(target, model, precision)
    padded = padding.choose(VOCAB_SIZE, target.backend)
    training = TrainingConfig()
    optimizer = padded.hold(update.make_optimizer(training))
    loss_and_gradient = partial(
        update.readout_loss_and_gradient,
        precision=precision,
        chunk_tokens=compute.chunk_tokens,
        dropout_rate=0.0,
        cross_entropy=kernel,
    )
    buckets = (SMALLER_BUCKET, ROWS)
    loop = update.make_update_loop(optimizer, training.on_nonfinite, buckets, loss_and_gradient)
    params = {"readout": low_rank_readout(size, padded.rows)}
    updates = max(1, window_tokens // (ROWS + SENTENCES - 1))
    window_targets = WindowTargets(packed_targets(ROWS, SENTENCES - 1, updates), integers(updates))
    buffer = shape(window_tokens + slots, size)
    key = jax.eval_shape(lambda: dropout.epoch_key(0, 0))
    arguments = (
        *(params, jax.eval_shape(optimizer.init, params), buffer, window_targets, key),
        *(shape(UPDATES), integers(), integers()),
    )
    trained = entries(low_rank_readout(size))  # without padding
    # The products read the parameters and the rows of the features, and write the gradient. Three are as wide as the
    # vocabulary, and two as the state. AdamW reads parameter, gradient and both moments, and writes all but the gradient.
    products = 4 * (2 * trained + ROWS * size), {precision: 2.0 * ROWS * RANK * (3 * VOCAB_SIZE + 2 * size)}
    needed = [products, (4 * 7 * trained, {})]
    models = cross_entropy_traffic(precision, means=[(ROWS, padded.rows), (padded.rows, ROWS)])
    is_chosen = kernel == compute.cross_entropy
    return Program(loop, arguments, "update", ROWS + SENTENCES - 1, needed, is_chosen, models)


def cross_entropy_traffic(
    precision: str,
    means: Sequence[tuple[int, int]] = (),
    sums: Sequence[tuple[int, int]] = (),
    rank: int = RANK,
) -> hlo.Models:
    """Returns what launches of readout/fused_cross_entropy.py move, by their numbers (m, n) of rows, by this model:

    - X, Y and the numbers of their rows come from the main memory once, and the results of each share of Y are written once.
    - Each tile of X reads all of Y, but from the cache: programs that run at once read the same rows of Y at about one time.
    - Padded tiles cost as whole ones. A product of float32 is three of tf32.
    """
    item, models = 2 if precision == "bf16" else 4, {}
    for kind, shapes in {"means": means, "sums": sums}.items():
        for m, n in shapes:
            cut = fused_cross_entropy.tiles(m, n, rank, precision)
            own, other = -(-m // cut.own) * cut.own, -(-n // cut.rows) * cut.rows
            products = 2.0 * own * other * cut.columns * (2 if kind == "means" else 1)
            models[fused_cross_entropy.kernel_name(kind, m, n)] = hlo.Traffic(
                item * (own + other) * cut.columns + 4 * (own + 2 * other),
                4 * cut.shares * own * (1 + cut.columns * (kind == "means")),
                item * (own // cut.own - 1) * other * cut.columns,
                {"tf32": 3 * products} if precision == "float32" else {precision: products},
            )
    return models


def scoring_chunk(target: Target, size: int, precision: str, kernel: str = "plain") -> Program:
    """Returns the log-probabilities of a chunk of features, each with up to two next tokens."""
    model = sparse_model(size)
    compute, window_tokens, slots = settings(target, model, precision)
    vocabulary = padding.choose(VOCAB_SIZE, target.backend).rows
    rows, readout = compute.chunk_tokens, low_rank_readout(size, vocabulary)
    buffer = shape(window_tokens + slots, size)
    arguments = (readout, buffer, integers(rows), integers(2 * rows), integers(2 * rows))
    function = jax.jit(partial(scoring._pair_log_probs, precision=precision, cross_entropy=kernel))
    needed = [
        (4 * (entries(low_rank_readout(size)) + rows * size), {precision: 2.0 * rows * RANK * (VOCAB_SIZE + size)})
    ]
    models = cross_entropy_traffic(precision, sums=[(rows, vocabulary)])
    return Program(function, arguments, "chunk", rows, needed, kernel == compute.cross_entropy, models)


def esn_i_gradient(target: Target, size: int, precision: str) -> Program:
    """Returns loss and gradient of an update of the ESN+i: full rank, W_in trained through time, dropout."""
    graphdef, params, frozen = abstract_esn_i(size, precision, padding.choose(VOCAB_SIZE, target.backend).rows)
    slots, rows = PACKED_SLOTS, ROWS
    batch = PackedBatch(integers(LENGTH, slots), integers(LENGTH, slots), shape(LENGTH, slots, dtype=np.uint32))
    key = jax.eval_shape(lambda: dropout.epoch_key(0, 0))
    function = jax.jit(partial(end_to_end.loss_and_gradient, graphdef))
    arguments = (frozen, params, batch, packed_targets(rows, 0), key)
    # What is trained is read, though of W_in only the columns of the batch, and its gradient is written. The dense W_rec is
    # read once, if it stays in a cache. Its products go forward and back through time.
    trained, tokens = entries(params), LENGTH * slots
    products = {precision: 3 * 2.0 * rows * size * VOCAB_SIZE}
    products["float32"] = products.get("float32", 0) + 2 * 2.0 * tokens * size * size
    needed = [(4 * (trained // 2 + trained + size * size), products)]
    return Program(function, arguments, "call", rows, needed)


def esn_i_step(target: Target, size: int) -> Program:
    """Returns AdamW's step on all that an ESN+i trains."""
    _, params, _ = abstract_esn_i(size, "float32")
    training = TrainingConfig()
    optimizer = update.make_optimizer(training)
    function = jax.jit(update.make_step(optimizer, training.on_nonfinite), donate_argnums=(0, 1))
    arguments = (params, jax.eval_shape(optimizer.init, params), shape(), params, shape(UPDATES))
    return Program(function, arguments, "call", ROWS, [(4 * 7 * entries(params), {})])


# ---- shapes of models


def settings(target: Target, model: EchoStateConfig, precision: str = "float32") -> tuple[ComputeConfig, int, int]:
    """Returns (compute, window_tokens, batch_slots), as a run on the target chooses them."""
    compute = choose_compute(ComputeConfig(precision=precision), model, target.backend)
    assert compute.window_tokens is not None and compute.batch_slots is not None
    return compute, compute.window_tokens, compute.batch_slots


def sparse_model(size: int) -> EchoStateConfig:
    """Returns the model of configs/esn_at_scale/esn.yaml."""
    return EchoStateConfig(reservoir=ReservoirConfig(state_size=size), readout=ReadoutConfig(RANK))


def abstract_reservoir(config: ReservoirConfig, kernel: str, precision: str = "float32", units: int = 1) -> Reservoir:
    """Returns what `Reservoir.for_device` would of a random sparse reservoir, with shapes in place of arrays.

    The longest rows are those that random ones of this size are expected to have.

    Args:
        config: of the reservoir.
        kernel: of W_rec's product.
        precision: of the states that W_rec reads.
        units: devices that share the reservoir. From 2 on it is what `by_unit.cut` would return.
    """
    size, whole = config.state_size // units, config.state_size
    nonzeros = round(size * config.mean_degree)

    def dense() -> Reservoir:
        leak: Any = jnp.zeros(size)
        arrays = jnp.zeros((size, whole)), jnp.zeros((size, VOCAB_SIZE)), leak
        if units == 1:
            return Reservoir(*arrays, **config.dynamics)
        own = OwnUnits(*arrays, **config.dynamics)
        own.devices = units
        return own

    reservoir = nnx.eval_shape(dense)
    programs = -(-size // fused.ROWS)
    fullest_row = math.ceil(config.longest_row)
    fullest_column = math.ceil(largest_poisson_count(config.mean_degree / units, VOCAB_SIZE))
    columns: Any = shape(VOCAB_SIZE, fullest_column), integers(VOCAB_SIZE, fullest_column)
    operands: dict[str, Callable[[], sparse.Operator]] = {
        "bcoo": lambda: sparse.bcoo(jnp.zeros(nonzeros), jnp.zeros((nonzeros, 2), jnp.int32), (size, whole)),
        "csr": lambda: jax.experimental.sparse.BCSR(
            (jnp.zeros(nonzeros), jnp.zeros(nonzeros, jnp.int32), jnp.zeros(size + 1, jnp.int32)), shape=(size, whole)
        ),
        "ell": lambda: sparse.Ell(jnp.zeros((fullest_row, size)), jnp.zeros((fullest_row, size), jnp.int32)),
        "dense": lambda: jnp.zeros((size, whole)),
        "fused": lambda: fused.Rows(
            *(jnp.zeros(nonzeros + fused.ENTRIES), jnp.zeros(nonzeros + fused.ENTRIES, jnp.int32)),
            *(jnp.zeros(fused.ROWS * programs + 1, jnp.int32), jnp.zeros(programs, jnp.int32), jnp.zeros((size, 0))),
        ),
    }
    reservoir.state_precision = precision
    reservoir.recurrent = Frozen(jax.eval_shape(operands[kernel]))
    if kernel == "fused":
        entries_of_input = round(VOCAB_SIZE * config.mean_degree / units)
        columns += (integers(VOCAB_SIZE, 1 + fused.buckets(size, entries_of_input, VOCAB_SIZE)),)
    reservoir.input = Frozen(sparse.Columns(*columns))
    return reservoir if units == 1 else jax.tree.map(lambda x: shape(units, *x.shape, dtype=x.dtype), reservoir)


def esn_i_model(size: int) -> EchoStateConfig:
    """Returns the model of configs/frozen_rnn/esn_i.yaml."""
    reservoir = ReservoirConfig(
        *(size,),
        connectivity=0.5,
        input_connectivity=1.0,
        spectral_radius=0.993,
        leak_min=0.8,
        leak_max=0.8,
        activation="relu",
    )
    return EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(None), train_input=True, dropout=0.1)


def abstract_esn_i(size: int, precision: str, rows: int = VOCAB_SIZE) -> tuple[nnx.GraphDef, dict, nnx.State]:
    """Returns (graphdef, params, frozen) of the model of configs/frozen_rnn/esn_i.yaml, with shapes in place of arrays.

    `rows` are those of the readout, which may be padded.
    """
    config = esn_i_model(size)
    reservoir = config.reservoir

    def model() -> EchoState:
        leak: Any = jnp.zeros(size)
        cell = Reservoir(jnp.zeros((size, size)), jnp.zeros((size, VOCAB_SIZE)), leak, **reservoir.dynamics)
        readout = FullRankReadout(jnp.zeros((rows, size)), jnp.zeros(rows))
        return EchoState(config, cell.with_trained_input(), readout).for_device(
            ComputeConfig(kernel="dense", precision=precision)
        )

    found = nnx.eval_shape(model)
    graphdef, *(_, frozen) = nnx.split(found, nnx.Param, ...)
    return graphdef, found.params, frozen


def low_rank_readout(size: int, rows: int = VOCAB_SIZE) -> dict:
    return {"a": shape(rows, RANK), "b": shape(RANK, size), "bias": shape(rows)}


def packed_targets(rows: int, first_targets: int, updates: int | None = None) -> PackedTargets:
    """Returns the targets of one update, or of all updates of a window."""
    lead = () if updates is None else (updates,)
    by_row, first = (*lead, rows), (*lead, first_targets)
    return PackedTargets(
        *(integers(*by_row), integers(*by_row), shape(*by_row), shape(*by_row, dtype=np.uint32)),
        *(integers(*first), shape(*first)),
    )


def shape(*dims: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def integers(*dims: int) -> jax.ShapeDtypeStruct:
    return shape(*dims, dtype=np.int32)


def entries(tree: Shapes) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


# ---- the table


def markdown(record: dict, target: Target) -> list[str]:
    lines = [preamble(target), ""]
    head = ["program", "counted", "held GB [c]", "temporary GB [c]", "of memory [c]", "kernels [c]", "read GB [c]"]
    head += [
        "written GB [c]",
        "from cache GB [b]",
        "GFLOP [c]",
        "bound ms [b]",
        "needed ms [b]",
        "share [b]",
        "us an item [b]",
        "compiled in s",
    ]
    rows = []
    for name, found in compiled(record):
        mark = " *" if name.startswith(CHOICES) and found["chosen"] else ""
        rows.append(
            [name + mark, found["unit"], *(found[key] / 1e9 for key in ("held_bytes", "temporary_bytes"))]
            + [of_memory(found, target), round(found["launches"])]
            + [*(found[key] / 1e9 for key in ("bytes_read", "bytes_written", "bytes_cached"))]
            + [sum(found["flops"].values()) / 1e9]
            + [1e3 * found["bound_s"], 1e3 * found["needed_s"], f"{found['needed_s'] / found['bound_s']:.0%}"]
            + [1e6 * found["bound_s"] / found["items"], found["compile_s"]]
        )
    return lines + measure.table(head, rows) + failures(record)


def preamble(target: Target) -> str:
    """Returns the line above a table."""
    peaks = ", ".join(f"{name} {value / 1e12:.4g}" for name, value in target.flops.items() if name != "default")
    return (
        "Compiled, never run. [c] is what the compiled program says of itself, [b] a bound that is worked out from it."
        f" Bounds are for {target.bandwidth / 1e12:.4g} TB/s and products at {peaks} TFLOP/s; the memory is"
        f" {target.memory / 1e9:.4g} GB. benchmarks/compile_for.py says what each column is."
    )


def compiled(record: dict) -> list[tuple[str, dict]]:
    """Returns the programs that were compiled, each with what was found."""
    return [(name, found) for name, found in record["programs"].items() if "failed" not in found]


def failures(record: dict) -> list[str]:
    """Returns the lines below a table about the programs that were not."""
    programs = record["programs"].items()
    failed = [f"- {name}: does not compile. {found['failed']}" for name, found in programs if "failed" in found]
    return ["", *failed] if failed else []


def of_memory(found: dict, target: Target) -> str:
    """Returns how much of the device's memory a program takes, and whether that is too much."""
    memory = found["held_bytes"] + found["temporary_bytes"]
    return f"{memory / target.memory:.0%}{' TOO MUCH' * (memory > target.memory)}"


if __name__ == "__main__":
    measure.as_command(main)
