"""Reports on runs in the cloud go there, and so do new token stores."""

import json

import pytest

from esnlm import commands
from esnlm.data.prepare import prepare
from esnlm.data.store import open_store
from esnlm.data.tokenizer import word_tokenizer
from esnlm.errors import InputError
from esnlm.runs.remote.address import parse
from esnlm.runs.remote.bucket import Bucket, CloudError
from esnlm.runs.remote.results import uploads_results


def test_a_report_on_minimal_pairs_stands_beside_the_run(run_there, capsys):
    url = run_there.url()
    run_there.bucket().delete([name for name in run_there.listing() if name.startswith("evaluation/")])
    assert commands.main(["blimp", "--run", url]) == 0
    assert capsys.readouterr().out.endswith(f"uploaded: 4 files to {url}\n")
    report = json.loads(run_there.bucket().read("evaluation/blimp-paper.json"))
    assert report["run"] == "first" and "evaluation/blimp-paper.pairs.jsonl" in run_there.listing()
    assert commands.main(["report", url]) == 0
    assert "blimp-paper | 12 |" in capsys.readouterr().out
    # A report that another machine has made is not replaced unasked, though this one has nothing of it.
    changed = json.dumps(report | {"step": 3}).encode()
    run_there.put("runs/first/evaluation/blimp-paper.json", changed)
    assert commands.main(["blimp", "--run", url]) == 2
    assert f"error: {url}/evaluation/blimp-paper.json: " in capsys.readouterr().err
    assert run_there.bucket().read("evaluation/blimp-paper.json") == changed


def test_what_could_not_be_uploaded_is_kept_and_goes_with_the_next_results(run_there, monkeypatch):
    copy = parse(run_there.url()).copy

    @uploads_results
    def write(run, name):
        (copy / "evaluation").mkdir(exist_ok=True)
        (copy / "evaluation" / name).write_text(name)

    def refuse(self, files, said=None):
        raise CloudError(f"{self.address.url}: not reached")

    with monkeypatch.context() as here, pytest.raises(InputError) as caught:
        here.setattr(Bucket, "upload", refuse)
        write(run_there.url(), "one.json")
    assert str(caught.value) == f"the results are in {copy}, and not in the cloud: {run_there.url()}: not reached"
    write(run=run_there.url(), name="two.json")
    assert {"evaluation/one.json", "evaluation/two.json"} <= set(run_there.listing())


@pytest.fixture
def text(tmp_path):
    """A text and its tokenizer, on this machine."""
    word_tokenizer(["the", "cat", "sleeps", "."]).save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("the cat sleeps .\nthe cat sleeps . the cat sleeps .\n")
    return tmp_path


def make(folder, out, **options):
    settings = {
        "tokenizer": folder / "tokenizer",
        "sentences": "line",
        "min_length": 3,
        "workers": 1,
        "progress": False,
    }
    return prepare([folder / "text.txt"], out, **settings | options)


def test_a_store_is_prepared_in_the_cloud(s3, text):
    url = s3.url("stores/new")
    made = make(text, url)
    assert len(made) == 2 and len(open_store(url)) == 2
    assert s3.listing("stores/new")[-1] == "words.npy" and "manifest.json" in s3.listing("stores/new")
    with pytest.raises(InputError) as caught:
        make(text, url)
    assert str(caught.value) == f"{url}: exists; name another place for the store, or ask to overwrite it (--overwrite)"
    (text / "text.txt").write_text("the cat sleeps .\n")
    make(text, url, overwrite=True)
    assert len(open_store(url)) == 1
    s3.put("photos/cat.png", b"cat")
    with pytest.raises(InputError) as caught:
        make(text, s3.url("photos"), overwrite=True)
    line = f"{s3.url('photos')}: exists and is not a token store; name another place for the store"
    assert str(caught.value) == line and s3.listing("photos") == ["cat.png"]
    s3.put("stores/new/notes.txt", b"important")
    with pytest.raises(InputError, match="has notes.txt, which is not of a token store, and would be lost"):
        make(text, url, overwrite=True)
    s3.put("mine/tokenizer/tokenizer.json", b"{}")
    with pytest.raises(InputError, match="mine: exists and is not a token store"):
        make(text, s3.url("mine"))
    assert s3.listing("mine/tokenizer") == ["tokenizer.json"]


def test_an_upload_that_was_cut_short_is_no_store_and_is_done_again(s3, text, monkeypatch):
    url, upload = s3.url("stores/new"), Bucket.upload

    def upload_some(self, files, said=None):
        upload(self, dict(list(files.items())[:2]), said)
        raise CloudError(f"{url}: not reached")

    with monkeypatch.context() as here, pytest.raises(InputError, match="not reached"):
        here.setattr(Bucket, "upload", upload_some)
        make(text, url)
    assert s3.listing("stores/new") and "manifest.json" not in s3.listing("stores/new")
    make(text, url)
    assert len(open_store(url)) == 2


def test_bad_text_leaves_nothing_in_the_cloud(s3, text):
    (text / "text.txt").write_text("")
    with pytest.raises(InputError, match=r"text.txt: empty"):
        make(text, s3.url("stores/new"))
    assert s3.listing("stores/new") == []
