"""Devices that programs are compiled for where no such device is: what the compiler and a bound need to know of them.

Memory, bandwidth and speeds are those of esnlm/devices.py. What else a compiler asks for of a GPU, such as its processors, is
what the devices report of themselves. The speed of a GPU's second-level cache is on no data sheet: it is a round number below what
others have measured for reads.
"""

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.devices import DEVICES
from esnlm.errors import require

FOLDERS = "ESNLM_AOT"  # the environment variable: folders with plugins, as PATH has them


@dataclass(frozen=True)
class Target:
    """One device of a kind."""

    name: str
    title: str
    platform: str  # JAX's name: cuda or tpu
    backend: str  # the name by which esnlm chooses its settings: gpu or tpu
    topology: str  # the smallest: of a GPU partitions x hosts x devices of a host, of TPUs KIND:CHIPS
    memory: int  # bytes
    bandwidth: float  # bytes a second, of the main memory
    # Bytes a second of a GPU's second-level cache, an estimate for random rows; of a TPU no limit.
    cache_bandwidth: float
    flops: dict[
        str, float
    ]  # products a second, twice, by precision; "default" is what JAX does where nothing is asked for
    device_info: dict[str, Any] | None = None  # of a GPU: fields of XLA's GpuDeviceInfoProto beside those that all have

    def config(self) -> str:
        """Returns XLA's GpuTargetConfigProto as text."""
        assert self.device_info is not None, "a TPU is known by its topology"
        fields = GPU | {"memory_bandwidth": int(self.bandwidth), "device_memory_size": self.memory} | self.device_info
        lines = [f"  {name}: {value}" for name, value in fields.items() if name != "major"]
        return "\n".join(
            [
                *("gpu_device_info {", *lines, f"  cuda_compute_capability {{ major: {fields['major']} }}", "}"),
                *('platform_name: "CUDA"', "dnn_version_info { major: 9 minor: 10 }"),
                f'device_description_str: "{self.title}"',
            ]
        )


# What the GPUs below have in common.
GPU = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 48 << 10,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": (1 << 31) - 1,
    "block_dim_limit_y": (1 << 16) - 1,
    "block_dim_limit_z": (1 << 16) - 1,
    "registers_per_core_limit": 1 << 16,
    "registers_per_block_limit": 1 << 16,
}
HOPPER = {
    "major": 9,
    "core_count": 132,
    "fpus_per_core": 128,
    "clock_rate_ghz": 1.98,
    "l2_cache_size": 50 << 20,
    "shared_memory_per_core": 228 << 10,
    "shared_memory_per_block_optin": 227 << 10,
}
AMPERE = {
    "major": 8,
    "core_count": 108,
    "fpus_per_core": 64,
    "clock_rate_ghz": 1.41,
    "l2_cache_size": 40 << 20,
    "shared_memory_per_core": 164 << 10,
    "shared_memory_per_block_optin": 163 << 10,
}


def _target(
    name: str, platform: str, topology: str, cache: float = math.inf, info: dict[str, Any] | None = None
) -> Target:
    device = DEVICES[name]
    title = device.title if platform == "cuda" else f"{device.title}, one chip"
    default = {"default": device.flops["tf32" if platform == "cuda" else "bf16"]}
    what = device.memory, device.bandwidth, cache, device.flops | default, info
    return Target(name, title, platform, device.backend, topology, *what)


TARGETS = {
    target.name: target
    for target in (
        _target("h100", "cuda", "1x1x1", 5.5e12, HOPPER),
        _target("a100", "cuda", "1x1x1", 4e12, AMPERE),
        _target("tpu-v5e", "tpu", "v5e:2x2"),
        _target("tpu-v5p", "tpu", "v5p:2x2x1"),
        _target("tpu-v6e", "tpu", "v6e:2x2"),
    )
}


def find(text: str) -> tuple[Target, str]:
    """Returns the target of `h100` or `tpu-v5e:4x4`, and its topology as JAX takes it.

    Raises:
        InputError: there is no target of that name.
    """
    name, _, shape = text.partition(":")
    require(name in TARGETS, f"--target {text}: no target of that name; choose {', '.join(TARGETS)}")
    target = TARGETS[name]
    if not shape:
        return target, target.topology
    return target, shape if target.platform == "cuda" else f"{name.removeprefix('tpu-')}:{shape}"


def require_plugin(target: Target) -> None:
    """Raises InputError where no plugin compiles for the target."""
    require(
        bool(plugin_folders(target)),
        f"--target {target.name}: no plugin that compiles for {target.platform} was found; install it into a folder"
        f" of its own, as benchmarks/compile_for.py says, and name the folder in {FOLDERS}",
    )


def plugin_folders(target: Target) -> list[str]:
    """Returns the folders with a plugin for the target, of those that ESNLM_AOT names and of those of this Python."""
    pattern = "jax_plugins/xla_cuda*" if target.platform == "cuda" else "libtpu"
    named = [folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    return [folder for folder in [*named, *sys.path] if folder and any(Path(folder).glob(pattern))]


def device(target: Target, topology: str) -> Any:
    """Returns the first device of a topology, to compile for."""
    return devices(target, topology)[0]


def devices(target: Target, topology: str) -> list[Any]:
    """Returns the devices of a topology, to compile for. It makes JAX look for plugins."""
    sys.path[:] = [*sys.path, *(folder for folder in plugin_folders(target) if folder not in sys.path)]
    from jax.experimental import topologies

    if target.platform == "cuda":
        found = topologies.get_topology_desc(topology, "cuda", target_config=target.config(), topology=topology)
    else:
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # or it asks the network which TPU this machine has
        found = topologies.get_topology_desc(topology, "tpu")
    return list(found.devices)
