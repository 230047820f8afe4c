"""Runs and token stores at URLs: copied into the cache, uploaded, and what happens when a service
fails."""

import shutil

import fsspec
import numpy as np
import pytest

import esnlm
from esnlm.base import files as sealed_folder
from esnlm.base.errors import InputError
from esnlm.base.remote import Upload, run_copy
from esnlm.data.store import open_store
from esnlm.training.run import train_run
from tests.training.small import read

URL = "memory://runs/first"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ESNLM_WORK", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    fsspec.filesystem("memory").store.clear()


def save_step(run, step, content="weights"):
    folder = run / "checkpoints" / str(step)
    (folder / "arrays").mkdir(parents=True)
    (folder / "arrays" / "a").write_text(f"{content} {step}")
    sealed_folder.Manifest(folder / sealed_folder.MANIFEST).add(folder)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    for step in (2, 4):
        save_step(folder, step)
    (folder / "wandb").mkdir()
    for name in ("config.yaml", "metrics.jsonl", "manifest.json", ".lock", "wandb/log"):
        (folder / name).write_text(name)
    return folder


def there():
    return {
        path.removeprefix("/runs/first/")
        for path in fsspec.filesystem("memory").find("/runs/first")
    }


def test_an_uploaded_run_is_read_back_with_its_newest_checkpoint_only(run):
    Upload(run, URL)(last=True)
    assert "checkpoints/2/manifest.json" in there() and not any(
        name.startswith((".", "wandb")) for name in there()
    )
    copy = run_copy(URL)
    assert (copy / "metrics.jsonl").read_text() == "metrics.jsonl"
    assert [path.name for path in (copy / "checkpoints").iterdir()] == ["4"]
    assert run_copy(URL, 2) == copy and (copy / "checkpoints/2/arrays/a").read_text() == "weights 2"
    assert run_copy(run) == run


def test_a_copy_is_brought_up_to_date_and_keeps_reports_made_here(run):
    upload = Upload(run, URL)
    upload(last=True)
    report = run_copy(URL) / "report.json"
    report.write_text("made here")
    (run / "metrics.jsonl").write_text("more lines")
    save_step(run, 6)
    shutil.rmtree(run / "checkpoints" / "4")
    upload(last=True)
    assert not any(name.startswith("checkpoints/4") for name in there())
    copy = run_copy(URL)
    assert (
        copy / "metrics.jsonl"
    ).read_text() == "more lines" and report.read_text() == "made here"
    assert sealed_folder.find_difference(copy / "checkpoints" / "6") is None
    assert not (copy / "checkpoints" / "4" / "manifest.json").exists()


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(run, capsys):
    Upload(run, URL)(last=True)
    fsspec.filesystem("memory").pipe_file("/runs/first/checkpoints/4/arrays/a", b"weights 5")
    copy = run_copy(URL)
    assert (
        "checkpoints/4: damaged checkpoint, not used: arrays/a: changed" in capsys.readouterr().err
    )
    assert sealed_folder.find_difference(copy / "checkpoints" / "2") is None


def test_what_is_not_there_is_refused(run):
    with pytest.raises(InputError, match="^memory://runs/first: not a run directory"):
        run_copy(URL)
    Upload(run, URL)(last=True)
    with pytest.raises(InputError, match="no checkpoint of step 3; available: 2, 4"):
        run_copy(URL, 3)
    with pytest.raises(InputError, match="^hdfs2://x: "):
        run_copy("hdfs2://x")


def test_another_run_is_not_uploaded_over_this_one(run):
    Upload(run, URL)(last=True)
    Upload(run, URL)(last=True)
    (run / "config.yaml").write_text("another")
    with pytest.raises(InputError, match="holds another run or other files"):
        Upload(run, URL)


def test_an_outage_does_not_end_a_training_but_is_an_error_at_the_end(run, monkeypatch, capsys):
    upload = Upload(run, URL)
    with monkeypatch.context() as outage:
        outage.setattr(type(upload._bucket._fs), "put_file", lambda *_, **__: 1 / 0)
        upload()
        upload()
        with pytest.raises(InputError, match="the same command uploads the rest"):
            upload(last=True)
    assert capsys.readouterr().err.count("upload failed") == 2
    upload(last=True)
    assert "checkpoints/4/manifest.json" in there()


def test_a_training_is_uploaded_and_loaded_from_there(tmp_path):
    here = read(tmp_path, "here")
    assert train_run(here, owns_process=False, upload=URL) == 0
    one, other = esnlm.load(URL), esnlm.load(here.run)
    assert one.step == other.step
    assert all(np.array_equal(array, other.arrays()[name]) for name, array in one.arrays().items())
    store = tmp_path / "here/stores/train"
    fsspec.filesystem("memory").put(str(store), "memory://runs/store", recursive=True)
    assert open_store("memory://runs/store").tokens_sha256 == open_store(store).tokens_sha256
    with pytest.raises(InputError, match="--upload URL"):
        train_run(read(tmp_path, "here", "--run", URL), owns_process=False)
