"""AdamW in one pass over its arrays, where XLA's CPU compiler is asked for it."""

import os
import subprocess
import sys

import pytest

from esnlm.compiler import OPTION, fuse_outputs, outputs_fused

PROGRAM = """
import re
from esnlm.compiler import fuse_outputs

if {fused}:
    fuse_outputs()

import jax
import jax.numpy as jnp
import optax
from esnlm.config import TrainingConfig
from esnlm.training.update import make_optimizer

def step(params, state, gradient):
    changes, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, changes), state

optimizer = make_optimizer(TrainingConfig(), updates=10)
w = jnp.ones((4096, 512))
compiled = jax.jit(step, donate_argnums=(0, 1)).lower(w, optimizer.init(w), w).compile()
print(sum("[4096,512]" in line for line in re.findall("= .* fusion\\\\(", compiled.as_text())))
"""


@pytest.fixture
def flags(monkeypatch):
    """Sets XLA_FLAGS, and sees that they are as before afterwards."""
    return lambda value: monkeypatch.setenv("XLA_FLAGS", value)


def test_it_is_asked_for_beside_other_flags(flags):
    flags("--xla_cpu_enable_fast_math=false")
    assert not outputs_fused()
    fuse_outputs()
    fuse_outputs()
    assert os.environ["XLA_FLAGS"] == f"--xla_cpu_enable_fast_math=false --xla_backend_extra_options={OPTION}"
    assert outputs_fused()


def test_options_that_are_set_stay(flags):
    flags(mine := "--xla_backend_extra_options=xla_cpu_optimize_for_size")
    fuse_outputs()
    assert os.environ["XLA_FLAGS"] == mine
    assert not outputs_fused()


@pytest.mark.parametrize("fused, passes", [(True, 1), (False, 3)])
def test_passes_of_a_step(fused, passes):
    """Over parameters and moments: one that writes all three, or one for each."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    program = [sys.executable, "-c", PROGRAM.format(fused=fused)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == passes
