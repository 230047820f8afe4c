"""Trainings of runs at a URL, with a real server: stopped, killed, moved to another machine, cut off from the network."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from esnlm.distributed import group
from esnlm.errors import InputError
from esnlm.runs.remote import lock as lock_module
from esnlm.runs.remote import working_folder
from esnlm.runs.remote.address import parse
from esnlm.runs.remote.lock import LOCK
from esnlm.training.log import TrainingLog
from esnlm.workflows import train
from esnlm.workflows.train import train_run
from tests.cloud import SMALL, assert_same_bits, small

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Minutes become tenths of a second, and each call of the loop is one update."""
    for name, seconds in {"LOOK": 0.05, "PATIENCE": 0.0, "PAUSE": 0.05}.items():
        monkeypatch.setattr(working_folder, name, seconds)
    monkeypatch.setattr(TrainingLog, "updates_per_call", lambda self: 1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The same run on this machine alone."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as here:
        here.setattr(TrainingLog, "updates_per_call", lambda self: 1)
        assert train_run(small(folder, folder / "first")) == 0
    return folder / "first"


def after_updates(monkeypatch, count, act):
    """Calls `act` after so many updates of the process, once."""
    push, calls = TrainingLog.push, []

    def push_and_act(self, *arguments):
        push(self, *arguments)
        calls.append(1)
        if len(calls) == count:
            act()

    monkeypatch.setattr(TrainingLog, "push", push_and_act)


def stop():
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("service", ["s3", pytest.param("gs", marks=pytest.mark.slow)])
def test_a_run_in_the_cloud_ends_as_one_on_this_machine(service, request, tmp_path, undisturbed, capsys):
    cloud = request.getfixturevalue(service)
    url = cloud.url()
    assert train_run(small(tmp_path, url)) == 0
    assert capsys.readouterr().err.endswith(f"{url} has everything\n")
    here = {path.relative_to(undisturbed).as_posix() for path in undisturbed.rglob("*") if path.is_file()}
    there = set(cloud.listing())
    assert {name for name in here ^ there if not name.startswith(("checkpoints/", "frozen/", "."))} == set()
    assert_same_bits(url, undisturbed)
    # The same command once more, and on a machine that has nothing of the run.
    for _ in range(2):
        assert train_run(small(tmp_path, url)) == 0
        assert "is finished (update 12); nothing to do" in capsys.readouterr().err
        shutil.rmtree(cloud.kept)


def test_a_run_that_is_stopped_goes_on_on_other_machines_with_the_same_bits(s3, tmp_path, undisturbed, monkeypatch):
    statuses = []
    while not statuses or statuses[-1] == 75:
        with monkeypatch.context() as here:
            after_updates(here, 5, stop)
            statuses.append(train_run(small(tmp_path, s3.url())))
        shutil.rmtree(s3.kept)
    assert statuses == [75, 75, 0]
    assert_same_bits(s3.url(), undisturbed)
    steps = [json.loads(line)["step"] for line in s3.bucket().read("metrics.jsonl").decode().splitlines()]
    assert steps == sorted(steps)


def test_a_network_that_goes_stops_no_training_and_its_end_says_so(s3, tmp_path, undisturbed, monkeypatch, capsys):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    url, folder = s3.url(), parse(s3.url()).working_folder

    def cut():
        s3.server.stop()

    after_updates(monkeypatch, 5, cut)
    try:
        assert train_run(small(tmp_path, url)) == working_folder.NOT_UPLOADED == 69
    finally:  # moto keeps its objects in this process
        s3.server._port = int(endpoint.rpartition(":")[2])
        s3.server.start()
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"warning: {url}: the last state is not in the cloud, but in {folder}: {url}")
    assert "not reached" in last and (folder / "summary.json").exists()
    assert train_run(small(tmp_path, url)) == 0
    shutil.rmtree(s3.kept)
    assert_same_bits(url, undisturbed)


@pytest.mark.slow
def test_a_newest_checkpoint_that_was_cut_short_is_passed_over(s3, tmp_path, undisturbed, monkeypatch, capsys):
    url = s3.url()
    with monkeypatch.context() as here:
        after_updates(here, 5, stop)
        assert train_run(small(tmp_path, url)) == 75
    newest = [name for name in s3.listing() if name.startswith("checkpoints/5/arrays/d/")]
    s3.cut(f"runs/first/{newest[0]}")
    shutil.rmtree(s3.kept)
    assert train_run(small(tmp_path, url)) == 0
    told = capsys.readouterr().err
    assert "checkpoints/5: damaged checkpoint, not used: arrays/d/" in told and "resuming at update 4" in told
    assert_same_bits(url, undisturbed)


@pytest.mark.slow
def test_a_machine_that_is_ahead_of_the_cloud_goes_on_from_its_own_state(
    s3, tmp_path, undisturbed, monkeypatch, capsys
):
    url = s3.url()
    with monkeypatch.context() as here:
        after_updates(here, 7, stop)
        assert train_run(small(tmp_path, url)) == 75
    for name in s3.listing():  # as where it was killed before it could send
        if name.startswith(("checkpoints/7/", "checkpoints/6/")):
            s3.bucket().delete([name])
    capsys.readouterr()
    assert train_run(small(tmp_path, url)) == 0
    assert "resuming at update 7" in capsys.readouterr().err
    shutil.rmtree(s3.kept)
    assert_same_bits(url, undisturbed)


def refusal(tmp_path, url, *settings):
    with pytest.raises(InputError) as caught:
        train_run(small(tmp_path, url, *settings))
    return str(caught.value)


def test_what_is_refused_leaves_the_cloud_as_it_was(s3, tmp_path, monkeypatch):
    url = s3.url()
    line = "s3://nowhere/run: there is no bucket 'nowhere'; make it first, or name another"
    assert refusal(tmp_path, "s3://nowhere/run") == line and list(s3.kept.iterdir()) == []
    # Bad input before the run has begun: nothing is there after it.
    with pytest.raises(InputError, match="^none/manifest.json: missing"):
        train_run(small(tmp_path, url, text="data: {kind: store, train: none}\n"))
    assert s3.listing() == []
    # A place that holds something else.
    s3.put("photos/cat.png", b"cat")
    line = f"{s3.url('photos')}: holds other files (cat.png) and no run; choose another run with --run"
    assert refusal(tmp_path, s3.url("photos")) == line
    assert s3.listing("photos") == ["cat.png"]
    # Another configuration.
    assert train_run(small(tmp_path, url, "--training.epochs", "1")) == 0
    before = s3.listing()
    shutil.rmtree(s3.kept)
    line = f"{url}/config.yaml: the run was begun with another configuration (training.epochs 1 -> 4);"
    assert refusal(tmp_path, url).startswith(line) and s3.listing() == before
    # A file that has changed in the cloud.
    shutil.rmtree(s3.kept)
    s3.put("runs/first/data.json", b"{}")
    line = f"{url}/data.json: changed since it was written; restore it from a copy of the run"
    assert refusal(tmp_path, url) == line
    s3.put("runs/first/manifest.json", b"{}")
    line = f"{url}/manifest.json: changed since it was written; restore it from a copy of the run"
    assert refusal(tmp_path, url) == line


@pytest.mark.slow
def test_a_working_folder_of_another_run_is_not_mixed_with_the_one_in_the_cloud(s3, tmp_path):
    url = s3.url()
    assert train_run(small(tmp_path, url, "--training.epochs", "1")) == 0
    s3.bucket().delete(s3.listing())
    kept = s3.kept.rename(s3.kept.with_name("aside"))
    assert train_run(small(tmp_path, url, "--training.epochs", "2")) == 0
    shutil.rmtree(s3.kept)
    kept.rename(s3.kept)
    line = (
        f"{url}: another run than the one that this machine has worked at (config.yaml differs); if that one is of no use"
        f" any more, delete {parse(url).working_folder.parent}"
    )
    assert refusal(tmp_path, url) == line


def test_a_second_training_is_refused(s3, tmp_path, monkeypatch):
    url = s3.url()
    with working_folder._held_here(parse(url)):
        line = f"{url}: another training on this machine is writing to this run; choose another with --run"
        assert refusal(tmp_path, url) == line
    for name, seconds in {"WATCH": 5.0, "LOOK": 0.02}.items():
        monkeypatch.setattr(lock_module, name, seconds)
    over = threading.Event()

    def live():
        renewals = 0
        while not over.wait(0.02):
            renewals += 1
            s3.put(
                f"runs/first/{LOCK}",
                json.dumps({"host": "elsewhere", "pid": 7, "since": "now", "n": renewals}).encode(),
            )

    s3.put(f"runs/first/{LOCK}", b"{}")
    other = threading.Thread(target=live)
    other.start()
    try:
        line = (
            f"{url}: another training is writing to this run (process 7 of elsewhere, since now); end it, or choose another"
            " run with --run"
        )
        assert refusal(tmp_path, url) == line
    finally:
        over.set()
        other.join()


@pytest.mark.slow
@pytest.mark.parametrize("training", ["{epochs: 4, checkpoint_every: 2}", "{kind: ridge, checkpoint_every: 1}"])
def test_a_run_that_is_killed_goes_on_on_another_machine_with_the_same_bits(s3, tmp_path, training):
    """SIGKILL, three times, each time as soon as another checkpoint, or a part of one, is in the cloud."""
    text = SMALL.replace("sentences: 96", "sentences: 3200").replace("{epochs: 4, checkpoint_every: 2}", training)
    (tmp_path / "small.yaml").write_text(text)
    quickly = "import sys, train; from esnlm.runs.remote import working_folder; working_folder.LOOK = 0.1"
    start = [sys.executable, "-c", f"{quickly}; sys.exit(train.main(sys.argv[1:]))"]
    command = [*start, "--config", str(tmp_path / "small.yaml"), "--compute.window_tokens", "2048", "--run"]
    options = {"cwd": REPOSITORY, "env": os.environ | {"PYTHONPATH": str(REPOSITORY)}, "text": True}
    undisturbed = tmp_path / "undisturbed"
    subprocess.run([*command, str(undisturbed)], **options, check=True, capture_output=True)
    kills = 0
    for _ in range(3):
        before = set(s3.listing())
        process = subprocess.Popen([*command, s3.url()], **options, stderr=subprocess.PIPE)
        while process.poll() is None:
            if any(name.startswith(("checkpoints/", "sums/")) for name in set(s3.listing()) - before):
                process.kill()
                kills += 1
        process.communicate()
        shutil.rmtree(s3.kept)
    last = subprocess.run([*command, s3.url()], **options, capture_output=True)
    assert kills > 0 and last.returncode == 0, last.stderr
    assert_same_bits(s3.url(), undisturbed)


def test_several_processes_need_a_folder_that_all_of_them_see(monkeypatch, tmp_path):
    monkeypatch.setattr(group, "count", lambda: 2)
    monkeypatch.setattr(train, "_require_same_everywhere", lambda *_: None)
    message = "^s3://bucket/run: several processes write one run, so give a folder that all of them see, on a shared file system$"
    with pytest.raises(InputError, match=message):
        train_run(small(tmp_path, "s3://bucket/run"))


def test_a_thread_may_wait_too():
    """Only a main thread can handle signals."""
    found = []

    def wait():
        with working_folder._told_to_wait() as waiting, waiting():
            found.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert found == [True]
