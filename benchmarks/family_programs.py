"""The updates of models of any family, compiled by benchmarks/compile_for.py with --configs for a device that is not there.

    ESNLM_AOT=FOLDER python benchmarks/compile_for.py --target h100 --vocabulary 8192 \
        --configs configs/frontier/lstm_without_dropout.yaml configs/frontier/light_bigrams.yaml

A configuration says what the model is and how it is trained; its data are not read. Where a model trains on numbers that are
computed ahead, its program is `update`, one update of the compiled loop. Else an update is two programs: `gradient`, the loss and
its gradient, through time where the model is a recurrence, and `step`, the optimizer's. Batches are those of the other
programs: ROWS predictions from rows of their own, and SENTENCES - 1 more from the row after BOS where there is an `update`.

"in loops" are those of the kernels that a loop inside an update launches: over time steps, or over the layers of a GPT-2. Each waits
for those of the turn before it.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import compile_for
import hlo
import jax
import measure
import numpy as np
from compile_for import (
    LENGTH,
    PACKED_SLOTS,
    ROWS,
    SENTENCES,
    SMALLER_BUCKET,
    UPDATES,
    Program,
    entries,
    integers,
    shape,
)
from flax import nnx
from targets import Target

from esnlm import config_io
from esnlm.compute import choose_compute
from esnlm.config import Experiment, TrainingConfig
from esnlm.errors import require
from esnlm.features import dropout
from esnlm.features.layout import PackedBatch
from esnlm.models.base import RecurrentModel
from esnlm.ops.matmul import PRECISIONS
from esnlm.readout import padding
from esnlm.readout.padding import VocabularyPadding
from esnlm.training import end_to_end, update
from esnlm.training.batches import WindowTargets
from esnlm.training.loop import optimizer_of


def programs(target: Target, files: list[Path], vocab_size: int) -> dict[str, Callable[[], Program]]:
    """Returns what makes each program, by its name.

    Raises:
        InputError: a configuration cannot be read, or has no updates, or two have one name.
    """
    experiments = {file.stem: config_io.read(file) for file in files}
    names = len(experiments)
    require(names == len(files), f"--configs: {len(files)} files of {names} names: give each its own")
    precisions = [precision for precision in PRECISIONS if precision != "tf32" or target.platform == "cuda"]
    found: dict[str, Callable[[], Program]] = {}
    for name, experiment in experiments.items():
        kind = experiment.training.kind
        require(isinstance(experiment.training, TrainingConfig), f"{name}: training.kind is {kind}: it has no updates")
        for precision in precisions:
            given = target, experiment, vocab_size, precision
            if experiment.model.trains_ahead:
                found[f"{name}, {precision}: update"] = partial(update_loop, *given)
            else:
                found[f"{name}, {precision}: gradient"] = partial(gradient, *given)
        if not experiment.model.trains_ahead:
            found[f"{name}: step"] = partial(step, target, experiment, vocab_size)
    return found


def update_loop(target: Target, experiment: Experiment, vocab_size: int, precision: str) -> Program:
    """Returns the loop of updates of a model that trains on what was computed ahead."""
    training, model, compute, padded = _ready(target, experiment, vocab_size, precision)
    assert isinstance(model, RecurrentModel), "only a recurrence can be computed ahead"
    assert compute.window_tokens is not None and compute.batch_slots is not None
    optimizer = padded.hold(optimizer_of(experiment, training, vocab_size))
    loss_and_gradient = partial(
        update.readout_loss_and_gradient,
        precision=precision,
        chunk_tokens=compute.chunk_tokens,
        dropout_rate=experiment.model.dropout,
        cross_entropy=compute.cross_entropy,
        trunk=model.trunk,
    )
    buckets, states = (SMALLER_BUCKET, ROWS), experiment.model.states_ahead
    loop = update.make_update_loop(optimizer, training.on_nonfinite, buckets, loss_and_gradient, states)
    params = jax.eval_shape(padded.pad_params, model.params)
    updates = max(1, compute.window_tokens // (ROWS + SENTENCES - 1))
    targets = WindowTargets(compile_for.packed_targets(ROWS, SENTENCES - 1, updates), integers(updates))
    buffer = shape(compute.window_tokens + compute.batch_slots, experiment.model.ahead_size)
    given = buffer, targets, _key(), shape(UPDATES), integers(), integers()
    arguments = params, jax.eval_shape(optimizer.init, params), *given
    models = _traffic(experiment, padded, precision)
    return Program(loop, arguments, "update", ROWS + SENTENCES - 1, [], models=models)


def gradient(target: Target, experiment: Experiment, vocab_size: int, precision: str) -> Program:
    """Returns loss and gradient of an update of a model that is trained as a whole."""
    _, model, _, padded = _ready(target, experiment, vocab_size, precision)
    graphdef, *(_, frozen) = nnx.split(model, nnx.Param, ...)
    batch = PackedBatch(*(shape(LENGTH, PACKED_SLOTS, dtype=dtype) for dtype in (np.int32, np.int32, np.uint32)))
    key = _key() if experiment.model.dropout else None
    params = jax.eval_shape(padded.pad_params, model.params)
    arguments = jax.eval_shape(lambda: frozen), params, batch, compile_for.packed_targets(ROWS, 0), key
    function = jax.jit(partial(end_to_end.loss_and_gradient, graphdef))
    return Program(function, arguments, "call", ROWS, [], models=_traffic(experiment, padded, precision))


def step(target: Target, experiment: Experiment, vocab_size: int) -> Program:
    """Returns the optimizer's step of such a model."""
    training, model, _, padded = _ready(target, experiment, vocab_size, "float32")
    optimizer = padded.hold(optimizer_of(experiment, training, vocab_size))
    params = jax.eval_shape(padded.pad_params, model.params)
    function = jax.jit(update.make_step(optimizer, training.on_nonfinite), donate_argnums=(0, 1))
    arguments = params, jax.eval_shape(optimizer.init, params), shape(), params, shape(UPDATES)
    return Program(function, arguments, "call", ROWS, [(4 * 7 * entries(params), {})])


def _ready(target: Target, experiment: Experiment, vocab_size: int, precision: str) -> tuple:
    """Returns (training, model, compute, padded) as a run on the target would have them."""
    config, training = experiment.model, experiment.training
    wanted = dataclasses.replace(experiment.compute, precision=precision)
    compute = choose_compute(wanted, config, target.backend)
    frozen, _ = config.initialize_frozen(vocab_size, 0)
    model = config.initialize(vocab_size, 0, frozen)
    # What is computed ahead is in windows, which are programs of their own: here any kernel will do.
    model = model.for_device(dataclasses.replace(compute, kernel="dense") if config.trains_ahead else compute)
    padded = padding.choose(vocab_size, target.backend, can_be_padded=config.readout_can_be_padded)
    return training, model, compute, padded


def _traffic(experiment: Experiment, padded: VocabularyPadding, precision: str) -> hlo.Models:
    """Returns what the fused cross-entropy moves, where a run chooses it."""
    launches = [(ROWS, padded.rows), (padded.rows, ROWS)]
    return compile_for.cross_entropy_traffic(precision, means=launches, rank=experiment.model.readout_width)


def _key() -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda: dropout.epoch_key(0, 0))


# ---- the table


def markdown(record: dict, target: Target) -> list[str]:
    """Returns the lines of the report, a row for each program."""
    head = ["program", "counted", "held GB [c]", "temporary GB [c]", "kernels [c]", "in loops [c]", "moved GB [c]"]
    head += ["GFLOP [c]", "bound ms [b]", "compiled in s"]
    rows = [
        [
            *(name, found["unit"], found["held_bytes"] / 1e9, found["temporary_bytes"] / 1e9),
            *(round(found["launches"]), round(found["in_loops"])),
            (found["bytes_read"] + found["bytes_written"]) / 1e9,
            *(sum(found["flops"].values()) / 1e9, 1e3 * found["bound_s"], found["compile_s"]),
        ]
        for name, found in compile_for.compiled(record)
    ]
    lines = [
        compile_for.preamble(target),
        "An update of a model that computes ahead is the program `update`; one of another model is `gradient` and then `step`.",
        "benchmarks/family_programs.py says what a batch is, and what the column `in loops` counts.",
    ]
    return [*lines, "", *measure.table(head, rows), *compile_for.failures(record)]
