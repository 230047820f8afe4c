"""The sections of a run. Each is one file of this folder with three things:

    PLACE             a number: sections stand on the page in this order
    TITLE             the heading
    render(run)       what stands below it, made of a `Material`; None leaves the section out

All files of the folder are imported here, so a new section is a new file and nothing else. Write with `markup.tag`, which
escapes all text. Where something is missing that a command makes, `markup.ask` says so in a line.
"""

import importlib
import pkgutil
from types import ModuleType

SECTIONS: list[ModuleType] = sorted(
    (importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)),
    key=lambda module: module.PLACE,
)
