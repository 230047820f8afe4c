"""URLs: which are known, what they name, and where their folders lie."""

from pathlib import Path

import pytest

from esnlm.errors import InputError
from esnlm.runs.remote.address import is_url, parse


@pytest.mark.parametrize("place", ["s3://bucket/run", "gs://bucket/run", "hdfs://x/y", Path("s3://bucket/run")])
def test_these_are_urls(place):
    assert is_url(place)


@pytest.mark.parametrize("place", ["runs/first", "/tmp/s3/x", "s3", "C:/runs", "hf:name", Path("runs"), "a b://c"])
def test_these_are_not(place):
    assert not is_url(place)


def test_a_path_of_a_url_names_the_same(monkeypatch):
    monkeypatch.setenv("ESNLM_WORK", "/somewhere")
    one, other = parse("s3://bucket/runs/first/"), parse(Path("s3://bucket/runs/first"))
    assert one == other and one.url == "s3://bucket/runs/first" and one.name == "first" and one.bucket == "bucket"
    assert one.working_folder == one.folder / "work" / "first" and one.copy == one.folder / "copy" / "first"
    assert one.folder.parent == Path("/somewhere") and one.folder.name.startswith("s3-bucket-runs-first-")


def test_different_urls_have_different_folders(monkeypatch):
    monkeypatch.setenv("ESNLM_WORK", "/somewhere")
    urls = ["s3://bucket/a-b", "s3://bucket/a/b", "gs://bucket/a/b", "s3://bucket/a.b", "s3://bucket/" + 200 * "a"]
    folders = {parse(url).folder for url in urls}
    assert len(folders) == len(urls) and all(len(folder.name) < 100 for folder in folders)


def test_the_folders_are_in_the_users_cache_unless_named(monkeypatch, tmp_path):
    monkeypatch.delenv("ESNLM_WORK", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert parse("s3://bucket/run").folder.parent == tmp_path / "esnlm" / "cloud"


@pytest.mark.parametrize("url", ["s3://bucket/../x", "s3://bucket/a//b", "s3://bucket/a?versionId=1", "s3://bucket/*"])
def test_names_that_are_patterns_or_ways_up_are_refused(url):
    with pytest.raises(InputError, match="is no name for a folder; use letters, digits and"):
        parse(url)
