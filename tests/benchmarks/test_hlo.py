"""The reader of compiled programs, on small texts whose counts are worked out by hand."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import hlo

SPEEDS = {"float32": 1.0, "tf32": 2.0, "bf16": 4.0, "default": 2.0}

# A state of 8 x 4 goes through an outer loop of unknown length. Each turn scans 3 rows of w, of which the inner loop slices
# one a turn, and multiplies the state with itself.
LOOPS = """HloModule example, is_scheduled=true

%scale (p0: f32[8,4], p1: f32[3,8], p2: s32[]) -> f32[8,4] {
  %p0 = f32[8,4]{1,0} parameter(0)
  %p1 = f32[3,8]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  %row = f32[1,8]{1,0} dynamic-slice(%p1, %p2, %zero), dynamic_slice_sizes={1,8}
  %flat = f32[8]{0} bitcast(%row)
  %wide = f32[8,4]{1,0} broadcast(%flat), dimensions={0}
  ROOT %product = f32[8,4]{1,0} multiply(%p0, %wide)
}

%inner_body (t: (s32[], f32[8,4], f32[3,8])) -> (s32[], f32[8,4], f32[3,8]) {
  %t = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %h = f32[8,4]{1,0} get-tuple-element(%t), index=1
  %w = f32[3,8]{1,0} get-tuple-element(%t), index=2
  %scaled = f32[8,4]{1,0} fusion(%h, %w, %i), kind=kLoop, calls=%scale, metadata={op_name="a(b) c=%d"}
  %next = s32[] add(%i, %i)
  ROOT %all = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) tuple(%next, %scaled, %w)
}

%inner_condition (t: (s32[], f32[8,4], f32[3,8])) -> pred[] {
  %t = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %three = s32[] constant(3)
  ROOT %going = pred[] compare(%i, %three), direction=LT
}

%outer_body (t: (s32[], f32[8,4], f32[3,8])) -> (s32[], f32[8,4], f32[3,8]) {
  %t = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) parameter(0)
  %steps = s32[] get-tuple-element(%t), index=0
  %done = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) while(%t), condition=%inner_condition, body=%inner_body, metadata={}
  %h = f32[8,4]{1,0} get-tuple-element(%done), index=1
  %w = f32[3,8]{1,0} get-tuple-element(%done), index=2
  %square = f32[8,8]{1,0} dot(%h, %h), lhs_contracting_dims={1}, rhs_contracting_dims={1}, operand_precision={highest,highest}
  %back = f32[8,4]{1,0} dot(%square, %h), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_tf32_tf32_f32
  ROOT %all = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) tuple(%steps, %back, %w)
}

%outer_condition (t: (s32[], f32[8,4], f32[3,8])) -> pred[] {
  %t = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) parameter(0)
  %steps = s32[] get-tuple-element(%t), index=0
  %zero = s32[] constant(0)
  ROOT %going = pred[] compare(%steps, %zero), direction=GT
}

ENTRY %main (h: f32[8,4], w: f32[3,8], steps: s32[]) -> f32[8,4] {
  %h = f32[8,4]{1,0} parameter(0)
  %w = f32[3,8]{1,0} parameter(1)
  %steps = s32[] parameter(2)
  %own = f32[8,4]{1,0} copy(%h)
  %t = (s32[], f32[8,4]{1,0}, /*index=2*/f32[3,8]{1,0}) tuple(%steps, %own, %w)
  %loop = (s32[], f32[8,4]{1,0}, f32[3,8]{1,0}) while(%t), condition=%outer_condition, body=%outer_body
  ROOT %result = f32[8,4]{1,0} get-tuple-element(%loop), index=1
}
"""


def entry(*lines: str, computations: str = "") -> hlo.Module:
    """Returns a program whose entry has these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return hlo.parse(f"HloModule example\n\n{computations}\nENTRY %main () -> f32[] {{\n{body}\n}}\n")


def test_a_loop_counts_as_often_as_its_condition_lets_it_run():
    module = hlo.parse(LOOPS)
    step = hlo.main_loop(module)
    assert step == "outer_body"
    found = {kernel.name: kernel for kernel in hlo.kernels(module, step)}
    assert {name: kernel.times for name, kernel in found.items()} == {"scaled": 3, "next": 3, "square": 1, "back": 1}
    # h, one row of w and the number of the row are read; h is written
    assert (found["scaled"].bytes_read, found["scaled"].bytes_written) == (4 * (32 + 8 + 1), 4 * 32)
    assert found["next"].is_scalar and not found["scaled"].is_scalar


def test_products_are_counted_by_their_precision():
    module = hlo.parse(LOOPS)
    work = hlo.total(hlo.kernels(module, hlo.main_loop(module)))
    assert work.flops == {"float32": 2 * 8 * 8 * 4, "tf32": 2 * 8 * 4 * 8}
    assert work.launches == 8
    (square,) = [kernel for kernel in hlo.kernels(module, "outer_body") if kernel.name == "square"]
    assert square.bytes_read == 4 * 32  # the same operand twice is read once
    assert square.seconds(bandwidth=1.0, flops_per_s=SPEEDS) == 512  # the products take longer than 4 * (32 + 64) bytes
    assert square.seconds(bandwidth=0.5, flops_per_s=SPEEDS) == 768


def test_a_loop_of_unknown_length_counts_its_condition_alone():
    found = hlo.kernels(hlo.parse(LOOPS))
    assert [(kernel.name, kernel.times) for kernel in found] == [("own", 1), ("going", 1)]


def test_a_trip_count_that_the_compiler_gives_is_taken():
    text = LOOPS.replace("body=%outer_body", 'body=%outer_body, backend_config={"known_trip_count":{"n":"5"}}')
    module = hlo.parse(text)
    assert hlo.main_loop(module) is None
    assert {kernel.name: kernel.times for kernel in hlo.kernels(module)} == {
        **{"own": 1, "square": 5, "back": 5},
        **{"scaled": 15, "next": 15},
    }


def test_what_is_gathered_is_read_as_often_as_it_is_picked():
    computations = """%pick (table: f32[10,4], index: s32[30,1]) -> f32[30,4] {
  %table = f32[10,4]{1,0} parameter(0)
  %index = s32[30,1]{1,0} parameter(1)
  %twice = f32[10,4]{1,0} add(%table, %table)
  ROOT %rows = f32[30,4]{1,0} gather(%twice, %index), offset_dims={1}, slice_sizes={1,4}
}
"""
    lines = ("%table = f32[10,4]{1,0} parameter(0)", "%index = s32[30,1]{1,0} parameter(1)")
    last = "ROOT %rows = f32[30,4]{1,0} fusion(%table, %index), kind=kLoop, calls=%pick"
    (kernel,) = hlo.kernels(entry(*lines, last, computations=computations))
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * (30 * 4 + 30), 4 * 30 * 4)


def test_an_update_in_place_writes_the_updated_part():
    computations = """%write (buffer: f32[100,4], new: f32[4,2], row: s32[]) -> f32[100,4] {
  %buffer = f32[100,4]{1,0} parameter(0)
  %new = f32[4,2]{1,0} parameter(1)
  %row = s32[] parameter(2)
  %turned = f32[2,4]{1,0} transpose(%new), dimensions={1,0}
  ROOT %updated = f32[100,4]{1,0} dynamic-update-slice(%buffer, %turned, %row, %row)
}
"""
    lines = (
        *("%buffer = f32[100,4]{1,0} parameter(0)", "%new = f32[4,2]{1,0} parameter(1)", "%row = s32[] parameter(2)"),
        "ROOT %updated = f32[100,4]{1,0} fusion(%buffer, %new, %row), kind=kLoop, calls=%write",
    )
    (kernel,) = hlo.kernels(entry(*lines, computations=computations))
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * (8 + 1), 4 * 8)


def test_a_scatter_reads_and_writes_what_it_updates():
    lines = (
        *("%total = f32[50,4]{1,0} parameter(0)", "%index = s32[3,1]{1,0} parameter(1)"),
        "%rows = f32[3,4]{1,0} parameter(2)",
        "ROOT %sum = f32[50,4]{1,0} scatter(%total, %index, %rows), update_window_dims={1}, to_apply=%add",
    )
    (kernel,) = hlo.kernels(entry(*lines))
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * (12 + 3 + 12), 4 * 12)


@pytest.mark.parametrize("elements, counted", [(5000, ["exp"]), (10, ["sum"])])
def test_of_a_conditional_the_busy_branch_counts_where_it_makes_a_large_array(elements, counted):
    branch = "  %x = f32[{0}]{{0}} parameter(0)\n  ROOT %{1} = f32[{0}]{{0}} {2}(%x)\n}}\n"
    computations = "".join(
        f"%{name} (x: f32[{elements}]) -> f32[{elements}] {{\n" + branch.format(elements, kernel, opcode)
        for name, kernel, opcode in [("works", "exp", "exponential"), ("rests", "same", "bitcast")]
    )
    lines = (
        *(f"%x = f32[{elements}]{{0}} parameter(0)", "%which = s32[] parameter(1)"),
        f"%y = f32[{elements}]{{0}} conditional(%which, %x, %x), branch_computations={{%works, %rests}}",
        "ROOT %sum = f32[] negate(%which)",
    )
    found = [kernel.name for kernel in hlo.kernels(entry(*lines, computations=computations))]
    assert found == (["exp", "sum"] if counted == ["exp"] else ["sum"])


def test_memory_of_a_tpu():
    """Vector memory, S(1), costs nothing; an array of tiles costs whole ones; a prefetch is read and not written."""
    lines = (
        *("%x = f32[9,130]{1,0:T(8,128)} parameter(0)", "%near = f32[9,130]{1,0:T(8,128)S(1)} parameter(1)"),
        "%fetch = ((f32[9,130]{1,0:T(8,128)}), f32[8,130]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:8]}",
        "%part = f32[8,130]{1,0:T(8,128)S(1)} slice-done(%fetch)",
        "ROOT %sum = f32[9,130]{1,0:T(8,128)} add(%x, %near)",
    )
    fetch, add = hlo.kernels(entry(*lines))
    assert (add.bytes_read, add.bytes_written) == (4 * 16 * 256, 4 * 16 * 256)
    assert (fetch.bytes_read, fetch.bytes_written) == (pytest.approx(4 * 16 * 256 * 8 / 9), 0)


def test_a_product_of_a_tpu_is_a_convolution():
    lines = (
        *("%x = bf16[64,10]{1,0} parameter(0)", "%w = bf16[64,20]{1,0} parameter(1)"),
        "ROOT %y = f32[10,20]{1,0} convolution(%x, %w), dim_labels=fb_io->bf",
    )
    assert hlo.total(hlo.kernels(entry(*lines))).flops == {"bf16": 2 * 10 * 20 * 64}


def test_a_product_of_a_library_leaves_its_scratch_memory_out():
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["0"]},"precision":"HIGHEST"}}'
    )
    lines = (
        *("%x = f32[64,10]{1,0} parameter(0)", "%w = f32[64,20]{1,0} parameter(1)"),
        "ROOT %y = (f32[10,20]{1,0}, s8[4096]{0}) custom-call(%x, %w),"
        f' custom_call_target="__cublas$gemm", backend_config={config}',
    )
    (kernel,) = hlo.kernels(entry(*lines))
    assert kernel.flops == {"float32": 2 * 10 * 20 * 64}
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * 64 * 30, 4 * 200)


def test_what_only_groups_or_waits_is_no_kernel():
    lines = (
        *("%x = f32[4]{0} parameter(0)", '%space = f32[4]{0} custom-call(), custom_call_target="AllocateBuffer"'),
        "%start = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(%x)",
        "%copy = f32[4]{0} copy-done(%start)",
        "ROOT %both = (f32[4]{0}, f32[4]{0}) tuple(%copy, %space)",
    )
    (kernel,) = hlo.kernels(entry(*lines))
    assert (kernel.name, kernel.bytes_read, kernel.bytes_written) == ("start", 16, 16)


def test_a_kernel_in_triton_moves_what_its_model_says():
    """Its operands are large, and nothing in the text says what it reads of them."""
    module = hlo.parse("""
ENTRY %main (h: f32[8,256], b: f32[64,8]) -> f32[64,8] {
  %h = f32[8,256]{1,0} parameter(0)
  %b = f32[64,8]{1,0} parameter(1)
  ROOT %pallas_call.1 = f32[64,8]{1,0} custom-call(%h, %b), custom_call_target="__gpu$xla.gpu.triton", metadata={op_name="jit(run)/while/body/reservoir_step/pallas_call"}
}
""")
    model = hlo.Traffic(bytes_read=100, bytes_written=50, bytes_cached=1000)
    (kernel,) = hlo.kernels(module, models={"reservoir_step": model})
    assert (kernel.bytes_read, kernel.bytes_written, kernel.bytes_cached) == (100, 50, 1000)
    assert kernel.seconds(1.0, {}, cache_bandwidth=10.0) == 150  # bound by the main memory
    assert kernel.seconds(1.0, {}, cache_bandwidth=5.0) == 230  # by the cache, through which all of it goes
    (kernel,) = hlo.kernels(module, models={"reservoir": model})
    assert kernel.bytes_read == 4 * (8 * 256 + 64 * 8)


EXCHANGES = """HloModule exchanges, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (z: f32[6,10], h: f32[8,4]) -> f32[6,10] {
  %z = f32[6,10]{1,0} parameter(0)
  %h = f32[8,4]{1,0} parameter(1)
  %started = f32[6,10]{1,0} all-reduce-start(%z), replica_groups=[1,4]<=[4], to_apply=%add
  %swapped = f32[8,4]{1,0} all-to-all(%h), replica_groups={{0,1},{2,3}}, dimensions={0}
  %gathered = (f32[8,4]{1,0}, f32[32,4]{1,0}) all-gather-start(%swapped), replica_groups=[1,4]<=[4], dimensions={0}
  %whole = f32[32,4]{1,0} all-gather-done(%gathered)
  ROOT %total = f32[6,10]{1,0} all-reduce-done(%started)
}
"""


def test_what_a_device_receives_in_an_exchange():
    found = {each.kind: each for each in hlo.collectives(hlo.parse(EXCHANGES))}
    assert {kind: (each.devices, each.times) for kind, each in found.items()} == {
        "all-reduce": (4, 1),
        "all-to-all": (2, 1),
        "all-gather": (4, 1),
    }
    assert found["all-reduce"].received == 2 * 3 / 4 * 240, "each part is received while it is summed, and then the sum"
    assert found["all-to-all"].received == 128 / 2, "half of it stays"
    assert found["all-gather"].received == 3 * 128, "what the other three have"
