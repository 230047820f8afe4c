"""Settings are checked wherever they are made: types and ranges at the field, and the rules between
fields."""

import re

import pytest

from esnlm.base.errors import InputError
from esnlm.base.settings import build, read_tree
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.jaeger import JaegerConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.readout.ridge import Ridge
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training.config import TrainingConfig
from experiments.frozen_cells import FrozenCellsConfig

RULES = [
    (EchoStateConfig, "{reservoir: {embedding: 64}, train_input: true}", "train_input is true"),
    (DeepReadoutConfig, "{reservoirs: 0}", "reservoirs is 0"),
    (
        DeepReadoutConfig,
        "{readout: {recent_tokens: {tied: true, count: 1}}}",
        "readout.recent_tokens.width is 256",
    ),
    (DeepReadoutConfig, "{readout: {ngrams: {orders: [1]}}}", "readout.ngrams.orders.0 is 1"),
    (
        DeepReadoutConfig,
        "{readout: {recent_tokens: {tied: true}}}",
        "readout.recent_tokens.tied is",
    ),
    (FrozenCellsConfig, "{gru: {units: 8}}", "gru.mean_degree is 32.0"),
    (GPT2Config, "{heads: 5}", "heads is 5"),
    (JaegerConfig, "{feedback_scale: 0.0}", "feedback_scale is 0.0"),
    (ReadoutConfig, "{rank: null, scaling: ntp}", "scaling is ntp"),
    (Ridge, "{regularizations: []}", "regularizations is empty"),
    (TrainingConfig, "{momentum: 0.5}", "momentum is 0.5"),
    (TrainingConfig, "{warmup_words: 100}", "warmup_words is 100"),
    (ReservoirConfig, "{topology: {kind: ring}, connectivity: 0.1}", "connectivity is 0.1"),
    (ReservoirConfig, "{topology: {kind: small_world, degree: 7}}", "topology.degree is 7"),
    (ReservoirConfig, "{topology: {kind: scale_free, edges: 5000}}", "topology.edges is 5000"),
    (ReservoirConfig, "{topology: {kind: orthogonal, degree: 24}}", "topology.degree is 24"),
    (
        ReservoirConfig,
        "{topology: {kind: antisymmetric, mean_degree: 4096}}",
        "topology.mean_degree is 4096",
    ),
    (ReservoirConfig, "{leak_spacing: log}", "leak_min is 0"),
    (ReservoirConfig, "{continuous: {}, leak_min: 0.3}", "continuous"),
    (ReservoirConfig, "{continuous: {}, update_rule: euler_state}", "update_rule is euler_state"),
    (ReservoirConfig, "{diffusion: 0.5}", "diffusion is 0.5"),
    (ReservoirConfig, "{input_weights: counted, embedding: 8}", "input_weights is counted"),
    (ReservoirConfig, "{input_scale: 1e+39}", "input_scale is 1e+39"),
]


@pytest.mark.parametrize(
    "section, settings, line", RULES, ids=[f"{of.__name__} {text}" for of, text, _ in RULES]
)
def test_a_rule_names_the_setting(section, settings, line):
    import yaml

    with pytest.raises(ValueError, match="^" + re.escape(line)):
        build(section, yaml.safe_load(settings))


@pytest.mark.parametrize(
    "text, line",
    [
        ("a: 1\nb: {c: 2, c: 3}", "not a YAML file: c stands twice"),
        ("a: [1", "not a YAML file: while parsing a flow sequence"),
        ("a: \xff", "not a YAML file: 'utf-8' codec can't decode"),
    ],
)
def test_yaml_that_is_refused_names_its_file(tmp_path, text, line):
    (tmp_path / "a.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=f"^{tmp_path}/a.yaml: {line}"):
        read_tree(tmp_path / "a.yaml", "give one")
    with pytest.raises(InputError, match="^none.yaml: No such file or directory; give one$"):
        read_tree((tmp_path / "none.yaml").relative_to(tmp_path), "give one")
