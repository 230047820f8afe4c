"""The hot programs on many devices, compiled by benchmarks/compile_for.py with a --target that names a topology.

    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100:1x8x1         # 8 GPUs of one host
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100:2x8x1         # 2 hosts of 8
    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target tpu-v5e:4x4        # 16 chips

The mesh is the default one, with all devices along `vocabulary`. Every figure is that of one device. The programs are

    window    features of the device's share of a window (features/sharded_stream.py): one time step. "shared" is that of a reservoir
              which all devices share, cut by unit (reservoir/by_unit.py); each device has a copy of any other. "dense" has a
              connectivity of 1/4, and W_in that of the others
    by unit   the exchange that makes features by sentence into features by unit, of a whole window
    update    one update of the compiled loop (training/sharded_update.py)
    scoring   log-probabilities of a chunk of features (evaluation/sharded_scoring.py)
    ESN+i     loss and gradient of an update through time (training/sharded_end_to_end.py)

"received" is what a device must receive in all exchanges of a unit, by the rules of benchmarks/hlo.py. The time that this takes is
in no bound here, since the speed between devices is not known.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import compile_for
import hlo
import jax
import jax.numpy as jnp
import measure
import numpy as np
import targets
from compile_for import RANK, ROWS, SENTENCES, SMALLER_BUCKET, STEPS, UPDATES, VOCAB_SIZE, Program, integers, shape
from esnlm.features.sharded_stream import BY_SENTENCE, OF_BUFFER
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from targets import Target

from esnlm.config import TrainingConfig
from esnlm.evaluation import sharded_scoring
from esnlm.features import dropout, sharded_stream
from esnlm.features.layout import PackedBatch
from esnlm.models.base import ModelConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import EVERYWHERE, UNITS
from esnlm.parallel.placement import BY_SLOT, BY_UNIT, Placement
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir import fused
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import sharded_end_to_end, sharded_update, update
from esnlm.training.batches import WindowTargets

ESN_I_SIZE = 2048
SHARED, LARGE, LARGE_DENSE = 65_536, 1 << 20, 1 << 17  # N of reservoirs that devices share


@dataclass(frozen=True)
class Sharded(Program):
    """A program, and how each of its arguments is cut: a PartitionSpec, or a tree of them for its leaves."""

    specs: tuple = ()
    mesh: Mesh | None = None  # None: that of `mesh_of`


def programs(target: Target, topology: str) -> dict[str, Callable[[], Sharded]]:
    """Returns what makes each program, by its name."""
    found: dict[str, Callable[[], Sharded]] = {}
    for size in compile_for.SIZES:
        found[f"window, N {size:,}"] = partial(window, target, topology, compile_for.sparse_model(size))
        found[f"by unit, N {size:,}"] = partial(by_unit, target, topology, size)
        for precision in ("float32", "bf16"):
            found[f"update, N {size:,}, {precision}"] = partial(readout_update, target, topology, size, precision)
        found[f"scoring, N {size:,}, float32"] = partial(scoring_chunk, target, topology, size)
    larger = {f"N {LARGE:,}": compile_for.sparse_model(LARGE), f"dense N {LARGE_DENSE:,}": dense_model(LARGE_DENSE)}
    for name, model in larger.items():
        found[f"window, {name}"] = partial(window, target, topology, model)
    for name, model in {f"N {SHARED:,}": compile_for.sparse_model(SHARED), **larger}.items():
        found[f"window, {name}, shared"] = partial(window, target, topology, model, shared=True)
    found[f"update, N {LARGE:,}, float32"] = partial(readout_update, target, topology, LARGE, "float32")
    found[f"ESN+i gradient, N {ESN_I_SIZE:,}, float32"] = partial(esn_i_gradient, target, topology)
    return found


def compile_program(
    name: str, make: Callable[[], Sharded], target: Target, topology: str, text_folder: Path | None = None
) -> dict:
    """Compiles a program and returns what it would do on each device."""
    program = make()
    mesh, began = program.mesh or mesh_of(target, topology), time.perf_counter()

    def placed(spec: PartitionSpec, tree: Any) -> Any:
        def leaf(x: Any) -> jax.ShapeDtypeStruct:
            cut = spec if len(x.shape) >= len(spec) else EVERYWHERE  # a counter of an optimizer
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, cut))

        return jax.tree.map(leaf, tree)

    arguments = [
        jax.tree.map(placed, spec, given, is_leaf=lambda x: isinstance(x, PartitionSpec))
        for spec, given in zip(program.specs, program.arguments, strict=True)
    ]
    traced = program.function.trace(*arguments)
    found = compile_for.compile_traced(traced, program, name, target, text_folder, began)
    return found | {"devices": mesh.size}


def mesh_of(target: Target, topology: str) -> Mesh:
    """Returns the mesh of a topology, the same at each call: JAX tells the devices of two descriptions apart."""
    return _mesh(target.name, topology)


@cache
def _mesh(name: str, topology: str) -> Mesh:
    found = meshes.make_mesh(None, targets.devices(targets.TARGETS[name], topology))
    assert found is not None, "a target with a topology has several devices"
    return found


def placement_of(target: Target, topology: str, model: ModelConfig) -> Placement:
    by_token = model.token_arrays or ()
    return Placement(mesh_of(target, topology), VOCAB_SIZE, model.feature_size, by_token, ("readout.b",))


# ---- the programs


def window(target: Target, topology: str, model: EchoStateConfig, shared: bool = False) -> Sharded:
    compute, window_tokens, slots = compile_for.settings(target, model)
    mesh, size = mesh_of(target, topology), model.reservoir.state_size
    devices, units = mesh.size, mesh.size if shared else 1
    mesh = meshes.cut_by_unit(mesh, units)
    groups, together = devices // units, slots * units  # copies of the reservoir, and the slots of each
    reservoir = compile_for.abstract_reservoir(model.reservoir, compute.kernel, units=units)
    laid = sharded_stream._Laid(
        tokens=integers(groups, STEPS, together),
        starts=shape(groups, STEPS, together, dtype=bool),
        parents=None,
        first_rows=integers(groups, STEPS),
        steps=integers(groups),
        corpus_positions=None,
    )
    arguments = reservoir, laid, shape(devices // units * (window_tokens * units + together), size), integers()
    specs = PartitionSpec(UNITS) if shared else EVERYWHERE, BY_SENTENCE, OF_BUFFER, EVERYWHERE
    function = jax.jit(
        lambda cell, laid, buffer, first: sharded_stream.run(cell, laid, buffer, first, None, mesh=mesh, rate=0.0),
        donate_argnums=2,
    )
    is_dense = compute.kernel == "dense"
    nonzeros = size * size if is_dense else round(size * model.reservoir.mean_degree)
    needed = [(4 * size * slots + (4 * nonzeros / units if is_dense else 0), {"float32": 2.0 * nonzeros * slots})]
    models = {
        "reservoir_step": compile_for.fused_traffic(size, nonzeros, slots),
        "reservoir_product": product_traffic(size, nonzeros, together, units),
    }
    return Sharded(function, arguments, "time step", slots, needed, models=models, specs=specs, mesh=mesh)


def product_traffic(size: int, nonzeros: int, slots: int, units: int) -> hlo.Traffic:
    """Returns what a device moves in one product of its rows with the states of all units, by the model of `fused_traffic`."""
    tile = fused.slots_of_tile(size, slots, 4)
    rows = -(-slots // tile) * 8 * nonzeros / units
    states = 4 * size * slots
    return hlo.Traffic(states + rows, states / units, 4 * nonzeros / units * slots - states)


def dense_model(size: int) -> EchoStateConfig:
    """Returns a model whose W_rec is dense, with as many tokens of W_in for a unit as the sparse one has."""
    reservoir = ReservoirConfig(state_size=size, connectivity=0.25, input_connectivity=32 / size)
    return EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(RANK))


def by_unit(target: Target, topology: str, size: int) -> Sharded:
    model = compile_for.sparse_model(size)
    _, window_tokens, slots = compile_for.settings(target, model)
    mesh, rows = mesh_of(target, topology), window_tokens + slots
    function = jax.jit(partial(sharded_stream.by_unit, mesh=mesh))
    arguments = (shape(mesh.size * rows, size),)
    return Sharded(function, arguments, "window", rows, [(2 * 4 * rows * size, {})], specs=(BY_SENTENCE,))


def readout_update(target: Target, topology: str, size: int, precision: str) -> Sharded:
    model = compile_for.sparse_model(size)
    compute, window_tokens, slots = compile_for.settings(target, model, precision)
    placement, training = placement_of(target, topology, model), TrainingConfig()
    optimizer = update.make_optimizer(training)
    loss_and_gradient = partial(
        sharded_update.readout_loss_and_gradient,
        placement=placement,
        precision=precision,
        chunk_tokens=compute.chunk_tokens,
        dropout_rate=0.0,
    )
    loop = update.make_update_loop(optimizer, training.on_nonfinite, (SMALLER_BUCKET, ROWS), loss_and_gradient)
    params = {"readout": readout(placement)}
    devices = placement.devices
    rows = devices * (window_tokens + slots)
    updates = max(1, devices * window_tokens // (ROWS + SENTENCES - 1))
    window_targets = WindowTargets(compile_for.packed_targets(ROWS, SENTENCES - 1, updates), integers(updates))
    key = jax.eval_shape(lambda: dropout.epoch_key(0, 0))
    state = jax.eval_shape(optimizer.init, params)
    buffer = shape(rows, placement.padded_feature_size)
    arguments = params, state, buffer, window_targets, key, shape(UPDATES), integers(), integers()
    specs = placement.specs(params), placement.specs(state), BY_UNIT, *[EVERYWHERE] * 5
    trained = compile_for.entries({"readout": compile_for.low_rank_readout(size)}) / devices
    flops = 2.0 * ROWS * RANK * (3 * VOCAB_SIZE + 2 * size) / devices
    needed = [(4 * (2 * trained + ROWS * size / devices), {precision: flops}), (4 * 7 * trained, {})]
    return Sharded(loop, arguments, "update", ROWS + SENTENCES - 1, needed, specs=specs)


def scoring_chunk(target: Target, topology: str, size: int) -> Sharded:
    model = compile_for.sparse_model(size)
    compute, window_tokens, slots = compile_for.settings(target, model)
    placement = placement_of(target, topology, model)
    rows, arrays, devices = compute.chunk_tokens, readout(placement), placement.devices
    buffer = shape(devices * (window_tokens + slots), placement.padded_feature_size)
    arguments = arrays, buffer, integers(rows), integers(2 * rows), integers(2 * rows)
    specs = placement.readout_specs(arrays), BY_UNIT, *[EVERYWHERE] * 3
    function = jax.jit(lambda *given: sharded_scoring.pair_log_probs(*given, precision="float32", placement=placement))
    flops = 2.0 * rows * RANK * (VOCAB_SIZE + size) / devices
    needed = [(4 * (compile_for.entries(arrays) + rows * size) / devices, {"float32": flops})]
    return Sharded(function, arguments, "chunk", rows, needed, specs=specs)


def esn_i_gradient(target: Target, topology: str) -> Sharded:
    size = ESN_I_SIZE
    graphdef, params, frozen = compile_for.abstract_esn_i(size, "float32")
    model = compile_for.esn_i_model(size)
    placement = placement_of(target, topology, model)
    devices, slots = placement.devices, max(compile_for.PACKED_SLOTS, placement.devices)
    params = jax.eval_shape(lambda: pad(placement, params))
    length = compile_for.LENGTH
    batch = PackedBatch(integers(length, slots), integers(length, slots), shape(length, slots, dtype=np.uint32))
    key = jax.eval_shape(lambda: dropout.epoch_key(0, 0))
    function = jax.jit(partial(sharded_end_to_end.loss_and_gradient, graphdef, placement))
    arguments = frozen, params, batch, compile_for.packed_targets(ROWS, 0), key
    specs = EVERYWHERE, placement.specs(params), BY_SLOT, EVERYWHERE, EVERYWHERE
    trained, tokens = compile_for.entries(params), length * slots
    products = {"float32": (3 * 2.0 * ROWS * size * VOCAB_SIZE + 2 * 2.0 * tokens * size * size) / devices}
    needed = [(4 * ((trained // 2 + trained) / devices + size * size), products)]
    return Sharded(function, arguments, "call", ROWS, needed, specs=specs)


def readout(placement: Placement) -> dict:
    """Returns the shapes of a low-rank readout with its padding."""
    rows, size = placement.padded_vocab_size, placement.padded_feature_size
    return {"a": shape(rows, RANK), "b": shape(RANK, size), "bias": shape(rows)}


def pad(placement: Placement, params: Any) -> Any:
    """Returns arrays of the shapes that params have on the devices."""
    return jax.tree.map(lambda x: jnp.zeros((placement.padded_vocab_size, *x.shape[1:]), x.dtype), params)


# ---- the table


def markdown(record: dict, target: Target) -> list[str]:
    lines = [
        "Compiled, never run. [c] is what the compiled program says of itself, [b] a bound that is worked out from it. All figures"
        " are of one device; the mesh has all devices along `vocabulary`. The bound leaves the time of the exchanges out."
        " benchmarks/sharded_programs.py says what each program is.",
        "",
    ]
    head = ["program", "devices", "counted", "held GB [c]", "temporary GB [c]", "of memory [c]", "kernels [c]"]
    head += ["moved GB [c]", "bound ms [b]", "needed ms [b]", "exchanges [c]", "received MB [c]", "compiled in s"]
    rows = []
    for name, found in compile_for.compiled(record):
        rows.append(
            [name, found["devices"], found["unit"], found["held_bytes"] / 1e9, found["temporary_bytes"] / 1e9]
            + [compile_for.of_memory(found, target), round(found["launches"])]
            + [(found["bytes_read"] + found["bytes_written"]) / 1e9, 1e3 * found["bound_s"], 1e3 * found["needed_s"]]
            + [exchanges(found["collectives"]), received(found["collectives"]) / 1e6, found["compile_s"]]
        )
    return lines + measure.table(head, rows) + compile_for.failures(record)


def exchanges(found: list[dict]) -> str:
    """Returns how many exchanges of each kind there are, as "2 all-reduce, 1 all-to-all"."""
    times: dict[str, float] = {}
    for each in found:
        times[each["kind"]] = times.get(each["kind"], 0) + each["times"]
    return ", ".join(f"{count:g} {kind}" for kind, count in times.items()) or "none"


def received(found: list[dict]) -> float:
    """Returns the bytes that a device receives."""
    return sum(each["times"] * each["received"] for each in found)
