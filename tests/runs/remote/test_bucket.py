"""Objects below a URL, with real servers of both protocols, and what is said where a service refuses."""

import errno
import sys

import pytest

from esnlm.errors import InputError
from esnlm.runs.remote import bucket as bucket_module
from esnlm.runs.remote.bucket import SMALL, Bucket

# aiohttp's, of what gcsfs gives it.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")


def test_what_is_written_is_listed_and_read(cloud, tmp_path):
    bucket = cloud.bucket()
    assert bucket.entries() == {} and bucket.read("none") is None
    bucket.write("a/b.json", b"{}")
    cloud.put("runs/first-and-a-half/c", b"of another run")
    assert [(name, entry.size) for name, entry in bucket.entries().items()] == [("a/b.json", 2)]
    assert list(bucket.entries("a/")) == ["a/b.json"] and bucket.entries("b/") == {}
    before = bucket.entries()["a/b.json"].tag
    bucket.write("a/b.json", b"[]")
    assert bucket.read("a/b.json") == b"[]" and bucket.entries()["a/b.json"].tag != before
    bucket.delete(["a/b.json", "none"])
    assert bucket.entries() == {}


def test_large_and_small_files_go_up_and_come_back(cloud, tmp_path):
    contents = {"large": bytes(range(256)) * (SMALL // 256 + 1), "x/small": b"1", "x/empty": b""}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    bucket, said = cloud.bucket(), []
    bucket.upload({name: tmp_path / name for name in contents}, said.append)
    assert sorted(said) == sorted(contents)
    bucket.download({name: tmp_path / "back" / name for name in contents})
    assert {name: (tmp_path / "back" / name).read_bytes() for name in contents} == contents


def test_of_two_that_create_an_object_one_does(s3):
    bucket = s3.bucket()
    assert bucket.create("lock", b"1") and not bucket.create("lock", b"2")
    assert bucket.read("lock") == b"1"


def test_a_file_that_is_not_there_leaves_nothing(s3, tmp_path):
    with pytest.raises(InputError, match="s3://.*/runs/first/none: gone meanwhile; give the same command again"):
        s3.bucket().download({"none": tmp_path / "none"})
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_that_is_not_there(cloud):
    with pytest.raises(InputError, match="there is no bucket 'nowhere'; make it first, or name another"):
        Bucket(cloud.bucket().address.__class__(cloud.scheme, "nowhere/run")).entries()


def test_a_name_that_would_lead_out_of_the_folder(s3, monkeypatch):
    bucket = s3.bucket()
    found = {f"{s3.name}/runs/first/../../x": {"type": "file", "size": 1, "ETag": "1"}}
    monkeypatch.setattr(bucket._files, "find", lambda *_, **__: found)
    with pytest.raises(InputError, match="no name for a file; delete it, or name another place"):
        bucket.entries()


def test_empty_objects_that_stand_for_folders_are_passed_over(s3):
    s3.put("runs/first/checkpoints/", b"")
    assert s3.bucket().entries() == {}


def test_no_credentials(s3, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(InputError) as caught:
        s3.bucket().entries()
    line = f"{s3.url()}: no credentials (Unable to locate credentials); give them as s3fs finds them (docs/cloud.md)"
    assert str(caught.value) == line


def test_a_server_that_is_not_there(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(
        InputError, match="not reached .* see to the network and the endpoint, and give the same command"
    ):
        s3.bucket().entries()


def test_a_package_that_is_not_installed(s3, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InputError) as caught:
        s3.bucket()
    line = f"{s3.url()}: s3fs is not installed, which reads and writes there: pip install s3fs"
    assert str(caught.value) == line


def test_a_right_that_is_missing_and_a_disk_that_is_full(s3):
    place = s3.bucket().address
    refused = PermissionError(errno.EACCES, "Access Denied")
    assert "not allowed ([Errno 13] Access Denied); use credentials" in bucket_module._line(refused, place.url, place)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert bucket_module._line(full, place.url, place).endswith("free some space there, or choose another disk")
    with pytest.raises(KeyError):
        bucket_module._line(KeyError("ours"), place.url, place)
