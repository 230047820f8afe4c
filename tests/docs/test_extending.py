"""The two examples of docs/extending.md do what the page says: their code is taken from it, and
really used."""

import ast
import importlib
import pkgutil
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data import grammar
from esnlm.data.sources import SOURCES
from esnlm.evaluation.conventions import CONVENTIONS
from esnlm.models.registry import MODELS
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import initialize_reservoir
from esnlm.training import config_io
from esnlm.training.config import FITTERS
from tests import oracle
from tests.training.small import DATA, TRAINING, train

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"^```(python|yaml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# By the file that a block's first line names.
FILES = {
    Path(code.splitlines()[0].removeprefix("# ")): code
    for language, code in BLOCKS
    if language == "python" and code.startswith("# esnlm/")
}
(YAML,) = (code for language, code in BLOCKS if language == "yaml")
(TOPOLOGY,) = (code for _, code in BLOCKS if code.startswith("# regular_jumps.py"))
(LINE,) = (code for language, code in BLOCKS if language == "python" and code[0] != "#")

REGISTRIES = [(MODELS, "family"), (SOURCES, "kind"), (FITTERS, "kind"), (CONVENTIONS, "name")]
SENTENCES = list(grammar.sentences(20, seed=1))
FAMILY = DATA + TRAINING + "model: {family: recent_tokens, code_size: 8, decays: [0.0, 0.7]}\n"


@pytest.fixture(scope="module", autouse=True)
def added(tmp_path_factory):
    """Adds the two files and the line to the package. They lie in a folder of their own; no other
    test sees them."""
    folder = tmp_path_factory.mktemp("added")
    packages = {file: importlib.import_module(".".join(file.parent.parts)) for file in FILES}
    with pytest.MonkeyPatch.context() as patch:
        for file, package in packages.items():
            (folder / file.parent.name).mkdir()
            (folder / file.parent.name / file.name).write_text(FILES[file])
            patch.setattr(package, "__path__", [*package.__path__, str(folder / file.parent.name)])
            # so it is imported
            assert file.stem in {found.name for found in pkgutil.iter_modules(package.__path__)}
            importlib.import_module(f"{package.__name__}.{file.stem}")
        patch.syspath_prepend(folder)
        (folder / "regular_jumps.py").write_text(TOPOLOGY)
        importlib.import_module("regular_jumps")
        for name, path in ast.literal_eval(f"{{{LINE.strip()}}}").items():
            patch.setitem(MODELS, name, pkgutil.resolve_name(path))
        yield
    for file, package in packages.items():
        delattr(package, file.stem)
        del sys.modules[f"{package.__name__}.{file.stem}"]
    del sys.modules["regular_jumps"], TOPOLOGIES["regular_jumps"]


def test_every_place_of_the_table_is_there():
    """The folder of each new file, the file of each line, and each file to copy."""
    named = set(re.findall(r"`(esnlm/[\w/]+\.py)`", PAGE))
    assert len(named) > 20
    for name in named - {str(file) for file in FILES}:
        path = REPOSITORY / name
        assert path.exists() or (path.stem == "FILE" and path.parent.is_dir()), name


@pytest.mark.parametrize(
    "registry, key", REGISTRIES, ids=["models", "sources", "fitters", "conventions"]
)
def test_what_a_registry_lists_is_called_so(registry, key):
    assert {name: getattr(each, key) for name, each in registry.items()} == {
        name: name for name in registry
    }


def test_the_topology_is_the_matrix_that_the_page_describes(tmp_path):
    (tmp_path / "page.yaml").write_text(YAML)
    settings = config_io.read(tmp_path / "page.yaml").model.reservoir
    w_rec = oracle.dense(initialize_reservoir(settings, vocab_size=10, seed=0).reservoir.w_rec)
    expected = np.zeros((48, 48))
    for unit in range(48):
        expected[(unit + 1) % 48, unit] = 1
    for unit in range(0, 48, 6):
        expected[(unit + 6) % 48, unit] = expected[unit, (unit + 6) % 48] = 0.4
    assert settings.topology.entries(48, 0) == np.count_nonzero(expected)
    expected *= settings.spectral_radius / np.abs(np.linalg.eigvals(expected)).max()
    np.testing.assert_allclose(w_rec, expected, atol=1e-4)
    with pytest.raises(
        InputError, match="model.reservoir.topology.jump is 7: it must divide the state size, 48"
    ):
        config_io.read(tmp_path / "page.yaml", ["--model.reservoir.topology.jump", "7"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("adamw"), "run", text=FAMILY)


def features_by_hand(codes, decays, ids):
    """The averages after each token, written from the page's sentence about them."""
    averages, found = np.zeros((len(decays), codes.shape[1])), []
    for token in ids:
        for k, decay in enumerate(decays):
            averages[k] = decay * averages[k] + (1 - decay) * codes[token]
        found.append(averages.ravel().copy())
    return np.array(found)


def log_prob_by_hand(run, ids):
    arrays = {name: array.astype(float) for name, array in run.arrays().items()}
    features = features_by_hand(arrays["averages.codes"], run.config.model.decays, ids[:-1])
    logits = features @ arrays["readout.w"].T + arrays["readout.bias"]
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_probs[np.arange(len(ids) - 1), ids[1:]].sum()


def test_the_family_trains_its_readout_and_nothing_else(trained):
    run, before = esnlm.load(trained), esnlm.load(trained, untrained=True)
    assert run.step > 5
    changed = {
        name
        for name, array in run.arrays().items()
        if not np.array_equal(array, before.arrays()[name])
    }
    assert changed == {"readout.w", "readout.bias"}
    assert run.model.counts().trainable == sum(
        array.size for array in (run.model.readout.w, run.model.readout.bias)
    )
    assert run.model.counts().total == sum(array.size for array in run.arrays().values())
    assert run.log_probs(SENTENCES).mean() > before.log_probs(SENTENCES).mean() + 5


def test_the_family_scores_and_generates_as_its_equations_say(trained):
    run = esnlm.load(trained)
    ids = [
        np.array([run.tokenizer.bos, *run.tokenizer.encode(text), run.tokenizer.eos])
        for text in SENTENCES
    ]
    expected = [log_prob_by_hand(run, each) for each in ids]
    np.testing.assert_allclose(run.log_probs(SENTENCES), expected, rtol=1e-5)
    (greedy,) = run.generate(temperature=0, length=6)
    chosen, arrays = [run.tokenizer.bos], run.arrays()
    while len(chosen) < 7 and run.tokenizer.eos not in chosen[1:]:
        features = features_by_hand(arrays["averages.codes"], run.config.model.decays, chosen)[-1]
        chosen.append(int(np.argmax(arrays["readout.w"] @ features + arrays["readout.bias"])))
    assert greedy == run.tokenizer.decode(
        [token for token in chosen[1:] if token != run.tokenizer.eos]
    )


@pytest.mark.nightly
def test_the_family_is_fitted_by_regression_too(trained, tmp_path):
    """The readout of a family that knows nothing of regressions. The features are the same ones."""
    fitted = train(tmp_path, "run", text=FAMILY.replace(TRAINING, "training: {kind: ridge}\n"))
    before = esnlm.load(trained, untrained=True).log_probs(SENTENCES)
    assert esnlm.load(fitted).log_probs(SENTENCES).mean() > before.mean() + 5
