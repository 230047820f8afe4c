"""The family of the experiment computes what its equations say, and old settings still name it."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import esnlm
from esnlm.base.errors import InputError
from esnlm.studies.study import make_cells
from esnlm.studies.study_file import read_study
from esnlm.training import config_io
from experiments.frozen_cells import FrozenCellsConfig
from experiments.frozen_cells.attention import AttendedTokensConfig, AttentionConfig
from experiments.frozen_cells.diagonal import DiagonalConfig
from experiments.frozen_cells.family import AttendingTrunkConfig
from experiments.frozen_cells.gru import GruConfig
from tests import deep_oracle
from tests.interchange.small_runs import bpe, write_run
from tests.models import test_deep_readout as deep

ALL = FrozenCellsConfig(
    reservoir=deep.RESERVOIR,
    reservoirs=2,
    diagonal=DiagonalConfig(units=10, token_dependence=0.5),
    gru=GruConfig(units=12, mean_degree=4.0),
    readout=AttendingTrunkConfig(
        rank=14,
        normalize=True,
        recent_tokens=AttendedTokensConfig(
            count=2,
            width=5,
            decays=(0.7,),
            window=4,
            attention=AttentionConfig(heads=2, window=3, width=8, sharpness=3.0),
        ),
        ngrams=deep.ALL.readout.ngrams,
        gated_mlp=deep.ALL.readout.gated_mlp,
    ),
)
TIED_TOKENS = dataclasses.replace(ALL.readout.recent_tokens, width=14, tied=True)
TIED = dataclasses.replace(ALL, readout=dataclasses.replace(ALL.readout, recent_tokens=TIED_TOKENS))


def expected_z(params, frozen, sentence, config):
    """What the readout of ALL or TIED sees, (T, r), in float64."""

    def dense(name, rows, columns):
        arrays = frozen["gru"][name]
        shape = rows, columns
        return scipy.sparse.coo_array((arrays["values"], arrays["indices"].T), shape).toarray()

    gates = np.split(dense("gates", 24, 12), 2)
    inputs = np.split(dense("input", 36, deep.V), 3)
    bias = np.asarray(frozen["gru"]["bias"], np.float64)
    parts = [
        deep.expected_h(frozen, sentence),
        deep_oracle.diagonal(deep_oracle.float64(frozen["diagonal"]), sentence),
        deep_oracle.gru(*gates, dense("candidate", 12, 12), *inputs, bias, sentence),
    ]
    h = np.concatenate(parts, axis=1)
    projection = np.asarray(frozen["attention"]["projection"], np.float64)
    weights = deep_oracle.attention(projection, 2, 3, 3.0, h)
    return deep.z_of(params, h, sentence, config.readout, weights)


@pytest.fixture(
    scope="module", params=[ALL, pytest.param(TIED, marks=pytest.mark.nightly)], ids=["", "tied"]
)
def drawn(request):
    return deep.model_of(request.param)


def test_the_stream_gives_what_the_equations_say(drawn):
    deep.assert_the_stream_gives_what_the_equations_say(*drawn, True, expected_z)


def test_a_text_read_token_by_token_gives_the_same(drawn):
    deep.assert_a_text_read_token_by_token_gives_the_same(*drawn, expected_z)


@pytest.mark.nightly
def test_the_gradient_is_that_of_the_equations(drawn):
    deep.assert_the_gradient_is_that_of_the_equations(*drawn, expected_z)


def test_inside_a_gradient_the_features_are_the_same(drawn):
    deep.assert_inside_a_gradient_the_features_are_the_same(*drawn, expected_z)


def test_the_counts_are_those_of_the_arrays(drawn):
    deep.assert_the_counts_are_those_of_the_arrays(*drawn)


OLD = (
    "model: {family: deep_readout, reservoirs: 1, reservoir: {state_size: 8, mean_degree: 4},"
    " readout: {rank: 6, recent_tokens: {count: 2}}, diagonal: {units: %d, shortest: 2},"
    " gru: {units: 0}, attention: {heads: %d, window: 4}}"
)


def test_a_run_without_such_cells_is_a_deep_readout_as_before(tmp_path, capsys):
    (tmp_path / "old.yaml").write_text(OLD % (0, 0))
    model = config_io.read(tmp_path / "old.yaml").model
    assert model.family == "deep_readout" and capsys.readouterr().err == ""


def test_a_run_with_such_cells_is_of_the_experiment_s_family(tmp_path, capsys):
    (tmp_path / "old.yaml").write_text(OLD % (3, 2))
    model = config_io.read(tmp_path / "old.yaml", ["--model.diagonal.longest", "9"]).model
    attention = AttentionConfig(heads=2, window=4)
    assert isinstance(model, FrozenCellsConfig) and model.readout.recent_tokens.count == 2
    assert model.readout.recent_tokens.attention == attention
    assert model.diagonal == DiagonalConfig(units=3, shortest=2.0, longest=9.0)
    assert "model.family experiments.frozen_cells:FrozenCellsConfig" in capsys.readouterr().err


def test_a_run_is_saved_loads_and_needs_the_module(tmp_path, monkeypatch):
    family = "experiments.frozen_cells:FrozenCellsConfig"
    words = f"family {family} reservoir.state_size 8 reservoir.mean_degree 4 gru.units 5"
    words += " gru.mean_degree 2 readout.rank 4 readout.recent_tokens.attention.heads 1"
    settings = [word if i % 2 else f"--model.{word}" for i, word in enumerate(words.split())]
    run = esnlm.load(write_run(tmp_path / "run", settings, bpe()))
    assert run.config.model.family == family and np.isfinite(run.log_probs(["The cats sleep."]))
    monkeypatch.setitem(sys.modules, "experiments.frozen_cells", None)
    with pytest.raises(InputError, match=f"model.family is '{family}': import of experiments"):
        esnlm.load(tmp_path / "run")


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["frontier/rates", "documents"])
def test_the_studies_train_as_many_numbers_as_they_did(name):
    """Of each row that is of this family; documents.json has its rows by run, without a rate."""
    file = ROOT / "configs" / "studies" / f"{name}.yaml"
    recorded = json.loads((ROOT / "results" / f"{name}.json").read_text())
    if name == "documents":
        trained = {record["model"]: record["trained"] for record in recorded.values()}
    else:
        cells = recorded["cells"]
        trained = {cell["case"]: cell["runs"][0]["trainable_params"] for cell in cells}
    rows = {cell.case: cell for cell in make_cells(read_study(file), file)}
    found = {}
    for case, row in rows.items():
        words = [
            f"--{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in row.settings.items()
        ]
        model = config_io.read(row.base, words).model
        if isinstance(model, FrozenCellsConfig):
            found[case] = model.expected_counts(8192).trainable
    assert len(found) == {"frontier/rates": 6, "documents": 4}[name]
    for case in found.keys() & trained.keys():
        assert found[case] == trained[case], case
    assert len(found.keys() & trained.keys()) >= 4
