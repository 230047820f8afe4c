"""The order of uploads: whenever they stop, the run in the cloud can be resumed, and the next ones complete it."""

import hashlib
import json
import shutil

import pytest

from esnlm.errors import InputError
from esnlm.io import sealed_folder
from esnlm.io.json_file import remove_seal
from esnlm.io.sealed_folder import MANIFEST
from esnlm.runs.manifest import Manifest
from esnlm.runs.remote import mirror as mirror_module
from esnlm.runs.remote.mirror import Mirror, sealed_folders, step_of
from tests.runs.remote.in_memory import InMemory


def begin(folder):
    """A run directory before its first update."""
    folder.mkdir(parents=True)
    for name in ("format.json", "config.yaml", "data.json", "tokenizer/ranks.tiktoken"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (folder / "metrics.jsonl").write_text("")
    save(folder / "frozen", 0)
    Manifest(folder / MANIFEST).add(folder / "config.yaml", folder / "data.json", folder / "tokenizer")


def save(place, step, permanent=False):
    """A checkpoint. Its files have names that no other one has, as Orbax's have."""
    (place / "arrays").mkdir(parents=True)
    (place / "arrays" / f"d-{step}-{place.parent.parent.name}").write_text(f"arrays of {step}")
    (place / "metadata.json").write_text(json.dumps({"step": step, "permanent": permanent}))
    sealed_folder.write_manifest(place)


def go_on(folder, step, permanent=False):
    """Two updates more, and a checkpoint of them; the one before the last is deleted unless it was kept for good."""
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step}) + "\n")
    save(folder / "checkpoints" / str(step), step, permanent)
    old = folder / "checkpoints" / str(step - 4)
    if old.is_dir() and not json.loads((old / "metadata.json").read_text())["permanent"]:
        shutil.rmtree(old)


def require_resumable(bucket):
    """Asserts that what counts in the cloud is whole; returns its newest step, or -1."""
    there = bucket.objects
    if MANIFEST not in there:
        return -1
    named = remove_seal(there[MANIFEST])["files"]
    assert {name for name in named if hashlib.sha256(there[name]).hexdigest() != named[name]} == set()
    found = sealed_folders(dict.fromkeys(there))
    assert "frozen/" in found
    for each in found:
        inside = {name.removeprefix(each): content for name, content in there.items() if name.startswith(each)}
        files = remove_seal(inside.pop(MANIFEST))["files"]
        assert files.keys() == inside.keys(), each
        assert all(hashlib.sha256(inside[name]).hexdigest() == files[name]["sha256"] for name in files)
    newest = max((step_of(each) for each in found if each != "frozen/"), default=0)
    lines = [json.loads(line)["step"] for line in there["metrics.jsonl"].decode().splitlines()]
    assert max(lines, default=0) >= newest, "a checkpoint without its lines of metrics"
    return newest


def names_in(folder):
    return {name for name in sealed_folder.sizes(folder) if not name.startswith(("wandb", "."))}


def train(bucket, folder, mirror):
    """A training of four checkpoints, one of which is kept for good."""
    mirror.push()  # before it has begun
    begin(folder)
    mirror.push()
    for step in (2, 4, 6, 8):
        go_on(folder, step, permanent=step == 2)
        mirror.push()


def test_at_every_moment_the_newest_checkpoint_in_the_cloud_is_whole_and_never_older(tmp_path):
    bucket, newest = InMemory(), [-1]

    def watch():
        now = require_resumable(bucket)
        assert now >= newest[-1]
        newest.append(now)

    bucket.watch = watch
    train(bucket, tmp_path / "run", Mirror(bucket, tmp_path / "run", tmp_path / "outgoing"))
    assert bucket.objects.keys() == names_in(tmp_path / "run") and newest[-1] == 8
    assert sorted(map(step_of, sealed_folders(dict.fromkeys(bucket.objects)) - {"frozen/"})) == [2, 6, 8]
    assert not any((tmp_path / "outgoing").rglob("*.json"))


def test_wherever_the_network_goes_the_next_process_completes_the_run(tmp_path):
    counting = InMemory()
    train(counting, tmp_path / "count" / "run", Mirror(counting, tmp_path / "count" / "run", tmp_path / "outgoing"))
    for requests in range(counting.asked):
        folder = tmp_path / str(requests) / "run"
        bucket = InMemory()
        bucket.requests = requests
        with pytest.raises(InputError):
            train(bucket, folder, Mirror(bucket, folder, tmp_path / "outgoing"))
        require_resumable(bucket)
        bucket.requests = None
        again = Mirror(bucket, folder, tmp_path / "outgoing")
        again.compare(bucket.entries(), set(), set())
        if not (folder / "checkpoints").is_dir():
            go_on(folder, 2)
        again.push()
        assert bucket.objects.keys() == names_in(folder)
        assert not again.is_behind() and require_resumable(bucket) > 0


def test_only_what_has_changed_is_sent_again(tmp_path):
    bucket, folder = InMemory(), tmp_path / "run"
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    train(bucket, folder, mirror)
    assert not mirror.is_behind()
    changes = []
    bucket.watch = lambda: changes.append(1)
    mirror.push()
    assert changes == []
    go_on(folder, 10)
    assert mirror.is_behind()
    mirror.push()
    # metrics.jsonl, a checkpoint of three files, and the deletion of another one.
    assert len(changes) == 1 + 3 + 3


def test_what_a_tracker_or_a_hidden_writer_keeps_here_is_not_sent(tmp_path):
    bucket, folder = InMemory(), tmp_path / "run"
    begin(folder)
    for name in ("wandb/run.log", ".lock", "evaluation/.x.json.partial-1"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    Mirror(bucket, folder, tmp_path / "outgoing").push()
    assert not {name for name in bucket.objects if "wandb" in name or "/." in name or name.startswith(".")}


def test_checkpoints_that_others_keep_for_good_and_reports_of_others_stay(tmp_path):
    """As on a machine that has fetched the newest checkpoint only."""
    bucket, folder = InMemory(), tmp_path / "run"
    train(bucket, folder, Mirror(bucket, folder, tmp_path / "outgoing"))
    bucket.objects["evaluation/blimp-paper.json"] = b"{}"
    for step in (2, 6):
        shutil.rmtree(folder / "checkpoints" / str(step))
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    mirror.compare(bucket.entries(), set(), set())
    mirror.push()
    steps = sorted(map(step_of, sealed_folders(bucket.entries()) - {"frozen/"}))
    assert steps == [2, 8] and "evaluation/blimp-paper.json" in bucket.objects


def test_a_report_that_another_command_has_replaced_in_the_cloud_is_not_overwritten(tmp_path):
    """The same training is called again: it has nothing to do, and its own older report is still here."""
    bucket, folder = InMemory(), tmp_path / "run"
    begin(folder)
    report = folder / "evaluation" / "blimp-paper.json"
    report.parent.mkdir()
    report.write_text("first")
    Mirror(bucket, folder, tmp_path / "outgoing").push()
    bucket.objects["evaluation/blimp-paper.json"] = b"newer"

    def again():
        mirror = Mirror(bucket, folder, tmp_path / "outgoing")
        mirror.compare(bucket.entries(), set(), set())
        mirror.push()

    again()
    assert bucket.objects["evaluation/blimp-paper.json"] == b"newer"
    # It was fetched, to be looked at, and nothing else was sent; then it was replaced there once more.
    report.write_text("newer")
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    mirror.compare(bucket.entries(), names_in(folder), set())
    mirror.push()
    bucket.objects["evaluation/blimp-paper.json"] = b"newest"
    again()
    assert bucket.objects["evaluation/blimp-paper.json"] == b"newest"
    report.write_text("made here since then")
    again()
    assert bucket.objects["evaluation/blimp-paper.json"] == b"made here since then"
    # What is no report is sent again: the lines of another training, that a checkpoint sent here goes without, or damage.
    bucket.objects["metrics.jsonl"] = bucket.objects["data.json"] = b"damaged"
    again()
    assert b"damaged" not in bucket.objects.values()
    # A report that is deleted here stays there.
    report.unlink()
    again()
    assert "evaluation/blimp-paper.json" in bucket.objects
    # A run that was deleted in the cloud is sent whole.
    bucket.objects.clear()
    again()
    assert bucket.objects.keys() == names_in(folder)


def test_a_checkpoint_of_another_history_is_replaced_and_a_damaged_one_too(tmp_path):
    bucket, folder, other = InMemory(), tmp_path / "run", tmp_path / "other" / "run"
    train(bucket, other, Mirror(bucket, other, tmp_path / "outgoing"))
    train(InMemory(), folder, Mirror(InMemory(), folder, tmp_path / "elsewhere"))
    go_on(folder, 10)
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    mirror.compare(bucket.entries(), set(), {"frozen/"})
    bucket.watch = lambda: None
    mirror.push()
    require_resumable(bucket)
    assert bucket.objects.keys() == names_in(folder)


def test_a_checkpoint_that_is_deleted_while_it_goes_up_arrives_or_is_passed_over(tmp_path):
    bucket, folder = InMemory(), tmp_path / "run"
    begin(folder)
    go_on(folder, 2)
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    bucket.watch = lambda: shutil.rmtree(folder / "checkpoints" / "2", ignore_errors=True)
    mirror.push()
    require_resumable(bucket)
    assert not mirror_module._link(folder / "checkpoints" / "2", tmp_path / "outgoing" / "2")


def test_a_checkpoint_that_is_saved_meanwhile_waits_for_its_lines_of_metrics(tmp_path):
    bucket, folder = InMemory(), tmp_path / "run"
    begin(folder)
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    mirror.push()
    go_on(folder, 2)
    saved = []

    def save_another():
        if not saved and "metrics.jsonl" in bucket.objects and b"2" in bucket.objects["metrics.jsonl"]:
            saved.append(go_on(folder, 4))
        require_resumable(bucket)

    bucket.watch = save_another
    mirror.push()
    assert saved and require_resumable(bucket) == 2
    mirror.push()
    assert require_resumable(bucket) == 4


def test_the_sums_of_a_regression_go_when_its_readout_is_there(tmp_path):
    bucket, folder = InMemory(), tmp_path / "run"
    mirror = Mirror(bucket, folder, tmp_path / "outgoing")
    begin(folder)
    save(folder / "sums" / "3", 3)
    (folder / "metrics.jsonl").write_text('{"step": 5}\n')
    mirror.push()
    assert "sums/3/manifest.json" in bucket.objects
    save(folder / "checkpoints" / "5", 5)
    shutil.rmtree(folder / "sums")
    mirror.push()
    assert bucket.objects.keys() == names_in(folder)
