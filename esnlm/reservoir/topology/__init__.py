"""Topologies of W_rec: who feeds whom in a reservoir. Each is one class in a file of this folder.

A class registers itself in TOPOLOGIES by its `kind`. All files of the folder are imported here, so a new topology is a
new file and nothing else.
"""

import importlib
import pkgutil

from esnlm.reservoir.topology.base import TOPOLOGIES, Connections, Topology

__all__ = ["TOPOLOGIES", "Connections", "Topology"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
