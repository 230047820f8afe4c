"""The package's rooms: a module imports from those above its own, never in a circle, and every
function says its types.

The package is read with `ast`, so that nothing of it is run.
"""

import ast
import re

import pytest

from esnlm.base.settings import find_class
from esnlm.models.base import MODELS, ModelConfig
from tests.house import LIMITS, PACKAGE, SHIPPED, counts, read

# In the order of docs/how_it_works.md. A module may import from its own room and from those before
# it in this list.
ROOMS = [
    "base",
    "machine",
    "runs",
    "data",
    "reservoir",
    "features",
    "readout",
    "models",
    "evaluation",
    "training",
    "loaded_run",
    "interchange",
    "reports",
    "diagnosis",
    "api",
    "sklearn",
    "studies",
    "commands",
]
# Imported only inside the functions that need them: they are slow to import, or belong to an extra.
HEAVY = {
    "matplotlib",
    "nltk",
    "tokenizers",
    "safetensors",
    "torch",
    "transformers",
    "networkx",
    "lm_eval",
    "optuna",
    "datasets",
    "pyarrow",
    "backports",
    "mlflow",
    "tensorboard",
    "wandb",
    "fsspec",
    "jinja2",
    "argcomplete",
    "pandas",
    "s3fs",
    "gcsfs",
    "sklearn",
}
# Classes that inherit from theirs. These modules themselves are imported only inside functions.
ADAPTERS = {("esnlm.interchange.lm_eval", "lm_eval"), ("esnlm.sklearn", "sklearn")}


def imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """Returns the dotted names of all modules that a tree imports.

    `from a import b` imports a.b where that is among `modules`, and a otherwise.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # only files that are shipped side by side, see below
                found.add("." + str(node.module))
                continue
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else node.module for name in inner}
    return found


def room(module: str) -> str:
    return module.split(".")[1]


def climbs(trees: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """Returns the imports, as pairs of modules, that go up from a room to a higher one."""
    return {
        (module, other)
        for module, tree in trees.items()
        for other in imports(tree, set(trees))
        if other.startswith("esnlm.") and ROOMS.index(room(module)) < ROOMS.index(room(other))
    }


def circle(trees: dict[str, ast.Module]) -> list[str]:
    """Returns the modules of a circle of imports, or nothing."""
    arrows = {
        module: sorted(imports(tree, set(trees)) & set(trees)) for module, tree in trees.items()
    }
    finished: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str]:
        if module in way:
            return way[way.index(module) :]
        if module in finished:
            return []
        for other in arrows[module]:
            if found := walk(other, [*way, module]):
                return found
        finished.add(module)
        return []

    return next((found for module in arrows if (found := walk(module, []))), [])


def untyped(trees: dict[str, ast.Module]) -> set[str]:
    """Returns the functions of which an argument or the result has no annotation, as
    module.function."""
    found = set()
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                named = [
                    *given.posonlyargs,
                    *given.args,
                    *given.kwonlyargs,
                    given.vararg,
                    given.kwarg,
                ]
                arguments = [
                    argument
                    for argument in named
                    if argument and argument.arg not in ("self", "cls")
                ]
                if node.returns is None or any(
                    argument.annotation is None for argument in arguments
                ):
                    found.add(f"{module}.{node.name}")
    return found


def without_encoding(trees: dict[str, ast.Module]) -> set[str]:
    """Returns the calls that read or write a text file in the encoding of the machine, as
    module:line."""
    arguments_with_encoding = {"read_text": 1, "write_text": 2, "open": 4}
    calls = set()
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            is_method = isinstance(node.func, ast.Attribute)
            name = node.func.attr if is_method else getattr(node.func, "id", "")
            if name not in arguments_with_encoding or is_method == (name == "open"):
                continue
            mode = node.args[1] if name == "open" and len(node.args) > 1 else None
            is_binary = isinstance(mode, ast.Constant) and "b" in mode.value
            named = len(node.args) >= arguments_with_encoding[name] or "encoding" in {
                key.arg for key in node.keywords
            }
            if not named and not is_binary:
                calls.add(f"{module}:{node.lineno}")
    return calls


@pytest.fixture(scope="module")
def trees():
    """The modules of the package, but for its face, esnlm/__init__.py, and the two lines of `python
    -m esnlm`."""
    found = read(PACKAGE)
    return {name: tree for name, tree in found.items() if name not in ("esnlm", "esnlm.__main__")}


@pytest.mark.parametrize("name", LIMITS)
def test_the_package_keeps_to_its_limits(name):
    assert counts()[name] <= LIMITS[name]


def test_every_module_is_in_a_room(trees):
    assert {room(module) for module in trees} <= set(ROOMS)


def test_the_page_names_every_room_in_this_order_and_modules_that_exist():
    page = (PACKAGE.parent / "docs" / "how_it_works.md").read_text().partition("## The code")[2]
    rooms, _, modules = page.partition("Outside the package")
    assert [name for name in re.findall(r"`(\w+)(?:/|\.py)`", rooms) if name in ROOMS] == ROOMS
    assert [
        file for file in re.findall(r"`(\w+/\w+\.py)`", modules) if not (PACKAGE / file).exists()
    ] == []


def test_imports_go_down(trees):
    assert climbs(trees) == set()


def test_no_modules_import_each_other_in_a_circle(trees):
    assert circle(trees) == []


def test_nothing_inside_imports_the_face(trees):
    assert {
        module for module, tree in trees.items() if "esnlm" in imports(tree, set(trees))
    } == set()


def test_what_is_heavy_is_imported_where_it_is_used(trees):
    at_the_top = {
        (module, name.split(".")[0])
        for module, tree in trees.items()
        for node in tree.body
        # `if TYPE_CHECKING` imports nothing
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Try)
        for name in imports(node, set(trees))
    }
    found = {
        (module, name) for module, name in at_the_top if name in HEAVY and module not in SHIPPED
    }
    assert found == ADAPTERS


def test_what_is_shipped_knows_nothing_of_the_package_and_is_not_imported(trees):
    for shipped in SHIPPED:
        assert {
            name for name in imports(trees[shipped], set(trees)) if name.split(".")[0] == "esnlm"
        } == set()
    found = {module: imports(tree, set(trees)) for module, tree in trees.items()}
    assert {module for module, names in found.items() if SHIPPED & names} == set()
    relative = {
        (module, name) for module, names in found.items() for name in names if name.startswith(".")
    }
    assert relative == {("esnlm.interchange.huggingface.modeling_deep_readout", ".modeling_esnlm")}


def test_every_function_is_annotated(trees):
    assert untyped(trees) == set()


def test_text_files_have_the_same_encoding_on_every_machine(trees):
    assert not without_encoding(trees)


@pytest.mark.parametrize(
    "config",
    [ModelConfig, *(find_class(family, MODELS, "") for family in MODELS)],
    ids=lambda config: config.__name__,
)
def test_what_a_model_family_is_fits_into_few_members(config):
    """Members besides its settings. Questions of memory, devices and the like are functions near
    those who ask."""
    settings = {*ModelConfig.__annotations__, *getattr(config, "__dataclass_fields__", ())}
    members = [name for name in dir(config) if name[0] != "_" and name not in settings]
    assert len(members) <= 14, members


def test_these_tests_see_what_they_look_for(tmp_path):
    """A small package with each of the mistakes."""
    package = tmp_path / "esnlm"
    (package / "data").mkdir(parents=True)
    (package / "data" / "up.py").write_text("def f(x):\n    from esnlm.training import run\n")
    (package / "data" / "one.py").write_text("from esnlm.data import two\n")
    (package / "data" / "two.py").write_text(
        "import esnlm\nfrom esnlm.data.one import f\nf.read_text()\nopen(f)\n"
    )
    trees = read(package)
    assert climbs(trees) == {("esnlm.data.up", "esnlm.training")}
    assert circle(trees) == ["esnlm.data.one", "esnlm.data.two"]
    assert untyped(trees) == {"esnlm.data.up.f"}
    assert without_encoding(trees) == {"esnlm.data.two:3", "esnlm.data.two:4"}
    assert "esnlm" in imports(trees["esnlm.data.two"], set(trees))
