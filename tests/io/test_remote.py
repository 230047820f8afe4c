"""Runs and token stores at URLs: copied into the cache, uploaded, and what happens when a service fails."""

import shutil
import socket

import fsspec
import pytest

import esnlm
from esnlm import config_io
from esnlm.data.store import open_store
from esnlm.errors import InputError
from esnlm.io import sealed_folder
from esnlm.io.remote import Upload, full_name, is_url, run_copy
from esnlm.workflows.train import train_run

URL = "memory://runs/first"
SMALL = """\
run: run
data: {kind: grammar, sentences: 60, validation_sentences: 20}
model:
  reservoir: {state_size: 16, mean_degree: 4}
  readout: {rank: 4}
training: {epochs: 1}
"""


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
    return {path.removeprefix("/runs/first/") for path in fsspec.filesystem("memory").find("/runs/first")}


def test_a_path_is_no_url_and_a_path_of_a_url_gets_its_slash_back():
    assert is_url("s3://bucket/run") and is_url("s3:/bucket/run") and not is_url("runs/first") and not is_url("C:/x")
    assert full_name("s3:/bucket/run") == "s3://bucket/run" and full_name("runs/first") == "runs/first"


def test_an_uploaded_run_is_read_back_with_its_newest_checkpoint_only(run):
    Upload(run, URL)(last=True)
    assert "checkpoints/2/manifest.json" in there() and not any(name.startswith((".", "wandb")) for name in there())
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
    assert (copy / "metrics.jsonl").read_text() == "more lines" and report.read_text() == "made here"
    assert sealed_folder.find_difference(copy / "checkpoints" / "6") is None
    assert not (copy / "checkpoints" / "4" / "manifest.json").exists()


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(run, capsys):
    Upload(run, URL)(last=True)
    fsspec.filesystem("memory").pipe_file("/runs/first/checkpoints/4/arrays/a", b"weights 5")
    copy = run_copy(URL)
    assert "checkpoints/4: damaged checkpoint, not used: arrays/a: changed" in capsys.readouterr().err
    assert sealed_folder.find_difference(copy / "checkpoints" / "2") is None


def test_what_is_not_there_is_refused(run):
    with pytest.raises(InputError, match="^memory://runs/first: not a run directory"):
        run_copy(URL)
    Upload(run, URL)(last=True)
    with pytest.raises(InputError, match="no checkpoint of step 3; there are: 2, 4"):
        run_copy(URL, 3)
    with pytest.raises(InputError, match="^hdfs2://x: "):
        run_copy("hdfs2://x")


def test_another_run_is_not_uploaded_over_this_one(run):
    Upload(run, URL)(last=True)
    Upload(run, URL)(last=True)
    (run / "config.yaml").write_text("another")
    with pytest.raises(InputError, match="has another run or other files"):
        Upload(run, URL)


def test_an_outage_does_not_end_a_training_but_is_an_error_at_the_end(run, monkeypatch, capsys):
    upload = Upload(run, URL)
    with monkeypatch.context() as outage:
        outage.setattr(type(upload._bucket._fs), "put_file", lambda *_, **__: 1 / 0)
        upload()
        upload()
        with pytest.raises(InputError, match="the same command uploads the rest"):
            upload(last=True)
    assert capsys.readouterr().err.count("not uploaded for now") == 2
    upload(last=True)
    assert "checkpoints/4/manifest.json" in there()


@pytest.mark.nightly
def test_a_training_is_uploaded_to_s3_and_loaded_from_there(tmp_path, monkeypatch):
    """moto's server stands for S3."""
    server = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    s3 = server.ThreadedMotoServer(port=port)
    s3.start()
    try:
        monkeypatch.chdir(tmp_path)
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        fsspec.filesystem("s3").mkdir("bucket")
        (tmp_path / "small.yaml").write_text(SMALL)
        url = "s3://bucket/runs/first"
        assert train_run(config_io.read("small.yaml", []), ends_process=False, upload=url) == 0
        there, here = esnlm.load(url), esnlm.load("run")
        assert there.step == here.step
        sentence = ["The cat sleeps ."]
        assert there.log_probs(sentence).tolist() == here.log_probs(sentence).tolist()
        assert open_store(tmp_path / "run/stores/train").tokens_sha256 == _store_at("s3://bucket/store", tmp_path)
        with pytest.raises(InputError, match="--upload URL"):
            train_run(config_io.read("small.yaml", ["--run", url]), ends_process=False)
    finally:
        s3.stop()


def _store_at(url, folder):
    fsspec.filesystem("s3").put(str(folder / "run/stores/train"), url, recursive=True)
    return open_store(url).tokens_sha256
