"""Run directories, stores and reports of earlier versions load, score and resume with the figures
of the version that wrote them. tests/old_runs/record.py has made them."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm import commands
from esnlm.base.errors import InputError
from esnlm.base.versions import ESNLM
from esnlm.data.store import open_store
from esnlm.reports import blimp_report
from tests.old_runs.record import TEXTS

# float32 of other machines, versions of JAX, and optimizations
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(params=sorted(file.name for file in Path(__file__).parent.glob("*.tar.xz")))
def old(request, tmp_path, monkeypatch) -> dict:
    """The figures of a version, in a folder with its files."""
    with tarfile.open(Path(__file__).parent / request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return json.loads(Path("figures.json").read_text())


@pytest.mark.parametrize("name", ["light", "esn", "given"])
def test_an_old_run_loads_and_scores(old, name):
    run = esnlm.load(name)
    np.testing.assert_allclose(run.log_probs(TEXTS), old[name]["log_probs"], **CLOSE)
    np.testing.assert_allclose(run.states(TEXTS[:1])[0][-1], old[name]["state"], **CLOSE)


def test_an_old_run_resumes(old):
    with pytest.warns(match="piece"):
        assert commands.main(["train", "--config", "esn.yaml"]) == 0
    ended = json.loads(Path("esn/summary.json").read_text())
    recorded = old["whole"]["summary"]
    assert [ended[name] for name in ("status", "step", "tokens")] == [
        recorded[name] for name in ("status", "step", "tokens")
    ]
    for name in ("train_nll", "val_nll", "val_bits_per_byte"):
        assert ended[name] == pytest.approx(recorded[name], rel=1e-5)


def test_an_old_report_is_read_and_made_again(old):
    report = blimp_report.read("report.json")
    words = ["--run", "light", "--data", "agreement.jsonl", "--out", "again.json"]
    assert commands.main(["blimp", *words]) == 0
    again = blimp_report.read("again.json")
    for key in report.keys() - {"provenance", "pairs_file", "sha256"}:
        assert again[key] == report[key]


@pytest.mark.parametrize(
    ("described", "reader"),
    [
        (None, "format 1 and needs esnlm 0.1.0"),
        ({"format": 99, "esnlm": "3.1.0"}, "needs esnlm 3.1.0"),
        ({"format": 99}, f"needs esnlm later than {ESNLM}"),
    ],
)
def test_another_format_names_the_version_that_reads_it(old, described, reader):
    Path("light/format.json").unlink()
    if described is not None:
        Path("light/format.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match=reader):
        esnlm.load("light")


def test_a_store_of_another_format_names_the_version_that_reads_it(old):
    manifest = Path("train/manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 1}))
    with pytest.raises(InputError, match="train: has format 1 and needs esnlm 0.1.0"):
        open_store("train")
