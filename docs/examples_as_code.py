"""Shows the sections `Example:` of docstrings as code, in the Python reference. mkdocs.yml names
this file."""

import re

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)Example:\n((?:\1 +\S.*(?:\n|$)|\n(?=\1 +\S))+)", re.MULTILINE)


class ExamplesAsCode(Extension):
    """Puts a fence of Python around what stands below `Example:`."""

    def on_object(self, *, obj: Object, **others: object) -> None:
        """Changes the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def fenced(example: re.Match) -> str:
    indent, code = example[1] + "    ", example[2].rstrip("\n")
    return f"{example[1]}Example:\n{indent}```python\n{code}\n{indent}```\n"
