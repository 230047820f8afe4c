"""What a run will need, before it is begun: parameters, memory, disk and time."""

import math
import os
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.compute import ComputeConfig, backend, choose_compute
from esnlm.config import Experiment, TrainingConfig
from esnlm.data.corpus import require_usable
from esnlm.devices import Device, parse_devices
from esnlm.errors import require
from esnlm.io.console import clock, counted
from esnlm.io.screen import Screen
from esnlm.models.base import ModelConfig
from esnlm.ops.matmul import matmul
from esnlm.parallel.mesh import Shape, describe
from esnlm.regression.base import Fitter
from esnlm.training import readout_regression
from esnlm.training.bounds import bound_times
from esnlm.training.update import make_optimizer

# The most padded sizes of an update that a run had, on 25 million words (docs/speed.md), and the processor time that each took to
# compile (results/start_up.md).
SIZES, SECONDS_PER_SIZE = 36, 0.9


def show(experiment: Experiment, on: str | None = None) -> int:
    """Prints what an experiment needs and returns 0. Trains nothing and writes nothing.

    Args:
        experiment: the experiment.
        on: devices that need not be there, such as "h100:8"; None: the device of this process.

    Raises:
        InputError: its data cannot be used, or no such device is known.
    """
    training, model = experiment.training, experiment.model
    corpus = experiment.data.size()
    if (stores := experiment.data.stores_there()) is not None:
        require_usable(*stores, model.longest)
    device, there = (None, 0) if on is None else parse_devices(on)
    if device is None:
        placement = model.placement(experiment.compute, corpus.vocab_size)
        shape = Shape(**describe(None if placement is None else placement.mesh))
    else:
        shape = _shape_on(experiment, corpus.vocab_size, device, there, f"--on {on}")
    platform = backend() if device is None else device.backend
    compute = choose_compute(experiment.compute, model, platform, shape.devices)
    assert compute.window_tokens is not None
    counts, fit = model.expected_counts(corpus.vocab_size), _fit(experiment, corpus.vocab_size, platform)
    if isinstance(training, Fitter):
        readout = {"readout": training.description}
    else:
        updates = count_updates(training, corpus.sentences)
        readout = {"updates": f"{updates:,} of {training.batch_size} sentences, by {fit.name}"}
    needed = memory(experiment, platform, devices=shape.devices, units=shape.units)
    each = memory_of_each(experiment, platform, shape)
    if device is None:
        on_it = {
            "memory": _describe(needed, fit.name),
            **({} if shape.devices == 1 else {"memory of each": _describe(each, fit.name)}),
            "disk": _disk(experiment, fit),
            "time at best": _time(experiment, compute.precision),
            "compilation": _compilation(experiment),
        }
    else:
        on_it = _on_devices(experiment, compute, each, fit, device, there, shape)
    if isinstance(training, Fitter) and platform != "cpu":
        on_it["memory of the host"] = f"{_bytes(_sums(training, model, corpus.vocab_size))}: {training.kind}"
    lines = {
        "trained parameters": f"{counts.trainable:,}",
        "all parameters, nonzero": f"{counts.total:,}",
        "all entries, zeros too": f"{counts.entries:,}",
        **readout,
        "predicted tokens": f"{training.epochs * corpus.predicted_tokens:,} in {counted(training.epochs, 'epoch')}",
        **on_it,
        f"chosen for {'this device' if device is None else device.name}": f"kernel {compute.kernel}, cross-entropy"
        f" {compute.cross_entropy}, batch slots {compute.batch_slots}, window of {compute.window_tokens:,} tokens",
    }
    Screen().table([], list(lines.items()), align="l")
    return 0


class Memory(NamedTuple):
    """Bytes of memory that a run needs at its peak, on one device or on all devices together."""

    frozen: int
    trained: int  # with the optimizer's state and the gradient, or for a regression: on a CPU its sums, elsewhere its readout
    features: int
    trunk: int  # what lies between features and readout in an update, where there is something
    logits: int

    @property
    def total(self) -> int:
        return sum(self)


def memory(
    experiment: Experiment, platform: str, vocab_size: int | None = None, devices: int = 1, units: int = 1
) -> Memory:
    """Returns the memory that an experiment needs on a kind of device: cpu, gpu or tpu.

    Args:
        experiment: the experiment.
        platform: the kind of device.
        vocab_size: V; None: that of its data.
        devices: whose memory is added up; what is frozen is counted once.
        units: devices that share a copy of the reservoir.

    Raises:
        InputError: its data cannot be used.
    """
    model, vocab_size = experiment.model, vocab_size or experiment.data.size().vocab_size
    compute = choose_compute(experiment.compute, model, platform, devices)
    assert compute.window_tokens is not None and compute.batch_slots is not None
    return Memory(
        frozen=model.frozen_bytes(vocab_size),
        trained=_fit(experiment, vocab_size, platform).memory,
        # Where there are several copies of the reservoir, they lie there twice: as they are made, by sentence, and as updates
        # read them, by unit.
        features=4
        * model.ahead_size
        * (compute.window_tokens + devices * compute.batch_slots)
        * (1 if devices == units else 2),
        trunk=4 * model.trunk_size(vocab_size) * compute.chunk_tokens,
        logits=4 * 2 * vocab_size * compute.chunk_tokens,
    )


def memory_of_each(experiment: Experiment, platform: str, shape: Shape, vocab_size: int | None = None) -> Memory:
    """Returns the memory that an experiment needs on each device of a mesh.

    Args:
        experiment: the experiment.
        platform: the kind of device: cpu, gpu or tpu.
        shape: of the mesh.
        vocab_size: V; None: that of its data.

    Raises:
        InputError: its data cannot be used.
    """
    training, vocab_size = experiment.training, vocab_size or experiment.data.size().vocab_size
    together = memory(experiment, platform, vocab_size, shape.devices, shape.units)
    each = Memory(math.ceil(together.frozen / shape.units), *(math.ceil(part / shape.devices) for part in together[1:]))
    if isinstance(training, Fitter):
        return each._replace(trained=together.trained)  # Nothing of a regression is cut.
    # Not all that is trained is cut, and some of it over a part of the devices only.
    trained = experiment.model.trained_on_each(vocab_size, shape)
    return each._replace(trained=_gradient_fit(training, trained).memory)


def count_updates(training: TrainingConfig | Fitter, sentences: int) -> int:
    """Returns the updates of a whole run; 0 for a regression."""
    return training.epochs * updates_per_epoch(training, sentences) if isinstance(training, TrainingConfig) else 0


def updates_per_epoch(training: TrainingConfig, sentences: int) -> int:
    """Returns the updates of one pass over the training text."""
    return math.ceil(sentences / training.batch_size)


def _describe(needed: Memory, optimizer: str) -> str:
    return (
        f"{_bytes(needed.total)}: frozen {_bytes(needed.frozen)}, trained with"
        f" {optimizer} {_bytes(needed.trained)}, features {_bytes(needed.features)},"
        f" {f'trunk {_bytes(needed.trunk)}, ' if needed.trunk else ''}logits {_bytes(needed.logits)}"
    )


def _time(experiment: Experiment, precision: str) -> str:
    """Returns how long the matrix products of a training take here."""
    training = experiment.training
    if isinstance(training, Fitter) and training.computed_by_host:
        where, speed = "this host, in float64", host_speed()
    else:
        where, speed = f"this {jax.default_backend()}", matmul_speed(precision)
    what = "by the speed of its matrix products alone; expect half as much again"
    return f"{clock(flops(experiment) / speed)} on {where}, {what}"


def _disk(experiment: Experiment, fit: "_Fit") -> str:
    corpus = experiment.data.size()
    frozen = experiment.model.saved_frozen_bytes(corpus.vocab_size, corpus.predicted_tokens)
    return (
        f"{_bytes(frozen + fit.checkpoints * fit.checkpoint_size)}: {fit.checkpoints} checkpoints of"
        f" {_bytes(fit.checkpoint_size)}, frozen {_bytes(frozen)}"
    )


def _shape_on(experiment: Experiment, vocab_size: int, device: Device, there: int, on: str) -> Shape:
    """Returns the mesh of a run on so many devices, which need not be there: as ModelConfig.placement would choose it.

    Raises:
        InputError: they cannot be the mesh that `compute.mesh` asks for.
    """
    model, setting = experiment.model, experiment.compute.mesh
    model.require_mesh(experiment.compute)
    if model.token_arrays is None:
        return Shape()
    shape = Shape(vocabulary=there) if setting is None else Shape(**setting)
    require(
        shape.devices <= there,
        f"compute.mesh is data {shape.data} x vocabulary {shape.vocabulary}: it needs {shape.devices} devices and {on}"
        f" names {there}; lower it, give null, or name more devices",
    )
    if "units" in (setting or {}):
        return shape
    compute = choose_compute(experiment.compute, model, device.backend, shape.devices)
    return shape._replace(units=model.shared_by(shape.vocabulary, device.memory, compute, device.backend, vocab_size))


def _devices_used(experiment: Experiment, there: int, shape: Shape) -> dict[str, str]:
    """Returns the line on how many of the devices a run uses, and how, where it is not all of them along `vocabulary`."""
    if experiment.model.token_arrays is None:
        reason = f"{experiment.model.title} can be computed on one device only"
        return {} if there == 1 else {"devices used": f"1, since {reason}"}
    if experiment.compute.mesh is None:
        return {}
    return {"devices used": f"{shape.devices}, by compute.mesh: data {shape.data} x vocabulary {shape.vocabulary}"}


def _on_devices(
    experiment: Experiment,
    compute: ComputeConfig,
    each: Memory,
    fit: "_Fit",
    device: Device,
    there: int,
    shape: Shape,
) -> dict[str, str]:
    """Returns the lines of a plan for devices that need not be there: bounds, by the makers' figures (bounds.py)."""
    training, corpus = experiment.training, experiment.data.size()
    room = "" if each.total <= device.memory else "; IT DOES NOT FIT"
    lines = {
        "devices": f"{there} x {device.title}, {_bytes(device.memory)} each; none was asked, and nothing measured",
        **_devices_used(experiment, there, shape),
        **({} if shape.units == 1 else {"a copy of the reservoir": f"on {shape.units} devices, cut by unit"}),
        "memory of each": f"{_describe(each, fit.name)}{room}",
        "disk": _disk(experiment, fit),
    }
    if not isinstance(training, TrainingConfig):
        return lines | {"time": f"no bound: {training.kind} is computed in part by the host"}
    updates, tokens = count_updates(training, corpus.sentences), training.epochs * corpus.predicted_tokens
    per_update = tokens / updates
    bound = bound_times(experiment.model, compute, training, corpus.vocab_size, per_update, device, shape.devices)
    states, steps = tokens * bound.state, updates * bound.update
    return lines | {
        "time, a bound": f"{clock(states + steps)}: states {clock(states)}, updates {clock(steps)};"
        f" {tokens / (states + steps):,.0f} tokens/s at most",
        "an update, a bound": f"{1e3 * bound.update:.3g} ms for {per_update:,.0f} tokens; a state"
        f" {1e6 * bound.state:.3g} us",
        "scoring, a bound": f"{1 / bound.scored:,.0f} tokens/s at most",
        "these bounds": f"bytes and products at {device.bandwidth / 1e12:.3g} TB/s and"
        f" {device.flops[compute.precision] / 1e12:.4g} TFLOP/s ({compute.precision}), by data sheet: {device.source}",
    }


def _compilation(experiment: Experiment) -> str:
    """Returns what the compiler takes before the first update, and where its programs are kept for the next start."""
    if isinstance(experiment.training, Fitter):
        needed = "a few seconds"
    elif experiment.model.trains_ahead:
        needed = f"up to about {SECONDS_PER_SIZE * SIZES:.0f} s of processor time before the first update"
    else:
        needed = "a few seconds for each new size of a batch"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")  # esnlm/compilation_cache.py has chosen it
    return f"{needed}; {f'kept in {folder} for the next start' if folder else 'not kept for the next start'}"


def flops(experiment: Experiment) -> int:
    """Returns the floating-point operations of the whole training, counting matrix products only.

    Raises:
        InputError: its data cannot be used.
    """
    training, model, corpus = experiment.training, experiment.model, experiment.data.size()
    tokens = training.epochs * corpus.predicted_tokens
    if isinstance(training, Fitter):
        return training.flops(model.feature_size, corpus.vocab_size, tokens)
    return tokens * model.flops_per_token(corpus.vocab_size)


@cache
def matmul_speed(precision: str) -> float:
    """Returns the floating-point operations per second of one matrix product on JAX's device, the best of five."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1024, 1024)), jnp.float32)
    multiply = jax.jit(lambda x: matmul(x, x, (1, 1), precision))
    multiply(x).block_until_ready()
    return 2 * 1024**3 / _least_seconds(lambda: multiply(x).block_until_ready())


@cache
def host_speed() -> float:
    """Returns the floating-point operations per second of one matrix product in float64 by NumPy, the best of five."""
    x = np.random.default_rng(0).normal(size=(1024, 1024))
    return 2 * 1024**3 / _least_seconds(lambda: x @ x)


def _least_seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


class _Fit(NamedTuple):
    """What it takes to train the parameters in one way."""

    name: str
    memory: int  # bytes
    checkpoints: int  # that exist at once
    checkpoint_size: int  # bytes


def _fit(experiment: Experiment, vocab_size: int, platform: str) -> _Fit:
    """Returns the needs of the way in which an experiment trains its parameters, on a kind of device: cpu, gpu or tpu."""
    training, model = experiment.training, experiment.model
    trainable = model.trained_entries(vocab_size)
    if isinstance(training, Fitter):
        memory = _sums(training, model, vocab_size)
        if platform != "cpu":
            memory = training.memory_on_device(model.feature_size, vocab_size)
        # Its sums, and at the end its readout; the old ones go when the new ones are there.
        return _Fit(training.kind, memory, 2, training.sums_size(model.feature_size, vocab_size) + 4 * trainable)
    return _gradient_fit(training, trainable)


def _sums(training: Fitter, model: ModelConfig, vocab_size: int) -> int:
    """Returns the bytes that a regression needs in the memory of the host, which makes the sums."""
    return readout_regression.memory(training, model.feature_size, vocab_size, model.readout_rank)


def _gradient_fit(training: TrainingConfig, trainable: int) -> _Fit:
    """Returns the needs of an optimizer: parameters, gradient and its state; a checkpoint holds all but the gradient."""
    name = {"adamw": "AdamW", "sgd": "SGD"}[training.optimizer]
    params = jax.ShapeDtypeStruct((trainable,), jnp.float32)
    state = jax.tree.leaves(jax.eval_shape(make_optimizer(training).init, params))
    saved = 4 * (trainable + sum(array.size for array in state if array.ndim))
    return _Fit(name, saved + 4 * trainable, training.checkpoints_at_once, saved)


def _bytes(size: float) -> str:
    """Returns a number of bytes, in figures that say something of a small run and of a large one."""
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
