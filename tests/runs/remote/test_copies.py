"""Runs and token stores in the cloud that are read: only what is needed comes, and every byte is verified."""

import shutil

import numpy as np
import pytest

import esnlm
from esnlm.data.store import open_store
from esnlm.errors import InputError
from esnlm.runs import checkpoint
from esnlm.runs.remote import copies
from esnlm.runs.remote.address import parse
from esnlm.runs.remote.bucket import Bucket
from esnlm.workflows.train import train_run
from tests.cloud import small


@pytest.fixture
def fetched(monkeypatch):
    """The names of the objects that were fetched."""
    names, download = [], Bucket.download

    def download_and_tell(self, files):
        names.extend(files)
        download(self, files)

    monkeypatch.setattr(Bucket, "download", download_and_tell)
    return names


def test_a_run_is_loaded_with_what_it_needs_and_nothing_else(run_there, trained, fetched):
    run, same = esnlm.load(run_there.url()), esnlm.load(trained)
    assert run.name == "first" and run.step == 12 and run.directory == parse(run_there.url()).copy
    sentences = ["the cats sleep .", "the cat sleeps ."]
    assert np.array_equal(run.log_probs(sentences), same.log_probs(sentences))
    assert run.unigram() is not None and run.bigram() is not None
    parts = {name.split("/")[0] for name in fetched}
    assert "frozen" in parts and not parts & {"evaluation", "plots", "metrics.jsonl"}
    assert {name.split("/")[1] for name in fetched if name.startswith("checkpoints/")} == {"12"}
    # What is here already is not fetched again.
    fetched.clear()
    esnlm.load(run_there.url())
    assert fetched == []
    assert esnlm.load(run_there.url(), step=10).step == 10 and all(
        name.startswith("checkpoints/10/") for name in fetched
    )


def test_an_untrained_run_needs_no_checkpoint(run_there, fetched):
    assert esnlm.load(run_there.url(), untrained=True).step == 0
    assert not any(name.startswith("checkpoints/") for name in fetched)


def test_a_copy_follows_the_cloud(run_there):
    esnlm.load(run_there.url())
    for name in [name for name in run_there.listing() if name.startswith("checkpoints/12/")]:
        run_there.bucket().delete([name])
    assert esnlm.load(run_there.url()).step == 10
    assert not (parse(run_there.url()).copy / "checkpoints" / "12").exists()


def test_a_copy_that_was_damaged_is_fetched_again(run_there):
    esnlm.load(run_there.url())
    copy = parse(run_there.url()).copy
    for name in ("config.yaml", "checkpoints/12/metadata.json"):
        (copy / name).write_bytes(b"")
    assert esnlm.load(run_there.url()).step == 12


def test_a_truncated_checkpoint_is_passed_over_or_refused(run_there):
    run_there.cut("runs/first/checkpoints/12/metadata.json")
    wrong = r"checkpoints/12: damaged checkpoint, not used: metadata.json: \d+ bytes, \d+ were saved"
    with pytest.warns(UserWarning, match=wrong):
        assert esnlm.load(run_there.url()).step == 10
    with pytest.raises(InputError) as caught:
        esnlm.load(run_there.url(), step=12)
    assert str(caught.value).startswith(f"{run_there.url()}/checkpoints/12: damaged checkpoint: metadata.json: ")
    shutil.rmtree(run_there.kept)
    run_there.cut("runs/first/checkpoints/10/metadata.json")
    with pytest.warns(UserWarning), pytest.raises(InputError, match="no intact checkpoint .step 10: metadata.json: "):
        esnlm.load(run_there.url())


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer/ranks.tiktoken", "unigram.npy"])
def test_a_truncated_file_is_named_by_its_url(run_there, name):
    run_there.cut(f"runs/first/{name}")
    with pytest.raises(InputError) as caught:
        esnlm.load(run_there.url())
    assert (
        str(caught.value)
        == f"{run_there.url()}/{name}: changed since it was written; restore it from a copy of the run"
    )


def test_what_is_not_there(run_there):
    for url, line in {
        run_there.url("runs"): "not a run directory: it has no config.yaml; give one that train.py wrote",
        "s3://nowhere/run": "there is no bucket 'nowhere'; make it first, or name another",
    }.items():
        with pytest.raises(InputError) as caught:
            esnlm.load(url)
        assert str(caught.value) == f"{url}: {line}"
    with pytest.raises(InputError) as caught:
        esnlm.load(run_there.url(), step=11)
    assert str(caught.value) == f"{run_there.url()}/checkpoints: no checkpoint of step 11; there are: 10, 12"


def test_a_checkpoint_that_is_still_going_up_does_not_count(run_there):
    run_there.bucket().delete(["checkpoints/12/manifest.json"])
    assert esnlm.load(run_there.url()).step == 10


def test_results_are_fetched_for_reports(run_there, fetched):
    folder = copies.results_copy(run_there.url())
    assert (folder / "evaluation").is_dir() and (folder / "metrics.jsonl").is_file()
    assert not (folder / "checkpoints").exists()
    assert copies.results_copy("runs/here").as_posix() == "runs/here", "a folder of this machine is taken as it is"


def test_a_report_that_was_deleted_in_the_cloud_goes_here_too(run_there):
    folder = copies.results_copy(run_there.url())
    [report] = folder.glob("evaluation/*.json")
    run_there.bucket().delete([f"evaluation/{report.name}"])
    copies.results_copy(run_there.url())
    assert not report.exists() and (folder / "config.yaml").exists()


def test_a_report_that_was_made_here_since_then_stays(run_there):
    """As where it was scored again, and the upload failed."""
    folder = copies.results_copy(run_there.url())
    [report] = folder.glob("evaluation/*.json")
    report.write_text("newer, and nowhere else")
    run_there.bucket().delete([f"evaluation/{report.name}"])
    copies.results_copy(run_there.url())
    assert report.read_text() == "newer, and nowhere else"


def test_a_process_that_writes_nothing_fetches_nothing(run_there, trained, monkeypatch):
    run_there.files.put(str(trained / "stores" / "train"), f"{run_there.name}/stores/", recursive=True)
    store = run_there.url("stores/train")
    monkeypatch.setattr(copies.group, "writes", lambda: False)
    line = "of several processes the first one alone can fetch it; copy it to a folder that all see, and name that one"
    for act, url in ((esnlm.load, run_there.url()), (open_store, store)):
        with pytest.raises(InputError) as caught:
            act(url)
        assert str(caught.value) == f"{url}: {line}"
    monkeypatch.setattr(copies.group, "writes", lambda: True)
    open_store(store)
    monkeypatch.setattr(copies.group, "writes", lambda: False)
    assert len(open_store(store)) > 0, "the first process has fetched it into a folder that this one sees"


def test_the_best_step_of_a_run_that_goes_on_is_known_to_its_newest_checkpoint(run_there, fetched, monkeypatch):
    run_there.bucket().delete(["summary.json"])
    with pytest.raises(InputError, match="no best checkpoint was kept"):
        esnlm.load(run_there.url(), step="best")
    assert "checkpoints/12/metadata.json" in fetched, "it was asked"
    metadata = checkpoint.metadata
    monkeypatch.setattr(checkpoint, "metadata", lambda place: metadata(place) | {"best_step": 10})
    assert esnlm.load(run_there.url(), step="best").step == 10
    assert "metrics.jsonl" in fetched, "which has the validation after it"


def test_a_store_is_fetched_once_and_verified(run_there, trained, fetched, capsys):
    run_there.files.put(str(trained / "stores" / "train"), f"{run_there.name}/stores/", recursive=True)
    url = run_there.url("stores/train")
    store, same = open_store(url), open_store(trained / "stores" / "train")
    assert np.array_equal(store.tokens, same.tokens) and store.tokenizer().sha256 == same.tokenizer().sha256
    assert f"fetching {url}: 0.0 MB" in capsys.readouterr().err
    fetched.clear()
    open_store(url)
    assert fetched == []
    # It was prepared again.
    run_there.files.put(str(trained / "stores" / "validation") + "/", f"{run_there.name}/stores/train/", recursive=True)
    assert len(open_store(url)) == 10 and "tokens.bin" in fetched


def test_a_copy_of_a_store_that_was_damaged_here_is_fetched_again(run_there, trained, capsys):
    run_there.files.put(str(trained / "stores" / "train"), f"{run_there.name}/stores/", recursive=True)
    url = run_there.url("stores/train")
    file = open_store(url).folder / "tokens.bin"
    content = file.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:10]):
        file.write_bytes(damaged)
        open_store(url)
        assert file.read_bytes() == content and "the copy on this machine is damaged" in capsys.readouterr().err
    open_store(url)
    assert capsys.readouterr().err == ""


def test_a_damaged_store_is_refused_and_not_kept(run_there, trained):
    run_there.files.put(str(trained / "stores" / "train"), f"{run_there.name}/stores/", recursive=True)
    url = run_there.url("stores/train")
    run_there.cut("stores/train/tokens.bin")
    line = f"{url}/tokens.bin: not as it was made (its sha256 differs); prepare the store again, or upload it again"
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            open_store(url)
        assert str(caught.value) == line
    run_there.bucket("stores/train").delete(["tokens.bin"])
    with pytest.raises(InputError, match=r"tokens.bin: not as it was made \(missing\)"):
        open_store(url)
    with pytest.raises(InputError) as caught:
        open_store(run_there.url("stores/none"))
    line = f"{run_there.url('stores/none')}/manifest.json: missing; not a token store: make one with python -m esnlm prepare"
    assert str(caught.value) == line
    assert not parse(url).copy.exists()


def test_a_training_takes_stores_by_url(run_there, trained, tmp_path):
    run_there.files.put(str(trained / "stores"), f"{run_there.name}/", recursive=True)
    text = """data: {{kind: store, train: {0}/train, validation: {0}/validation}}
model: {{reservoir: {{state_size: 16, mean_degree: 4}}, readout: {{rank: 4}}}}
"""
    assert train_run(small(tmp_path, tmp_path / "new", text=text.format(run_there.url("stores")))) == 0
    shutil.rmtree(run_there.kept)
    run = esnlm.load(tmp_path / "new")
    assert run.bigram() is not None and run.likelihood(run_there.url("stores/validation")).tokens > 0
