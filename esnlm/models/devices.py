"""The devices that a model is computed on: their mesh, where its arrays lie on them, and what they choose."""

import math

from jax.sharding import Mesh

from esnlm.compute import ComputeConfig, ResolvedCompute, backend, choose_compute
from esnlm.errors import InputError
from esnlm.models.base import READOUT_ARRAYS, ModelConfig
from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import VOCABULARY
from esnlm.parallel.placement import Placement, rows_on


def mesh_of(model: ModelConfig, compute: ComputeConfig) -> Mesh | None:
    """Returns the mesh of devices that a model is computed on; None if it is one device.

    Raises:
        InputError: there are fewer devices than asked for, or the model can be computed on one only and more are asked for.
    """
    if model.token_arrays is not None:
        return meshes.make_mesh(compute.mesh)
    if math.prod((compute.mesh or {}).values()) > 1:
        raise InputError(f"compute.mesh asks for several devices: {model.title} can be computed on one only; give null")
    meshes.require_one_process(f"{model.title} is computed on one device only")
    return None


def placement_of(model: ModelConfig, compute: ComputeConfig, vocab_size: int) -> Placement:
    """Returns where the arrays of a model lie on the devices, and how many rows of tokens they have there."""
    mesh = mesh_of(model, compute)
    if mesh is None:
        rows = rows_on(backend(), vocab_size) if model.readout_can_be_padded else vocab_size
        return Placement(None, vocab_size, rows, READOUT_ARRAYS)
    rows = rows_on(backend(), vocab_size, mesh.shape[VOCABULARY])
    is_cut = model.feature_size % mesh.size == 0 and (model.features_are_frozen or not model.ahead_size)
    return Placement(mesh, vocab_size, rows, model.token_arrays or (), ("readout.b",) if is_cut else ())


def resolve_compute(compute: ComputeConfig, model: ModelConfig) -> ResolvedCompute:
    """Returns the settings with everything that is left open chosen for the devices of this process."""
    kind = backend()  # first, as it says in a line if JAX finds no device
    mesh = mesh_of(model, compute)
    return choose_compute(compute, model, kind, 1 if mesh is None else mesh.size)
