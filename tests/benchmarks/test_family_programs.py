"""Updates of any family compiled for a device that is not there: their shapes, and that nothing of a deep readout runs through time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import compile_for
import family_programs
import targets

from esnlm.errors import InputError

H100 = targets.TARGETS["h100"]
FRONTIER = Path(__file__).parents[2] / "configs" / "frontier"
LSTM, LIGHT = FRONTIER / "lstm_without_dropout.yaml", FRONTIER / "light_bigrams.yaml"


def written(folder: Path, name: str, model: str, training: str = "{batch_size: 4}") -> Path:
    file = folder / name
    file.write_text(f"run: runs/x\ndata: {{kind: grammar}}\nmodel: {model}\ntraining: {training}\n")
    return file


def test_a_model_that_computes_ahead_has_one_program_and_others_have_two():
    made = family_programs.programs(H100, [LSTM, LIGHT], vocab_size=300)
    assert list(made) == [
        *(f"lstm_without_dropout, {precision}: gradient" for precision in ("float32", "tf32", "bf16")),
        "lstm_without_dropout: step",
        *(f"light_bigrams, {precision}: update" for precision in ("float32", "tf32", "bf16")),
    ]


@pytest.mark.parametrize(
    "model, name, rows",
    [
        ("{family: lstm, width: 8, dropout: 0.1, ngrams: {orders: [2], buckets: 16, width: 4}}", "gradient", 384),
        ("{family: lstm, width: 8, tied: true, dropout: 0}", "gradient", 300),
        ("{family: gpt2, width: 8, heads: 2, layers: 1}", "gradient", 300),
        ("{family: deep_readout, reservoir: {state_size: 8, mean_degree: 4}, readout: {rank: 8}}", "update", 384),
    ],
)
def test_shapes_are_those_that_an_update_takes(tmp_path, model, name, rows):
    """Tracing checks every shape. The readout has the rows of a run on a GPU, whole tiles of 128. Where they are embeddings, none are added."""
    file = written(tmp_path, "own.yaml", model)
    program = family_programs.programs(H100, [file], vocab_size=300)[f"own, float32: {name}"]()
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(program.arguments))
    program.function.trace(*program.arguments)
    params = program.arguments[0 if name == "update" else 1]
    assert rows in {len(array) for array in jax.tree.leaves(params)}


def test_a_step_needs_what_adamw_reads_and_writes():
    program = family_programs.programs(H100, [LSTM], vocab_size=300)["lstm_without_dropout: step"]()
    trained = compile_for.entries(program.arguments[0])
    assert program.needed == [(4 * 7 * trained, {})]
    program.function.trace(*program.arguments)


def test_what_cannot_be_compiled_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    own = written(tmp_path, "own.yaml", "{family: lstm, width: 8}")
    same = written(tmp_path / "other", "own.yaml", "{family: lstm, width: 8}")
    with pytest.raises(InputError, match="2 files of 1 names"):
        family_programs.programs(H100, [own, same], vocab_size=300)
    fitted = written(
        tmp_path,
        "fitted.yaml",
        "{family: esn, reservoir: {state_size: 8, mean_degree: 4}, readout: {rank: 8}}",
        "{kind: ridge}",
    )
    with pytest.raises(InputError, match="fitted: training.kind is ridge: it has no updates"):
        family_programs.programs(H100, [fitted], vocab_size=300)
    with pytest.raises(InputError, match="compiled for one device"):
        compile_for.main(["--target", "h100:1x8x1", "--configs", str(own)])
    with pytest.raises(InputError, match="--vocabulary is 0: it must be at least 1"):
        compile_for.main(["--target", "h100", "--configs", str(own), "--vocabulary", "0"])


@pytest.mark.slow
def test_no_kernel_of_a_deep_readout_is_launched_in_a_loop(tmp_path):
    """An LSTM launches some for every time step, there and back; each waits for the one before."""
    if not targets.plugin_folders(H100):
        pytest.skip("no plugin that compiles for h100: see benchmarks/compile_for.py")
    command = [sys.executable, compile_for.__file__, "--target", "h100", "--out", str(tmp_path), "--vocabulary", "8192"]
    command += ["--configs", str(LSTM), str(LIGHT), "--only", "float32"]
    subprocess.run(command, check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    found = json.loads((tmp_path / "compile_for.families.h100.json").read_text())["programs"]
    light, lstm = found["light_bigrams, float32: update"], found["lstm_without_dropout, float32: gradient"]
    assert light["in_loops"] == 0 and light["launches"] <= 92  # as in November 2026, with jax 0.10.2
    assert lstm["in_loops"] >= 2 * compile_for.LENGTH
