"""One kernel for a whole time step of a reservoir, for GPUs: Pallas with the Triton lowering.

One launch computes all of a time step of features/recurrence.py, for N units and B batch slots:

    h      0 or the start state where a sentence starts, or the state of another slot (a prefix tree)
    drive  W_rec h + W_in u, or W_rec r + W_in u; with dropout, behind an embedding or a dense W_in, W_in u is given
    h'     the update rule of the reservoir, with the leak and the activation
    buffer the features, row by row, as the readout reads them

W_rec is in compressed rows, so that no row is padded to the longest one. A program of one warp computes ROWS adjacent
rows for a tile of slots. It reads ENTRIES entries of a row at a time: for each of them the states of the tile's slots, which
lie side by side. Three things decide what it costs:

- What W_rec reads are nonzeros * B states, the gathered bytes. All programs of a tile run before those of the next one,
  and a tile is so narrow that its states stay in the second-level cache of the GPU (`slots_of_tile`).
- Programs with most entries begin first, so that no hub of a scale-free graph is begun last and waited for.
- A program owns whole pieces of 64 bytes of the features: ROWS adjacent units of a slot.

The states are held twice, (2, N, B): time step t reads half t % 2 and writes the other one, so no launch writes what
another program still reads, and nothing is copied between two time steps. States and buffer are updated in place.

With bf16 states, W_rec reads a copy of the states that is rounded to bfloat16, half the gathered bytes. What the leak keeps
and what the readout sees stays float32, and all sums are in float32.

On a CPU the same kernel runs in Pallas's interpreter, which is slow and meant for tests. There is none for a TPU, whose
kernels have no gather. Pallas is imported when a kernel is traced, since most runs need none.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ROWS = 16  # of W_rec that a program computes
ENTRIES = 16  # of a row that it reads at a time
MOST_SLOTS, FEWEST_SLOTS = 64, 16  # of a tile; 128 of them would leave too few registers for enough programs at once

# States of a tile may take about half of the second-level cache of an H100 (50 MB) or an A100 (40 MB).
STATES_IN_CACHE = 24 << 20  # bytes


class Rows(NamedTuple):
    """A matrix by compressed rows: entry e is `value[e]` in column `column[e]`, and row i has those from start[i] to start[i + 1].

    ENTRIES entries of zeros follow the last one. `start` goes on to a multiple of ROWS rows; the rows beyond N are empty.
    """

    value: jax.Array  # (nonzeros + ENTRIES,)
    column: jax.Array  # (nonzeros + ENTRIES,)
    start: jax.Array  # (programs ROWS + 1,)
    order: jax.Array  # (programs,), the number of each piece of ROWS rows, with most entries first
    length: jax.Array  # (N, 0): nothing but the number of rows, as a shape


UPDATE_RULES = ("leaky_output", "leaky_membrane")  # that the kernel has equations for
ACTIVATIONS = ("tanh", "relu")


class Rule(NamedTuple):
    """The equation of a time step: settings of a Reservoir."""

    update_rule: str
    activation: Callable[[jax.Array], jax.Array]
    decay: float

    @property
    def keeps_membrane(self) -> bool:
        """Whether the state is x and not h."""
        return self.update_rule == "leaky_membrane"


class Carry(NamedTuple):
    """The states between two time steps, twice each."""

    read: jax.Array  # (2, N, B), what W_rec reads: h or r, in float32 or bfloat16
    state: jax.Array | None  # (2, N, B) float32, h or x; None where it is what W_rec reads


def prepare(shape: tuple[int, int], row: np.ndarray, column: np.ndarray, value: np.ndarray) -> Rows:
    """Returns the operand of a sparse matrix (N, M) whose entries are sorted by row."""
    rows = shape[0]
    programs = -(-rows // ROWS)
    entries = np.bincount(row, minlength=programs * ROWS)
    start = np.concatenate([[0], np.cumsum(entries)]).astype(np.int32)
    order = np.argsort(-entries.reshape(programs, ROWS).sum(1), kind="stable").astype(np.int32)
    padded = np.pad(value, (0, ENTRIES)), np.pad(column, (0, ENTRIES)).astype(np.int32)
    return Rows(*map(jnp.asarray, (*padded, start, order, np.zeros((rows, 0), np.float32))))


def buckets(units: int, nonzeros: int, columns: int) -> int:
    """Returns into how many pieces the units are cut, so that a column of W_in has about one entry in each."""
    return max(1, min(-(-units // ROWS), round(nonzeros / max(1, columns))))


def first_of_buckets(index: np.ndarray, units: int, count: int) -> np.ndarray:
    """Returns where the entries of each bucket begin within a column, (V, count + 1), for the sorted `index` (V, K)."""
    limits = np.arange(count + 1) * _units_of_bucket(units, count)
    return np.stack([(index < limit).sum(1) for limit in limits], axis=1).astype(np.int32)


def product(matrix: Rows, h: jax.Array) -> jax.Array:
    """Returns W h, (N, B) float32, for h (M, B) in float32 or bfloat16."""
    rows, slots = len(matrix.length), h.shape[1]
    tile = slots_of_tile(len(h), slots, h.dtype.itemsize)

    def compute(ref: SimpleNamespace) -> None:
        here = _Place(ref, rows, slots, tile)
        ref.out.store((here.row, here.slot), here.sums(ref.h, None, here.slot), here.inside)

    inputs = {"value": matrix.value, "column": matrix.column, "start": matrix.start, "order": matrix.order, "h": h}
    outputs = {"out": jax.ShapeDtypeStruct((rows, slots), jnp.float32)}
    programs = len(matrix.order) * -(-slots // tile)
    return _launch("reservoir_product", compute, inputs, outputs, {}, programs)[0]


def first_carry(units: int, slots: int, precision: str, rule: Rule) -> Carry:
    """Returns the states before the first time step."""
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    both = precision == "bf16" or rule.keeps_membrane
    return Carry(jnp.zeros((2, units, slots), dtype), jnp.zeros((2, units, slots), jnp.float32) if both else None)


def step(
    matrix: Rows,
    rule: Rule,
    leak: jax.Array,
    carry: Carry,
    buffer: jax.Array,
    t: jax.Array,
    first_rows: jax.Array,
    tokens: jax.Array,
    columns: tuple[jax.Array, jax.Array, jax.Array] | None,
    x: jax.Array | None,
    starts: jax.Array | None,
    start: tuple[jax.Array, jax.Array] | None,
    parents: jax.Array | None,
) -> tuple[Carry, jax.Array]:
    """Computes time step t and writes its features into their rows of the buffer, in one launch.

    Args:
        matrix: W_rec.
        rule: the equation.
        leak: a, (N,).
        carry: the states; they are updated in place.
        buffer: (rows + B, N), updated in place.
        t: () int32.
        first_rows: (T,) int32, the row of slot 0 at each time step.
        tokens: (T, B) int32.
        columns: value and index (V, K) of W_in's columns, and where their buckets begin (V, buckets + 1); or None.
        x: W_in u, (N, B), where `columns` is None.
        starts: (T, B) int32, 1 where a sentence starts and 0 elsewhere; None where `parents` is given.
        start: the state with which sentences start and W_rec times what feeds back of it, both (N, 1), beside `starts`.
        parents: (T, B) int32, the slot from whose state a slot goes on, -1 where a sentence starts from 0; or None.
    """
    _, units, slots = carry.read.shape
    tile = slots_of_tile(units, slots, carry.read.dtype.itemsize)

    def compute(ref: SimpleNamespace) -> None:
        here = _Place(ref, units, slots, tile)
        now = ref.t.load(())
        half = now % 2
        if parents is None:
            begins, source = here.of_slot(ref.starts, now) != 0, here.slot
        else:
            parent = here.of_slot(ref.parents, now)
            begins, source = parent < 0, jnp.maximum(parent, 0)
        drive = here.sums(ref.read, half, source)  # (ROWS, tile)
        kept = ref.read if carry.state is None else ref.state
        state = kept.load((half, here.row, source), here.inside)
        first: Any = 0.0
        its_product: Any = 0.0
        if start is not None:
            first, its_product = here.of_unit(ref.first), here.of_unit(ref.its_product)
        state, drive = jnp.where(begins, first, state), jnp.where(begins, its_product, drive)
        drive += here.columns(ref, now) if columns is not None else ref.x.load((here.row, here.slot), here.inside)
        a = here.of_unit(ref.leak)
        if rule.keeps_membrane:
            state = (1 - rule.decay * a) * state + a * drive
            output = rule.activation(state)
        else:
            state = output = (1 - rule.decay * a) * state + a * rule.activation(drive)
        ref.new_read.store((1 - half, here.row, here.slot), output.astype(carry.read.dtype), here.inside)
        if carry.state is not None:
            ref.new_state.store((1 - half, here.row, here.slot), state, here.inside)
        row = ref.first_rows.load((now,)) + here.slot
        ref.new_buffer.store((row, here.row), output, here.inside)

    inputs: dict[str, Any] = dict(zip(("value", "column", "start", "order"), matrix, strict=False))
    inputs |= {"t": jnp.asarray(t, jnp.int32), "first_rows": first_rows, "leak": leak}
    inputs |= {"starts": starts} if parents is None else {"parents": parents}
    if start is not None:
        inputs |= {"first": start[0][:, 0], "its_product": start[1][:, 0]}
    if columns is not None:
        inputs |= {"tokens": tokens, **dict(zip(("w_in", "units", "buckets"), columns, strict=True))}
    else:
        inputs |= {"x": x}
    held = {"read": carry.read, "buffer": buffer} | ({} if carry.state is None else {"state": carry.state})
    outputs = {f"new_{name}": jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in held.items()}
    in_place = {name: f"new_{name}" for name in held}
    programs = len(matrix.order) * -(-slots // tile)
    read, buffer, *state = _launch("reservoir_step", compute, inputs | held, outputs, in_place, programs)
    return Carry(read, state[0] if state else None), buffer


def slots_of_tile(units: int, slots: int, itemsize: int) -> int:
    """Returns the slots of a tile, a power of two, so that the states of all units stay in the cache."""
    tile = MOST_SLOTS
    while tile > FEWEST_SLOTS and (tile // 2 >= slots or tile > 32 and tile * units * itemsize > STATES_IN_CACHE):
        tile //= 2
    return tile


# ---- inside the kernel


class _Place:
    """What one program computes: ROWS rows of a tile of slots. `row` (ROWS, 1) and `slot` (1, tile) number them."""

    def __init__(self, ref: SimpleNamespace, units: int, slots: int, tile: int) -> None:
        program, pieces = ref.program, ref.order.shape[0]
        self.ref, self.tile = ref, tile
        self.first = ref.order.load((program % pieces,)) * ROWS
        self.place = jnp.arange(ROWS)[:, None]
        self.row = self.first + self.place
        self.slot = ((program // pieces) * tile + jnp.arange(tile))[None, :]
        self.units = units
        # A condition that always holds would keep loads from being made four at a time.
        self.in_slots = None if slots % tile == 0 else self.slot < slots
        self.in_units = None if units % ROWS == 0 else self.row < units
        self.inside = _both(self.in_slots, self.in_units)

    def of_unit(self, array: "_Ref") -> jax.Array:
        """Returns the numbers of the rows, (ROWS, 1), from an array (N,)."""
        return array.load((self.row,), self.in_units)

    def of_slot(self, array: "_Ref", t: jax.Array) -> jax.Array:
        """Returns the numbers of the slots, (1, tile), from an array (T, B)."""
        return array.load((t, self.slot), self.in_slots)

    def sums(self, h: "_Ref", half: jax.Array | None, source: jax.Array) -> jax.Array:
        """Returns the rows of W h, (ROWS, tile), of the states of the slots `source` (1, tile)."""
        lead = () if half is None else (half,)

        def add_row(i: jax.Array, total: jax.Array) -> jax.Array:
            begin, end = (self.ref.start.load((self.first + i + next_one,)) for next_one in (0, 1))

            def add_entries(k: jax.Array, total: jax.Array) -> jax.Array:
                entry = begin + k * ENTRIES + jnp.arange(ENTRIES)
                column, value = self.ref.column.load((entry,)), self.ref.value.load((entry,), entry < end)
                wanted = _both((entry < end)[:, None], self.in_slots)
                states = h.load((*lead, column[:, None], source), wanted).astype(jnp.float32)  # (ENTRIES, tile)
                return total + jnp.sum(value[:, None] * states, axis=0)

            pieces = lax.div(end - begin + ENTRIES - 1, ENTRIES)
            found = lax.fori_loop(0, pieces, add_entries, jnp.zeros(self.tile))
            return jnp.where(self.place == i, found[None, :], total)

        return lax.fori_loop(0, ROWS, add_row, jnp.zeros((ROWS, self.tile)))

    def columns(self, ref: SimpleNamespace, t: jax.Array) -> jax.Array:
        """Returns W_in u, (ROWS, tile): of each token's column the few entries of the bucket in which the rows lie."""
        token = self.of_slot(ref.tokens, t)
        bucket = self.first // _units_of_bucket(self.units, ref.buckets.shape[1] - 1)
        begin, end = (ref.buckets.load((token, bucket + next_one), self.in_slots) for next_one in (0, 1))

        def add_entry(k: jax.Array, total: jax.Array) -> jax.Array:
            there = begin + k < end
            entry = jnp.where(there, begin + k, 0)
            unit, value = (table.load((token, entry), _both(there, self.in_slots)) for table in (ref.units, ref.w_in))
            return total + jnp.where(there & (unit == self.row), value, 0.0)

        most = jnp.max(end - begin if self.in_slots is None else jnp.where(self.in_slots, end - begin, 0))
        return lax.fori_loop(0, most, add_entry, jnp.zeros((ROWS, self.tile)))


class _Ref:
    """An array in the memory of the device, with loads and stores at places that may be arrays, where a mask holds."""

    def __init__(self, ref: Any) -> None:
        self.ref, self.shape = ref, ref.shape

    def load(self, places: tuple, mask: jax.Array | None = None) -> jax.Array:
        """Returns what lies there; 0 where the mask does not hold."""
        from jax.experimental.pallas import triton

        at, shape = _broadcast(places)
        if mask is None:
            return triton.load(self.ref.at[at])
        return triton.load(self.ref.at[at], mask=jnp.broadcast_to(mask, shape), other=0)

    def store(self, places: tuple, value: jax.Array, mask: jax.Array | None = None) -> None:
        from jax.experimental.pallas import triton

        at, shape = _broadcast(places)
        triton.store(self.ref.at[at], value, mask=None if mask is None else jnp.broadcast_to(mask, shape))


def _broadcast(places: tuple) -> tuple[tuple, tuple[int, ...]]:
    """Returns the places with all that are arrays in one shape, and this shape."""
    shape = np.broadcast_shapes(*(jnp.shape(place) for place in places))
    return tuple(jnp.broadcast_to(place, shape) if jnp.ndim(place) else place for place in places), shape


def _both(one: Any, other: Any) -> Any:
    """Returns the mask where both hold; None holds everywhere."""
    return other if one is None else one if other is None else one & other


def _units_of_bucket(units: int, count: int) -> int:
    """Returns the units of a bucket: whole programs."""
    programs = -(-units // ROWS)
    return ROWS * -(-programs // count)


# ---- around the kernel


def _launch(
    name: str,
    compute: Callable[[SimpleNamespace], None],
    inputs: dict[str, Any],
    outputs: dict[str, jax.ShapeDtypeStruct],
    in_place: dict[str, str],
    programs: int,
) -> list[jax.Array]:
    """Runs `compute` in so many programs and returns the outputs; `in_place` are inputs that are updated, and their outputs."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    names = [*inputs, *outputs]

    def kernel(*refs: Any) -> None:
        by_name = {own: _Ref(ref) for own, ref in zip(names, refs, strict=True)}
        compute(SimpleNamespace(program=pallas.program_id(0), **by_name))

    kernel.__name__ = name

    def call(*arrays: jax.Array, interpret: bool) -> list[jax.Array]:
        return pallas.pallas_call(
            kernel,
            out_shape=list(outputs.values()),
            grid=(programs,),
            input_output_aliases={list(inputs).index(own): list(outputs).index(new) for own, new in in_place.items()},
            interpret=interpret,
            compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
            name=name,
        )(*arrays)

    compiled, interpreted = partial(call, interpret=False), partial(call, interpret=True)
    return lax.platform_dependent(*inputs.values(), cuda=compiled, rocm=compiled, default=interpreted)
