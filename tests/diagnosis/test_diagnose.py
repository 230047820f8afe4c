"""A reservoir diagnosed: a run's, a configuration's, both; what is written, and what is refused."""

import json
import shutil

import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.data import grammar
from esnlm.diagnosis.contraction import DistanceCurve
from esnlm.diagnosis.diagnose import diagnose
from esnlm.diagnosis.measures import verdict
from esnlm.diagnosis.theory import Theory
from esnlm.errors import InputError
from esnlm.reporting.diagnosis_rows import format_rows
from esnlm.workflows.train import train_run

MODEL = "{reservoir: {state_size: 32, mean_degree: 4, input_connectivity: 0.3}, readout: {rank: 4}}"
DATA = "{kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds trained.yaml, its run, and others.yaml for a run that is not there."""
    folder = tmp_path_factory.mktemp("diagnose")
    (folder / "trained.yaml").write_text(f"run: {folder / 'trained'}\ndata: {DATA}\nmodel: {MODEL}\n")
    (folder / "other.yaml").write_text(f"run: {folder / 'other'}\ndata: {DATA}\nmodel: {MODEL}\n")
    train_run(config_io.read(folder / "trained.yaml"))
    return folder


@pytest.fixture(scope="module")
def result(folder):
    """What is found of the run, and written beside it."""
    return diagnose(folder / "trained", command="python -m esnlm diagnose --run trained")


def test_a_configuration_is_diagnosed_as_the_run_that_it_would_become(folder, capsys):
    """The same seed draws the same reservoir, so all figures agree."""
    side_by_side = diagnose(folder / "trained", folder / "trained.yaml", out=folder / "both")["reservoirs"]
    assert [found["name"] for found in side_by_side] == ["trained", "trained.yaml"]
    assert side_by_side[0] | {"name": ""} == side_by_side[1] | {"name": ""}
    out = capsys.readouterr().out
    assert out.count("The echo state property is undecided by theory") == 2 and out.count("erdos_renyi") == 2
    assert (folder / "both" / "diagnostics.json").exists()


def test_settings_of_a_topology_may_be_texts(result):
    (figures,) = result["reservoirs"]
    topology = {"kind": "tree", "branches": 2.0, "direction": "down"}
    rows = format_rows(figures | {"settings": figures["settings"] | {"topology": topology}})
    assert rows["topology"] == "tree branches 2 direction down"


def test_the_memory_has_its_spread_and_a_word_where_samples_are_few(result):
    (figures,) = result["reservoirs"]
    memory = figures["memory_capacity"]
    assert memory["total"] == pytest.approx(np.mean(memory["totals"])) and len(memory["totals"]) == 3
    assert memory["total"] == pytest.approx(np.sum(memory["by_delay"]))
    told = f"{memory['total']:.1f} of 100 delays (sd {memory['sd']:.1f} over 3 inputs; chance 0.02)"
    assert format_rows(figures)["memory capacity"] == told
    few = figures | {"memory_capacity": memory | {"samples": 200}}
    assert format_rows(few)["memory capacity"] == f"{told}; too low, since 200 samples are few for 32 units"


def test_what_is_written_goes_beside_the_run(folder, result):
    pytest.importorskip("matplotlib")
    written = folder / "trained" / "diagnostics"
    assert sorted(file.name for file in written.iterdir()) == ["contraction.png", "diagnostics.json"]
    tree = json.loads((written / "diagnostics.json").read_text())
    assert tree["command"] == result["command"]
    (found,) = tree["reservoirs"]
    assert found["settings"]["spectral_radius"] == 0.99 and found["theory"]["radius"] == pytest.approx(0.99, rel=1e-3)
    assert len(found["state_contraction"]["distance"]) == 301 and found["state_contraction"]["rate"] < 0
    assert 1 <= found["effective_rank"] <= 32 and 0 < found["memory_capacity"]["total"] <= 32


def test_a_configuration_is_written_to_the_run_that_it_names(folder):
    result = diagnose(config=folder / "other.yaml", overrides=["--model.reservoir.topology.kind", "ring"])
    assert result["text"] == "the generated grammar"
    assert result["reservoirs"][0]["verdict"].startswith(
        "The echo state property holds by theory: sigma_max(W) = 0.99 is below 1"
    )
    assert (folder / "other" / "diagnostics" / "diagnostics.json").exists()


def test_a_run_of_given_sentences_is_read_from_its_own_store(tmp_path):
    sentences = list(grammar.sentences(60, seed=0))
    tokenizer = esnlm.tokenizer("words", sentences)
    model = {"reservoir": {"state_size": 16, "mean_degree": 4}, "readout": {"rank": None}}
    tree = {"run": str(tmp_path / "run"), "model": model, "training": {"kind": "ridge"}}
    esnlm.train(tree, sentences=sentences, tokenizer=tokenizer)
    assert diagnose(tmp_path / "run")["text"] == str(tmp_path / "run" / "stores" / "train")
    shutil.rmtree(tmp_path / "run" / "stores")
    assert refusal(tmp_path / "run").endswith("name a text with --data, or choose store")


def test_a_text_of_one_s_own_and_a_report_that_is_not_replaced_unasked(folder, tmp_path):
    text = "The cats sleep in the garden.\n\nThe dog that the girls like barks.\n" * 20 + "Dogs bark.\n"
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "diagnostics.json").write_text("another report")
    line = f"{tmp_path / 'diagnostics.json'}: exists: name another folder with --out, or replace it with --overwrite"
    assert refusal(folder / "trained", data=tmp_path / "text.txt", out=tmp_path) == line
    assert (tmp_path / "diagnostics.json").read_text() == "another report"
    result = diagnose(folder / "trained", data=tmp_path / "text.txt", out=tmp_path, overwrite=True)
    assert result["text"] == str(tmp_path / "text.txt")


def test_a_deep_reservoir_of_membranes(folder, tmp_path, capsys):
    settings = [
        "--model.reservoir.layers",
        "2",
        "--model.reservoir.update_rule",
        "leaky_membrane",
        "--model.reservoir.embedding",
        "6",
    ]
    found = diagnose(
        config=folder / "other.yaml", overrides=[*settings, "--model.reservoir.topology.kind", "ring"], out=tmp_path
    )
    said = found["reservoirs"][0]["verdict"]
    assert said.startswith(
        "The echo state property holds by theory: the largest sigma_max(W) of 2 layers = 0.99 is below 1"
    )
    assert "two start states (membrane potentials) approach each other" in said
    rows = format_rows(found["reservoirs"][0])
    assert rows["update rule"] == "leaky membrane" and rows["units"] == "32 in each of 2 layers"
    assert found["reservoirs"][0]["connections"] == 64 and found["reservoirs"][0]["saturated"] is not None


def test_relu_that_grows_is_still_reported(folder, tmp_path):
    settings = [
        "--model.reservoir.activation",
        "relu",
        "--model.reservoir.spectral_radius",
        "9",
        "--model.reservoir.leak_min",
        "1",
    ]
    found = diagnose(config=folder / "other.yaml", overrides=settings, out=tmp_path)["reservoirs"][0]
    assert found["verdict"].startswith("The echo state property is not defined: relu has no bounded set of states")
    assert "two start states do not approach each other" in found["verdict"]
    assert found["memory_capacity"] == "memory capacity: the states grow beyond float32; lower the spectral radius"
    assert (
        found["input_forgetting"]
        == "the states grow beyond float32 before they are compared; lower the spectral radius"
    )
    written = json.loads((tmp_path / "diagnostics.json").read_text())["reservoirs"][0]
    assert written["saturated"] is None and written["state_contraction"]["left"] in ("inf", "nan")


@pytest.mark.parametrize(
    "decided, rate, sentence",
    [
        (
            "holds",
            -0.2,
            "holds by theory: so; measured on text, two start states approach each other by 0.2 nats a token (tokens 4 to 8)",
        ),
        (
            "fails",
            0.1,
            "fails by theory: so; measured on text, two start states do not approach each other (+0.1 nats a token)",
        ),
        (
            "undecided",
            -np.inf,
            "is undecided by theory: so; measured on text, two start states become one within a token",
        ),
        (
            "undefined",
            np.nan,
            "is not defined: so; measured on text, two start states do not approach each other (+nan nats a token)",
        ),
    ],
)
def test_the_verdict_is_one_sentence_with_its_reason(decided, rate, sentence):
    theory = Theory(decided, "so", 0.5, 0.5, 0.5, 0)
    assert verdict(theory, DistanceCurve(np.ones((9, 2)), rate, (4, 8), rate)) == f"The echo state property {sentence}."


def refusal(*arguments, **options):
    with pytest.raises(InputError) as caught:
        diagnose(*arguments, **options)
    return str(caught.value)


def test_what_cannot_be_diagnosed_is_refused_in_one_line(folder, tmp_path):
    (tmp_path / "short.txt").write_text("The cats sleep.\n")
    (tmp_path / "lstm.yaml").write_text(f"run: {tmp_path / 'lstm'}\ndata: {DATA}\nmodel: {{family: lstm, width: 8}}\n")
    title = config_io.read(tmp_path / "lstm.yaml").model.title
    assert refusal().startswith("nothing to diagnose: give a run directory (--run), a configuration (--config) or both")
    assert refusal(folder / "trained", overrides=["--seed", "3"]).startswith("--seed 3: settings go with --config")
    line = f"{tmp_path / 'lstm.yaml'}: {title} is no echo state network without output feedback"
    assert refusal(config=tmp_path / "lstm.yaml").startswith(line)
    assert not (tmp_path / "lstm").exists()
    assert refusal(folder / "trained", data=tmp_path / "short.txt") == (
        f"{tmp_path / 'short.txt'}: 6 tokens with the ends of sentences; give a text of at least 300"
    )
    assert refusal(config=folder / "trained.yaml").startswith(f"{folder / 'trained'}: there is a run already")
    assert refusal(tmp_path / "none").startswith(f"{tmp_path / 'none'}: not a run directory")
    assert refusal(folder / "trained", data=tmp_path / "none.txt").startswith(
        f"{tmp_path / 'none.txt'}: cannot be read"
    )


def test_the_verdict_knows_what_the_state_of_each_update_rule_is():
    theory, curve = Theory("holds", "so", 0.5, 0.5, 0.5, 0), DistanceCurve(np.ones((9, 2)), -np.inf, (4, 8), -np.inf)
    assert "two start states become one" in verdict(theory, curve, "leaky_output")
    assert "two start states (membrane potentials) become one" in verdict(theory, curve, "leaky_membrane")
    assert "two start states become one" in verdict(theory, curve, "a_rule_of_ones_own")  # whose state is read
