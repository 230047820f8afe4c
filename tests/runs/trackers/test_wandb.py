"""Weights & Biases: what a stand-in for its package is told, and, where the package is, what it
writes offline."""

import json
import sys
from types import SimpleNamespace

import pytest

from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Trackers, WandbTracker

SETTINGS = {"run": "runs/small", "seed": 3, "model": {"rank": None}}


class FakeWandb:
    """Remembers what it is told; stands for the package, and for a run of it."""

    Settings = SimpleNamespace

    def __init__(self, mode="offline", logged_in=False):
        self.settings, self.logged_in = (
            SimpleNamespace(mode=mode, sync_dir="offline-run-1"),
            logged_in,
        )
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
    """A function that puts a stand-in in the package's place and starts the tracker in a run
    directory called small."""
    for name in (
        "WANDB_PROJECT",
        "WANDB_NAME",
        "WANDB_RUN_ID",
        "WANDB_DIR",
        "WANDB_FINISH_TIMEOUT",
    ):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "small").mkdir()

    def start(**kind):
        fake = FakeWandb(**kind)
        monkeypatch.setitem(sys.modules, "wandb", fake)
        return fake, Trackers(
            {"wandb": WandbTracker}, RunDirectory(tmp_path / "small"), SETTINGS, 0
        )

    return start


def test_what_is_sent(begin, tmp_path, capsys):
    fake, trackers = begin()
    assert "offline; this uploads the run: wandb sync offline-run-1" in capsys.readouterr().err
    with trackers:
        trackers.log({"step": 2, "train_nll": "inf", "epoch": 1})
        trackers.summary({"status": "diverged", "train_nll": float("inf")})
    assert fake.told == [(2, {"train_nll": float("inf"), "epoch": 1}), ("finish", 0)]
    assert fake.summary == {"status": "diverged", "train_nll": float("inf")}
    assert fake.begun["config"] == SETTINGS
    assert (fake.begun["project"], fake.begun["name"]) == ("esnlm", "small")
    assert fake.begun["dir"] == tmp_path / "small"
    settings = fake.begun["settings"]
    assert (
        settings.silent
        and settings.disable_code
        and settings.disable_git
        and settings.x_disable_meta
    )
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


def test_nobody_is_asked_for_a_key(begin, capsys):
    begin(mode="online", logged_in=True)
    assert capsys.readouterr().err == ""
    fake, trackers = begin(mode="online")
    trackers.log({"step": 2, "train_nll": 1.0})
    assert (
        capsys.readouterr().err
        == "warning: tracking wandb failed: PermissionError: no API key; run `wandb login` first,"
        " or set WANDB_MODE=offline; the run continues without it\n"
    )
    assert not fake.begun
