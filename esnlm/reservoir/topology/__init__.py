"""Topologies of W_rec: the connections between the units of a reservoir. Each is one class in a file of this folder.

A class registers itself in TOPOLOGIES by its `kind`. All files of the folder are imported here, so a new topology needs
only a new file.
"""

import importlib
import pkgutil

from esnlm.reservoir.topology.base import TOPOLOGIES, Connections, Topology

__all__ = ["TOPOLOGIES", "Connections", "Topology"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
