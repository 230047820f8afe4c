"""A reservoir diagnosed: a run's, a configuration's, both; what is written, and what is refused."""

import json

import numpy as np
import pytest

from tests.golden.small import esnlm
from tests.training.small import DATA, TRAINING, train

MODEL = (
    "model: {reservoir: {state_size: 16, mean_degree: 4, input_connectivity: 0.3}, readout: {rank:"
    " 4}}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds trained.yaml, its run, and other.yaml for a run that is not there."""
    folder = tmp_path_factory.mktemp("diagnose")
    train(folder, "trained", text=DATA + TRAINING + MODEL)
    for name in ("trained", "other"):
        (folder / f"{name}.yaml").write_text(f"run: {folder / name}\n{DATA}{TRAINING}{MODEL}")
    return folder


def diagnose(out, *words):
    """Runs the command and returns the file that it writes in `out`."""
    assert esnlm("diagnose", *words) == 0
    return json.loads((out / "diagnostics.json").read_text())


@pytest.mark.nightly
def test_a_configuration_is_diagnosed_as_the_run_that_it_would_become(folder, capsys):
    """The same seed draws the same reservoir, so all figures agree."""
    out, config = folder / "both", folder / "trained.yaml"
    words = ["--run", folder / "trained", "--config", config, "--out", out]
    run, configuration = diagnose(out, *words)["reservoirs"]
    assert (run["name"], configuration["name"]) == ("trained", "trained.yaml")
    assert run | {"name": ""} == configuration | {"name": ""}
    printed = capsys.readouterr().out
    assert printed.count("The echo state property is undecided by theory") == 2
    assert printed.count("erdos_renyi") == 2


def test_what_is_written_goes_beside_the_run(folder):
    written = folder / "trained" / "diagnostics"
    tree = diagnose(written, "--run", folder / "trained")
    assert sorted(file.name for file in written.iterdir()) == [
        "contraction.png",
        "diagnostics.json",
    ]
    assert tree["command"] == f"esnlm diagnose --run {folder / 'trained'}"
    (found,) = tree["reservoirs"]
    assert found["settings"]["spectral_radius"] == 0.99 and found["theory"][
        "radius"
    ] == pytest.approx(0.99, rel=1e-3)
    assert (
        len(found["state_contraction"]["distance"]) == 301
        and found["state_contraction"]["rate"] < 0
    )
    assert 1 <= found["effective_rank"] <= 16 and 0 < found["memory_capacity"]["total"] <= 16
    assert -1 < found["lyapunov_exponent"] < 0
    memory = found["memory_capacity"]
    assert (
        memory["total"] == pytest.approx(np.mean(memory["totals"])) and len(memory["totals"]) == 3
    )
    assert memory["total"] == pytest.approx(np.sum(memory["by_delay"]))


def test_a_configuration_is_written_to_the_run_that_it_names(folder):
    words = ["--config", folder / "other.yaml", "--model.reservoir.topology.kind", "ring"]
    result = diagnose(folder / "other" / "diagnostics", *words)
    assert result["text"] == "the generated grammar"
    assert result["reservoirs"][0]["verdict"].startswith(
        "The echo state property holds by theory: sigma_max(W) = 0.99 is below 1"
    )


def test_a_configuration_without_a_run_directory_needs_a_folder(tmp_path, capsys):
    (tmp_path / "small.yaml").write_text("model: {reservoir: {state_size: 16, mean_degree: 4}}")
    words = ["--config", tmp_path / "small.yaml", "--data.sentences", "50"]
    assert esnlm("diagnose", *words) == 2
    assert "small.yaml: names no run directory: name a folder with --out" in capsys.readouterr().err
    assert esnlm("diagnose", *words, "--out", tmp_path / "report") == 0


def test_a_text_of_one_s_own_and_a_report_that_is_not_replaced_unasked(folder, tmp_path, capsys):
    text = (
        "The cats sleep in the garden.\n\nThe dog that the girls like barks.\n" * 20
        + "Dogs bark.\n"
    )
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "diagnostics.json").write_text("another report")
    words = ["--run", folder / "trained", "--text", tmp_path / "text.txt", "--out", tmp_path]
    assert esnlm("diagnose", *words) == 2
    assert f"error: {tmp_path}/diagnostics.json" in capsys.readouterr().err
    assert (tmp_path / "diagnostics.json").read_text() == "another report"
    result = diagnose(tmp_path, *words, "--overwrite")
    assert result["text"] == str(tmp_path / "text.txt")
