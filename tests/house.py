"""Counts what keeps the package readable, each beside its limit: `python -m tests.house`.

tests/test_architecture.py asserts the limits. Lines are counted only by their width: a limit on
their number makes people squeeze them.
"""

import ast
import functools
from collections import Counter, defaultdict
from pathlib import Path

import esnlm

PACKAGE = Path(esnlm.__file__).parent
REPOSITORY = PACKAGE.parent
WIDTH = 100  # columns
# Names that do not say what the value is.
VAGUE = frozenset(
    [
        "found",
        "given",
        "own",
        "its",
        "told",
        "said",
        "here",
        "there",
        "whole",
        "beside",
        "about",
        "going",
        "apart",
        "ahead",
        "asked",
        "named",
        "shown",
        "kept",
        "laid",
    ]
)
# `esnlm export` copies these modules beside the weights. transformers runs them without esnlm, so
# they repeat some of its names.
SHIPPED = frozenset(
    f"esnlm.interchange.huggingface.modeling_{name}" for name in ("esnlm", "deep_readout")
)
# The first is on its way to 14,000.
LIMITS = {
    "statements": 16_869,
    "modules": 142,
    "rooms": 20,
    "vague names": 0,
    "class names in two modules": 0,
    "tuples only to be splatted": 3,
    "lines over 100 columns": 0,
    "statements in benchmarks, experiments and examples": 4_148,
}


def read(package: Path) -> dict[str, ast.Module]:
    """Returns the syntax tree of each module of a package, by its dotted name."""
    trees = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(file.read_text(encoding="utf-8"), file.name)
    return trees


def statements(tree: ast.AST) -> int:
    """Returns the number of statements of a tree, docstrings and fields included."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree))


def vague_names(tree: ast.AST) -> list[str]:
    """Returns the vague names of variables and parameters, each time that one is assigned."""
    names = [
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    return [name for name in names if name in VAGUE]


def repeated_classes(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Returns the modules of each class name that several modules define."""
    modules = defaultdict(list)
    for module in trees.keys() - SHIPPED:
        for node in trees[module].body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    return {name: sorted(places) for name, places in modules.items() if len(places) > 1}


def splatted_tuples(tree: ast.AST) -> list[str]:
    """Returns the variables of functions that hold a tuple and are read only as `*name`."""
    names = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        tuples = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        reads, splats = Counter[str](), Counter[str]()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                reads[node.id] += 1
            if isinstance(node, ast.Call):
                splats.update(
                    argument.value.id
                    for argument in node.args
                    if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Name)
                )
        names += [name for name in tuples if reads[name] and reads[name] == splats[name]]
    return names


@functools.cache
def counts() -> dict[str, int]:
    """Returns the figures of LIMITS for this checkout."""
    trees = read(PACKAGE)
    files = list(PACKAGE.rglob("*.py"))
    outside = [
        ast.parse(file.read_text(encoding="utf-8"))
        for folder in ("benchmarks", "experiments", "examples")
        for file in (REPOSITORY / folder).rglob("*.py")
    ]
    return {
        "statements": sum(map(statements, trees.values())),
        "rooms": len({file.relative_to(PACKAGE).parts[0] for file in files}),
        "modules": sum(len(tree.body) > 1 for tree in trees.values()),
        "vague names": sum(len(vague_names(tree)) for tree in trees.values()),
        "class names in two modules": len(repeated_classes(trees)),
        "tuples only to be splatted": sum(len(splatted_tuples(tree)) for tree in trees.values()),
        "lines over 100 columns": sum(
            len(line) > WIDTH
            for file in files
            for line in file.read_text(encoding="utf-8").splitlines()
        ),
        "statements in benchmarks, experiments and examples": sum(map(statements, outside)),
    }


def main() -> None:
    for name, count in counts().items():
        print(f"{count:7,} of {LIMITS[name]:6,}  {name}")


if __name__ == "__main__":
    main()
