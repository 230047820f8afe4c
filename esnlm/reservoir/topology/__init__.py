"""Topologies of W_rec: the connections between the units of a reservoir. Each is one class in a
file of this folder.

A class registers itself in TOPOLOGIES by its `kind`. All files of the folder are imported here: add
a file for a topology.
"""

import importlib
import pkgutil

from esnlm.reservoir.topology.base import TOPOLOGIES, Connections, Topology

__all__ = ["TOPOLOGIES", "Connections", "Topology"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
