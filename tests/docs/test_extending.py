"""The examples of docs/extending.md do what the page says: their code is taken from it, and is used
from a working directory that has it."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.base.settings import find_class
from esnlm.data import grammar
from esnlm.data.sources import SOURCES
from esnlm.evaluation.conventions import CONVENTIONS
from esnlm.models.base import MODELS
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import initialize_reservoir
from esnlm.training import config_io
from esnlm.training.config import FITTERS
from tests import oracle
from tests.training.small import DATA, TRAINING, summary_of, train

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"^```(python|yaml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# By the file that a block's first line names.
FILES = {
    code.splitlines()[0].removeprefix("# "): code
    for language, code in BLOCKS
    if language == "python"
}
(YAML,) = (code for language, code in BLOCKS if language == "yaml")

REGISTRIES = [(MODELS, "family"), (SOURCES, "kind"), (FITTERS, "kind"), (CONVENTIONS, "name")]
SENTENCES = list(grammar.sentences(20, seed=1))
FAMILY = (
    DATA
    + TRAINING
    + """model:
  {family: "averages:AveragesConfig", code_size: 8, decays: [0.0, 0.7]}
"""
)


# A class of each other kind that a configuration can name.
OTHERS = """
from esnlm.base.settings import settings
from esnlm.data.sources import GrammarData
from esnlm.readout.ridge import Ridge

@settings
class Text(GrammarData):
    kind: str = "others:Text"
    sentences: int = 60

@settings
class Fit(Ridge):
    kind: str = "others:Fit"

class Tape:
    def __init__(self, directory, settings, step):
        self.file = directory.path / "tape.txt"

    def log(self, step, values):
        pass

    def summary(self, values):
        self.file.write_text(values["status"])

    def finish(self):
        pass
"""


@pytest.fixture(scope="module", autouse=True)
def added(tmp_path_factory):
    """Makes a working directory with the files of the page."""
    folder = tmp_path_factory.mktemp("added")
    modules = FILES | {"others.py": OTHERS}
    for name, code in modules.items():
        (folder / name).write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.chdir(folder)
        yield
    for name in modules:
        sys.modules.pop(name.removesuffix(".py"), None)
    TOPOLOGIES.pop("regular_jumps:RegularJumps", None)


def test_every_place_of_the_table_is_there():
    places = set(re.findall(r"`((?:esnlm|experiments)/[\w/]+(?:\.py)?)`", PAGE))
    assert len(places) > 15
    assert [place for place in places if not (REPOSITORY / place).exists()] == []


@pytest.mark.parametrize(
    "registry, key", REGISTRIES, ids=["models", "sources", "fitters", "conventions"]
)
def test_what_a_registry_lists_is_called_so(registry, key):
    classes = {name: find_class(name, registry, "") for name in registry}
    assert {getattr(each, key): name for name, each in classes.items()} == {
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


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("averages", "choose from esn, lstm,"),
        ("absent:Config", "No module named 'absent'; modules are searched for on"),
        ("averages:Absent", "module 'averages' has no attribute 'Absent'"),
        ("averages:FadingAverages", "it must be a ModelConfig with the decorator `settings`"),
        ("others:Text", "it must be a ModelConfig"),
    ],
)
def test_a_name_that_is_no_such_class_is_an_error(kind, reason, tmp_path):
    (tmp_path / "mine.yaml").write_text("{}")
    line = f"command line: model.family is {kind!r}: {reason}"
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        config_io.read(tmp_path / "mine.yaml", ["--model.family", kind])


def test_every_kind_can_be_a_class_of_the_user_s(tmp_path):
    text = """
data: {kind: "others:Text", validation_sentences: 10, pairs: 2}
model:
  reservoir: {state_size: 24, mean_degree: 4, topology: {kind: "regular_jumps:RegularJumps"}}
  readout: {rank: 4}
training: {kind: "others:Fit", regularizations: [0.001]}
tracking: ["others:Tape"]
"""
    run = train(tmp_path, "run", text=text)
    assert (run / "tape.txt").read_text() == summary_of(run)["status"] == "finished"
    loaded = esnlm.load(run)
    kinds = [loaded.config.data.kind, loaded.config.training.kind]
    kinds.append(loaded.config.model.reservoir.topology.kind)
    assert kinds == ["others:Text", "others:Fit", "regular_jumps:RegularJumps"]
    assert np.isfinite(loaded.log_probs(SENTENCES)).all()


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
    assert run.layers == {"features": run.config.model.feature_size}
    features = features_by_hand(run.arrays()["averages.codes"], run.config.model.decays, ids[0])
    words = run.word_states(SENTENCES[:1])  # one token each; the last has a full stop, too
    np.testing.assert_allclose(words.states[:-1], features[1:-3], atol=1e-6)
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
