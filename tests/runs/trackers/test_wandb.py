"""Weights & Biases: what a stand-in for its package is told, and, where the package is, what it writes offline."""

import json
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Trackers
from esnlm.runs.trackers.wandb import WandbTracker

SETTINGS = {"run": "runs/small", "seed": 3, "model": {"rank": None}}


class FakeWandb:
    """Remembers what it is told; stands for the package, and for a run of it."""

    Settings = SimpleNamespace

    def __init__(self, mode="offline", logged_in=False):
        self.settings, self.logged_in = SimpleNamespace(mode=mode), logged_in
        self.begun, self.told, self.summary = {}, [], {}

    def setup(self, settings):
        assert settings.silent
        return self

    def login(self, prompt, verify):
        assert not prompt
        return self.logged_in

    def init(self, **begun):
        self.begun = begun
        return self

    def log(self, values, step):
        self.told.append((step, values))

    def finish(self, exit_code):
        self.told.append(("finish", exit_code))


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """A function that puts a stand-in in the package's place and starts the tracker in a run directory called small."""
    for name in ("WANDB_PROJECT", "WANDB_NAME", "WANDB_RUN_ID", "WANDB_DIR", "WANDB_FINISH_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "small").mkdir()

    def start(**kind):
        fake = FakeWandb(**kind)
        monkeypatch.setitem(sys.modules, "wandb", fake)
        return fake, Trackers({"wandb": WandbTracker}, RunDirectory(tmp_path / "small"), SETTINGS, 0)

    return start


def test_what_is_sent(begin, tmp_path):
    fake, trackers = begin()
    with trackers:
        trackers.log({"step": 2, "train_nll": "inf", "epoch": 1})
        trackers.summary({"status": "diverged", "train_nll": float("inf")})
    assert fake.told == [(2, {"train_nll": float("inf"), "epoch": 1}), ("finish", 0)]
    assert fake.summary == {"status": "diverged", "train_nll": float("inf")}
    assert fake.begun["config"] == SETTINGS
    assert (fake.begun["project"], fake.begun["name"]) == ("esnlm", "small")
    assert fake.begun["dir"] == tmp_path / "small"
    settings = fake.begun["settings"]
    assert settings.silent and settings.disable_code and settings.disable_git and settings.x_disable_meta
    assert settings.finish_timeout == 60


def test_a_resumed_run_goes_on_in_the_same_run(begin, tmp_path):
    first, trackers = begin()
    with trackers:
        pass
    assert first.told == [("finish", 1)]  # it did not come to its end
    second, _ = begin()
    assert second.begun["id"] == first.begun["id"]
    assert second.begun["resume"] == "allow"
    assert json.loads((tmp_path / "small" / "wandb.json").read_text()) == {"id": first.begun["id"]}


def test_the_environment_decides(begin, monkeypatch, tmp_path):
    values = {"PROJECT": "reservoirs", "NAME": "first", "RUN_ID": "abc", "DIR": str(tmp_path), "FINISH_TIMEOUT": "5"}
    for name, value in values.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    fake, _ = begin()
    found = [fake.begun[name] for name in ("project", "name", "id", "dir")]
    assert found == ["reservoirs", "first", "abc", str(tmp_path)]
    assert fake.begun["settings"].finish_timeout == 5


def test_nobody_is_asked_for_a_key(begin, capsys):
    begin(mode="online", logged_in=True)
    assert capsys.readouterr().err == ""
    fake, trackers = begin(mode="online")
    trackers.log({"step": 2, "train_nll": 1.0})
    assert capsys.readouterr().err == (
        "warning: tracking wandb failed: PermissionError: no API key; run `wandb login` first, or set"
        " WANDB_MODE=offline; the run goes on without it\n"
    )
    assert not fake.begun


PROGRAM = """
import sys
from pathlib import Path
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Trackers, find_tracker

with Trackers({"wandb": find_tracker("wandb")}, RunDirectory(Path(sys.argv[1])), {"seed": 3}, 0) as trackers:
    trackers.log({"step": 2, "train_nll": 4.5, "words": 20})
    trackers.log({"step": 2, "val_nll": 4.25})
    trackers.summary({"status": "finished", "val_nll": 4.25})
"""


@pytest.mark.nightly
def test_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    for _ in range(2):  # the second time as a run that is resumed
        done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    runs = [list(records(file)) for file in files]
    ids = {record.run.run_id for run in runs for record in run if record.HasField("run")}
    assert ids == {json.loads((tmp_path / "wandb.json").read_text())["id"]}
    for run in runs:
        assert {"seed": "3"}.items() <= {each.key: each.value_json for each in find(run, "run").config.update}.items()
        (row,) = [record.history for record in run if record.HasField("history")]
        values = {"".join(each.nested_key): json.loads(each.value_json) for each in row.item}
        assert {"_step": 2, "train_nll": 4.5, "words": 20, "val_nll": 4.25}.items() <= values.items()
        # Nothing else goes out: no files, packages, output, or measurements of the machine.
        kinds = {record.WhichOneof("record_type") for record in run}
        assert kinds == {"header", "run", "history", "summary", "telemetry", "exit"}
        assert find(run, "exit").exit_code == 0
        assert not find(run, "run").git.remote_url and not find(run, "run").host


def records(file):
    """Yields the records of a .wandb file: a log in the format of LevelDB, after 7 bytes of W&B's own."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (rest := 32768 - place % 32768) < 7:  # of the block: too short for the head of a part
            place += rest
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        part = data[place + 7 : place + 7 + length]
        place += 7 + length
        whole = (
            part if kind in (1, 2) else whole + part
        )  # 1: all of it, 2: its first part, 3: a middle one, 4: the last
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(whole)
            yield record


def find(run, kind):
    return next(getattr(record, kind) for record in run if record.HasField(kind))
