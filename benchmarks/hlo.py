"""What a compiled program does, read from the text that XLA gives of it (`compiled.as_text()`).

The text lists computations. An instruction of the entry, or of the body of a loop, is one kernel that is launched, unless
it only names or groups arrays. A fusion is one kernel, whatever its own computation does. From the shapes of what a kernel
reads and writes come its bytes, and from its products their operations:

    module = parse(compiled.as_text())
    work = total(kernels(module, body=main_loop(module)))

Counting follows these rules:

- A kernel reads each operand and writes its result once. Of what it only slices, gathers or scatters it reads as many
  elements as it picks, each as often as it is picked, and an update in place writes the updated part alone.
- Arrays that lie outside the main memory of the device (on a TPU in its vector memory) cost nothing. An array of tiles
  costs whole tiles.
- A loop counts as often as it runs. One whose count is not in the text counts its condition once and its body not at all:
  such loops are the fallbacks of ops/xla.py, which hardly ever run. The loop that one wants to see is given as `body`.
- Of a conditional the busiest branch counts if the result holds an array of more than SMALL elements, and the laziest one
  if it does not: then it searches an array for what is not finite, and that is hardly ever asked for.
- Operations that are not products are not counted. Memory bounds them.
- The text of a kernel in Triton, a custom call, says what its operands are and not what it reads of them. Who launches it
  gives a model of its traffic (`Traffic`); without one it reads and writes all of its operands and results.
- Of an exchange between devices (`collectives`) those bytes count that a device must receive, however it is done: of n devices
  that gather an array, or cut and swap one, (n - 1) / n of it; that sum one, twice that, or once where each keeps a part.
"""

import math
import re
from dataclasses import dataclass, field

SMALL = 4096  # elements

BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "f8e4m3fn": 8, "f8e5m2": 8, "bf16": 16, "token": 0, "c64": 64}
BITS |= {f"{kind}{bits}": bits for kind in "suf" for bits in (8, 16, 32, 64)}

# They name, group or wait for what is there already.
NO_KERNEL = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "opt-barrier"),
    *("partition-id", "replica-id", "domain", "get-dimension-size", "async-update"),
}
NO_KERNEL_TARGETS = {"AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "ConcatBitcast"}
PICKS = {"dynamic-slice", "slice", "gather"}  # they read from their first operand what they return
# Each element of the result is made of one element of each operand.
ELEMENTWISE = {
    *(
        "abs",
        "add",
        "and",
        "atan2",
        "bitcast",
        "bitcast-convert",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "convert",
        "copy",
    ),
    *("cosine", "divide", "erf", "exponential", "exponential-minus-one", "floor", "is-finite", "log", "log-plus-one"),
    *("logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "reduce-precision"),
    *("remainder", "reshape", "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left"),
    *("shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "transpose"),
    "xor",
}


# ---- the text as objects ----


@dataclass(frozen=True)
class Array:
    """The shape of an array and where it lies."""

    dtype: str
    dims: tuple[int, ...]
    padded: tuple[int, ...]  # to whole tiles
    in_main_memory: bool

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def nominal_bytes(self) -> int:
        return math.prod(self.padded) * BITS.get(self.dtype, 32) // 8

    @property
    def bytes(self) -> int:
        return self.nominal_bytes if self.in_main_memory else 0


Shape = Array | tuple  # of shapes


def arrays(shape: Shape) -> list[Array]:
    """Returns the arrays of a shape, those of tuples within tuples too."""
    return [shape] if isinstance(shape, Array) else [array for part in shape for array in arrays(part)]


@dataclass
class Instruction:
    """One line: `name = shape opcode(operands), attributes`."""

    name: str
    shape: Shape
    opcode: str
    operands: list[str]  # of a parameter its number, of a constant its value
    attributes: str

    def attribute(self, key: str) -> str | None:
        """Returns a value such as `%region_1` of `body=%region_1`, without the %."""
        found = re.search(rf"(?:^|[ ,]){key}=%?([\w.\-]+)", self.attributes)
        return found and found.group(1)

    def dimensions(self, key: str) -> list[int]:
        """Returns the numbers of `key={0,1}`."""
        found = re.search(rf"{key}={{([\d,]*)}}", self.attributes)
        return [int(number) for number in found.group(1).split(",") if number] if found else []

    def trip_count(self) -> int | None:
        """Returns how often a loop runs, where the compiler has written it down."""
        found = re.search(r'"known_trip_count":\{"n":"(\d+)"', self.attributes)
        return int(found.group(1)) if found else None

    def branches(self) -> list[str]:
        """Returns the computations of a conditional."""
        found = re.search(r"branch_computations={([^}]*)}", self.attributes)
        if found:
            return [name.strip().lstrip("%") for name in found.group(1).split(",")]
        return [name for key in ("false_computation", "true_computation") if (name := self.attribute(key))]


@dataclass
class Computation:
    """Instructions by name, in order."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""

    def parameters(self) -> dict[int, Instruction]:
        """Returns the parameters by their number."""
        return {int(own.operands[0]): own for own in self.instructions.values() if own.opcode == "parameter"}


@dataclass
class Module:
    computations: dict[str, Computation] = field(default_factory=dict)
    entry: str = ""
    wanted: dict[str, dict[str, float]] = field(default_factory=dict)  # by computation and value, once it was asked for
    models: "Models" = field(default_factory=dict)  # of the kernels that are counted


def parse(text: str) -> Module:
    """Returns the program of a text of XLA's."""
    module, here = Module(), None
    for line in text.splitlines():
        if line.endswith("{") and (found := re.match(r"(ENTRY )?%?([\w.\-]+) \(", line)):
            here = Computation(found.group(2))
            module.computations[here.name] = here
            if found.group(1):
                module.entry = here.name
        elif line.startswith("}"):
            here = None
        elif here is not None and " = " in line:
            own, is_root = _instruction(line.strip())
            here.instructions[own.name] = own
            here.root = own.name if is_root else here.root
    return module


def _instruction(line: str) -> tuple[Instruction, bool]:
    is_root = line.startswith("ROOT ")
    name, rest = line.removeprefix("ROOT ").split(" = ", 1)
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, rest = _shape(rest[:end]), rest[end:].strip()
    opcode, _, _ = rest.partition("(")
    end = _closing(rest, len(opcode))
    between = rest[len(opcode) + 1 : end]
    operands = [between] if opcode == "constant" else [part.split()[-1].lstrip("%") for part in _parts(between)]
    return Instruction(name.lstrip("%"), shape, opcode, operands, rest[end + 1 :].lstrip(", ")), is_root


def _closing(text: str, start: int) -> int:
    """Returns where the parenthesis that opens at `start` is closed."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(f"a parenthesis is never closed in {text[:80]!r}")


def _parts(text: str) -> list[str]:
    """Returns the parts between the commas that are in no bracket."""
    text = re.sub(r"/\*.*?\*/", "", text)
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _shape(text: str) -> Shape:
    if text.startswith("("):
        return tuple(_shape(part) for part in _parts(text[1:-1]))
    found = re.match(r"(\w+)\[([^\]]*)\](?:{([\d,]*)(?::(.*))?})?", text)
    if not found:
        return Array(text, (), (), True)
    dtype, sizes, order, layout = found.groups()
    dims = tuple(int(re.sub(r"\D", "", size)) for size in sizes.split(",") if size.strip())
    padded, layout = list(dims), layout or ""
    tile = re.search(r"T\(([\d,]+)\)", layout)
    if tile and dims:
        minor_to_major = [int(number) for number in (order or "").split(",") if number]
        for axis, length in zip(minor_to_major, reversed(tile.group(1).split(",")), strict=False):
            padded[axis] = -(-padded[axis] // int(length)) * int(length)
    space = re.search(r"S\((\d+)\)", layout)
    return Array(dtype, dims, tuple(padded), space is None or space.group(1) == "0")


# ---- what is launched ----


@dataclass(frozen=True)
class Kernel:
    """One launched kernel."""

    name: str
    times: float  # how often it is launched
    bytes_read: float  # of one launch, like the rest
    bytes_written: float
    flops: dict[str, float]  # of its products, by their precision: float32, tf32, bf16
    is_scalar: bool  # it makes a single number
    bytes_cached: float = 0.0  # read from the second-level cache, by its model

    def seconds(self, bandwidth: float, flops_per_s: dict[str, float], cache_bandwidth: float = math.inf) -> float:
        """Returns the least time of one launch: that of its bytes or of its products, whichever is longer."""
        products = sum(own / flops_per_s[precision] for precision, own in self.flops.items())
        moved = self.bytes_read + self.bytes_written
        # What comes from the main memory passes the cache too.
        return max(moved / bandwidth, (moved + self.bytes_cached) / cache_bandwidth, products)


@dataclass(frozen=True)
class Traffic:
    """A model of what one launch of a custom kernel moves: it is worked out, and the compiled text says nothing of it."""

    bytes_read: float  # from the main memory, like the next
    bytes_written: float
    bytes_cached: float  # from the second-level cache, beside what the main memory gives
    flops: dict[str, float] = field(default_factory=dict)  # of its products, by their precision


Models = dict[str, Traffic]  # by the name that `pallas_call` was given


@dataclass(frozen=True)
class Work:
    """What all kernels do together."""

    launches: float
    bytes_read: float
    bytes_written: float
    flops: dict[str, float]
    bytes_cached: float = 0.0


def total(found: list[Kernel]) -> Work:
    """Adds kernels up, each as often as it is launched."""
    flops: dict[str, float] = {}
    for kernel in found:
        for precision, own in kernel.flops.items():
            flops[precision] = flops.get(precision, 0) + kernel.times * own
    read, written, cached = (
        sum(k.times * getattr(k, key) for k in found) for key in ("bytes_read", "bytes_written", "bytes_cached")
    )
    return Work(sum(kernel.times for kernel in found), read, written, flops, cached)


def kernels(module: Module, body: str | None = None, models: Models | None = None) -> list[Kernel]:
    """Returns the kernels that one run of a computation launches.

    Args:
        module: the program.
        body: the computation, such as that of `main_loop`; None: the whole program.
        models: what the kernels in Triton move.
    """
    module.models = models or {}
    return _launched(module, body or module.entry, 1)


@dataclass(frozen=True)
class Collective:
    """An exchange between devices."""

    kind: str  # of KINDS
    times: float  # how often it is done
    received: float  # bytes that each device receives each time, at least
    devices: int  # that take part in it together


KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")


def collectives(module: Module, body: str | None = None) -> list[Collective]:
    """Returns the exchanges that one run of a computation does; the arguments are those of `kernels`."""
    found: list[Collective] = []
    _launched(module, body or module.entry, 1, found)
    return found


def _collective(where: Computation, own: Instruction, times: float) -> Collective | None:
    kind = own.opcode.removesuffix("-start")
    if kind not in KINDS:
        return None
    sent = sum(array.nominal_bytes for name in own.operands for array in arrays(where.instructions[name].shape))
    devices = _group_size(own)
    part = (devices - 1) / devices
    received = {
        "all-reduce": 2 * part * sent,
        "reduce-scatter": part * sent,
        "all-gather": (devices - 1) * sent,
        "all-to-all": part * sent,
        "collective-permute": sent,
    }[kind]
    return Collective(kind, times, received, devices)


def _group_size(own: Instruction) -> int:
    """Returns how many devices exchange with each other: `replica_groups={{0,1},{2,3}}`, or `=[2,2]<=[4]` of [groups, devices]."""
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", own.attributes):
        return int(found.group(1))
    found = re.search(r"replica_groups={{([\d,]+)}", own.attributes)
    return len(found.group(1).split(",")) if found else 2


def main_loop(module: Module) -> str | None:
    """Returns the body of the entry's loop that moves most bytes, of those whose count is decided at run time."""
    loops = [own for own in module.computations[module.entry].instructions.values() if own.opcode == "while"]
    bodies = [own.attribute("body") or "" for own in loops if _trip_count(module, own) is None]
    return max(bodies, key=lambda name: _moved(_launched(module, name, 1)), default=None)


def _launched(module: Module, name: str, times: float, exchanged: list[Collective] | None = None) -> list[Kernel]:
    """Returns the kernels of a computation, and adds its exchanges to `exchanged`."""
    found: list[Kernel] = []
    for own in module.computations[name].instructions.values():
        if own.opcode == "while":
            count = _trip_count(module, own)
            body, condition = own.attribute("body") or "", own.attribute("condition") or ""
            if count is None:
                found += _launched(module, condition, times, exchanged)
            else:
                found += _launched(module, body, times * count, exchanged)
        elif own.opcode == "conditional":
            works = any(array.elements > SMALL for array in arrays(own.shape))
            by_work = sorted(own.branches(), key=lambda branch: _moved(_launched(module, branch, times)))
            found += _launched(module, by_work[-1 if works else 0], times, exchanged)
        elif own.opcode in ("call", "async-start"):
            inner = own.attribute("to_apply") or own.attribute("calls") or ""
            found += _launched(module, inner, times, exchanged)
        elif not (own.opcode in NO_KERNEL or own.opcode.endswith("-done") or _names_only(own)):
            found.append(_kernel(module, module.computations[name], own, times))
            exchange = _collective(module.computations[name], own, times)
            if exchange is not None and exchanged is not None:
                exchanged.append(exchange)
    return found


def _names_only(own: Instruction) -> bool:
    target = re.search(r'custom_call_target="([^"]*)"', own.attributes)
    return bool(own.opcode == "custom-call" and target and target.group(1) in NO_KERNEL_TARGETS)


def _moved(found: list[Kernel]) -> tuple[float, float]:
    work = total(found)
    return work.bytes_read + work.bytes_written, work.launches


def _trip_count(module: Module, loop: Instruction) -> int | None:
    """Returns how often a loop runs: as the compiler says, or as its condition does, `i < constant` for i = 0, 1, ..."""
    if (count := loop.trip_count()) is not None:
        return count
    condition = module.computations[loop.attribute("condition") or ""]
    root = condition.instructions[condition.root]
    if root.opcode == "fusion":
        condition = module.computations[root.attribute("calls") or ""]
        root = condition.instructions[condition.root]
    if root.opcode != "compare" or root.attribute("direction") != "LT":
        return None
    limit = condition.instructions[root.operands[1]]
    return int(limit.operands[0]) if limit.opcode == "constant" else None


# ---- what a kernel moves and multiplies ----


def _kernel(module: Module, where: Computation, own: Instruction, times: float) -> Kernel:
    if (model := _model(module, own)) is not None:
        return Kernel(own.name, times, model.bytes_read, model.bytes_written, model.flops, False, model.bytes_cached)
    results = _results(own)
    read = 0.0
    for operand in dict.fromkeys(own.operands):
        source = where.instructions[operand].shape
        places = [place for place, name in enumerate(own.operands) if name == operand]
        if isinstance(source, Array) and not source.in_main_memory:
            continue
        read += max(_read(module, where, own, place) for place in places)
    lie_here = sum(array.bytes for array in results) > 0
    written = _written(module, where, own) if lie_here else 0.0
    flops: dict[str, float] = {}
    _add_products(module, where, own, flops)
    return Kernel(own.name, times, read, written, flops, len(results) == 1 and not results[0].dims)


def _model(module: Module, own: Instruction) -> Traffic | None:
    if own.opcode != "custom-call":
        return None
    found = (traffic for name, traffic in module.models.items() if f"/{name}/pallas_call" in own.attributes)
    return next(found, None)


def _read(module: Module, where: Computation, own: Instruction, place: int) -> float:
    """Returns the bytes that a kernel reads of its operand number `place`."""
    source = where.instructions[own.operands[place]]
    read, whole = _wanted_by(module, where, own, place, _elements(own)), _elements(source)
    if own.opcode == "copy-start" or whole == 0:
        read = whole
    return sum(array.nominal_bytes for array in arrays(source.shape)) * (read / whole if whole else 1.0)


def _wanted(module: Module, where: Computation) -> dict[str, float]:
    """Returns how many elements of each value of a fusion are computed or read, some of them often, to make its result.

    What is computed at one place for several users is computed once. What they pick by indices adds up.
    """
    if where.name not in module.wanted:
        computed, picked = dict.fromkeys(where.instructions, 0.0), dict.fromkeys(where.instructions, 0.0)
        computed[where.root] = float(_elements(where.instructions[where.root]))
        for user in reversed(where.instructions.values()):  # an instruction comes after what it uses
            for place, name in enumerate(user.operands if user.opcode not in ("parameter", "constant") else []):
                own = _wanted_by(module, where, user, place, computed[user.name] + picked[user.name])
                if user.opcode in PICKS and place == 0:
                    picked[name] += own
                else:
                    computed[name] = max(computed[name], own)
        module.wanted[where.name] = {name: computed[name] + picked[name] for name in computed}
    return module.wanted[where.name]


def _wanted_by(module: Module, where: Computation, user: Instruction, place: int, results: float) -> float:
    """Returns how many elements an instruction wants of its operand number `place`, for so many elements of its result."""
    whole = float(_elements(where.instructions[user.operands[place]]))
    if user.opcode == "fusion":
        inner = module.computations[user.attribute("calls") or ""]
        return _wanted(module, inner)[inner.parameters()[place].name]
    if user.opcode.removesuffix("-start") in PICKS and place == 0:
        return results if user.opcode in PICKS else float(_results(user)[0].elements)
    if user.opcode == "dynamic-update-slice" and place == 0:
        return 0.0
    if user.opcode == "scatter" and place < _scattered(user):
        return float(_elements(where.instructions[user.operands[_scattered(user) + 1 + place]]))
    if user.opcode in ELEMENTWISE:
        return results
    if user.opcode == "broadcast":
        return min(whole, results)
    return whole


def _elements(own: Instruction) -> int:
    return sum(array.elements for array in arrays(own.shape))


def _written(module: Module, where: Computation, own: Instruction) -> float:
    if own.opcode == "fusion":
        inner = module.computations[own.attribute("calls") or ""]
        return _written_as(module, inner, inner.instructions[inner.root])
    return _written_as(module, where, own)


def _written_as(module: Module, where: Computation, own: Instruction) -> float:
    if own.opcode == "tuple":
        return sum(_written_as(module, where, where.instructions[name]) for name in dict.fromkeys(own.operands))
    if own.opcode == "bitcast":
        source = where.instructions[own.operands[0]]
        if source.opcode in ("dynamic-update-slice", "scatter", "fusion", "bitcast"):
            return _written_as(module, where, source)
    if own.opcode == "fusion":
        return _written(module, where, own)
    if own.opcode == "dynamic-update-slice":
        return float(sum(array.nominal_bytes for array in arrays(where.instructions[own.operands[1]].shape)))
    if own.opcode == "scatter":
        return float(sum(_updates_bytes(where, own, place) for place in range(_scattered(own))))
    return float(sum(array.bytes for array in _results(own)))


def _results(own: Instruction) -> list[Array]:
    """Returns the arrays that an instruction makes."""
    results = arrays(own.shape)
    if own.opcode.endswith("-start"):  # (operands, results, ...), but of copy-start (result, operand, ...)
        return arrays(own.shape[0 if own.opcode == "copy-start" else 1]) if isinstance(own.shape, tuple) else results
    if own.opcode == "custom-call" and len(results) > 1:
        return [array for array in results if array.dtype not in ("s8", "u8")]  # the others are scratch memory
    return results


def _scattered(own: Instruction) -> int:
    """Returns how many arrays a scatter updates: its operands are these, the indices, and the updates."""
    return (len(own.operands) - 1) // 2


def _updates_bytes(where: Computation, own: Instruction, place: int) -> int:
    updates = where.instructions[own.operands[_scattered(own) + 1 + place]]
    return sum(array.nominal_bytes for array in arrays(updates.shape))


def _add_products(module: Module, where: Computation, own: Instruction, flops: dict[str, float]) -> None:
    """Adds the operations of the products of an instruction, by their precision."""
    if own.opcode == "fusion":
        inner = module.computations[own.attribute("calls") or ""]
        for instruction in inner.instructions.values():
            _add_products(module, inner, instruction, flops)
        return
    if own.opcode not in ("dot", "convolution") and 'custom_call_target="__cublas' not in own.attributes:
        return
    left, right = (arrays(where.instructions[name].shape)[0] for name in own.operands[:2])
    result = arrays(own.shape)[0]
    if own.opcode == "convolution":  # dim_labels=fb_io->bf: axis 1 of the second operand is not summed over
        of_right = (own.attribute("dim_labels") or "_").split("_")[1]
        outputs = right.dims[of_right.index("o")] if "o" in of_right else 1
        summed = right.elements // max(1, outputs)
    else:
        axes = own.dimensions("lhs_contracting_dims")
        if own.opcode == "custom-call":
            found = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', own.attributes)
            axes = [int(number) for number in re.findall(r"\d+", found.group(1))] if found else []
        summed = math.prod(left.dims[axis] for axis in axes)
    precision = _precision(own, left.dtype, right.dtype)
    flops[precision] = flops.get(precision, 0.0) + 2.0 * result.elements * summed


def _precision(own: Instruction, left: str, right: str) -> str:
    if "bf16" in (left, right) or "f16" in (left, right):
        return "bf16"
    if re.search("tf32", own.attributes, re.IGNORECASE):
        return "tf32"
    return "float32" if re.search("highest", own.attributes, re.IGNORECASE) else "default"
