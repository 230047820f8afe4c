"""A run that goes on from a finished one: the same as one longer run, complete in its directory,
and refused where it must be."""

import json
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import serialization

import esnlm
from esnlm import commands
from esnlm.base.errors import InputError
from esnlm.runs import checkpoint
from esnlm.training import state
from esnlm.training.config import TrainingConfig, flatten
from esnlm.training.log import TrainingLog
from esnlm.training.optimizer import make_optimizer
from esnlm.training.state import with_moments
from tests.training.small import same_run, summary_of, train

# The text has the same order in every epoch, so two epochs are one epoch and another one from
# there.
ONE_EPOCH = ["--training.epochs", "1", "--training.order", "corpus"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the finished run `parent`, and `child`, which goes on from it with the moments
    of its optimizer.

    The parent has averaged weights, from which nobody goes on.
    """
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        train(folder, "parent", *ONE_EPOCH, "--training.ema", "0.6")
        train(
            folder, "child", *ONE_EPOCH, "--parent.run", "parent", "--parent.keep_optimizer", "true"
        )
    return folder


def params(run, **options):
    return flatten(esnlm.load(run, **options).model.params)


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_going_on_with_the_optimizer_is_one_longer_training(folder):
    train(folder, "longer", *ONE_EPOCH, "--training.epochs", "2")
    found, expected, before = (
        params(folder / name, averaged=False) for name in ("child", "longer", "parent")
    )
    for name in expected:
        # The paddings of an update may differ, and with them a rounding of the gradient: a part of
        # 12 steps of 0.02.
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=12 * 0.02 * 1e-4)
        assert np.abs(before[name] - expected[name]).max() > 0.05


def test_a_child_is_its_parent_before_the_first_update(folder):
    assert same(params(folder / "child", untrained=True), params(folder / "parent", averaged=False))
    assert not same(params(folder / "parent", averaged=False), params(folder / "parent"))
    digests = [
        checkpoint.digest(checkpoint.restore(folder / run / "frozen")[0])
        for run in ("child", "parent")
    ]
    manifests = [
        json.loads((folder / run / "manifest.json").read_text()) for run in ("child", "parent")
    ]
    assert (
        digests == [manifest["frozen_sha256"] for manifest in manifests]
        and digests[0] == digests[1]
    )


def updates_of_moments(run):
    """How many gradients the moments of AdamW have taken up."""
    optimizer = checkpoint.restore(run / "checkpoints" / str(esnlm.load(run).step))[0]["optimizer"]
    return int(state._find_fields(optimizer, {"count", "mu", "nu"})["count"])


@pytest.mark.nightly
def test_another_seed_keeps_the_reservoir_and_moments_begin_anew(folder, monkeypatch):
    monkeypatch.chdir(folder)
    train(
        folder,
        "other",
        *ONE_EPOCH,
        "--parent.run",
        "parent",
        "--seed",
        "7",
        "--data.sentences",
        "32",
    )
    assert same(params(folder / "other", untrained=True), params(folder / "parent", averaged=False))
    assert not same(params(folder / "other"), params(folder / "parent", averaged=False))
    of_parent, of_other = (
        esnlm.load(folder / run).model.reservoir.arrays() for run in ("parent", "other")
    )
    jax.tree.map(np.testing.assert_array_equal, of_other, of_parent)
    assert [updates_of_moments(folder / run) for run in ("other", "parent", "child")] == [4, 12, 24]


def test_the_summary_and_the_configuration_name_the_parent(folder):
    theirs, child = summary_of(folder / "parent"), summary_of(folder / "child")
    expected = {
        "run": "parent",
        "step": 12,
        "keep_optimizer": True,
        "config_sha256": theirs["config_sha256"],
    }
    assert child["parent"] == expected and "parent" not in theirs
    assert child["step"] == 12 and child["config_sha256"] != theirs["config_sha256"]
    assert vars(esnlm.load(folder / "child").config.parent) == expected


def test_a_stopped_child_goes_on_without_its_parent(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "parent", "parent")
    command = [
        "--from",
        "parent",
        "--run",
        "again",
        "--parent.keep_optimizer",
        "true",
        "--training.ema",
        "null",
    ]
    push = TrainingLog.push

    def push_and_stop(self, *arguments):
        push(self, *arguments)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as stopping:
        stopping.setattr(TrainingLog, "push", push_and_stop)
        assert commands.run_command("train", command, "train.py") == 75
        assert commands.run_command("train", command, "train.py") == 75
    shutil.rmtree("parent")
    assert commands.run_command("train", ["--config", "again/config.yaml"], "train.py") == 0
    same_run(folder / "child", tmp_path / "again")
    assert same(params("again", untrained=True), params(folder / "parent", averaged=False))


@pytest.mark.parametrize(
    "settings, named",
    [
        (["--parent.run", "none"], "none: not a run directory"),
        (["--parent.step", "5"], "parent/checkpoints: no checkpoint of step 5"),
        (["--model.readout.rank", "5"], "model.readout.rank 4 -> 5"),
        (
            ["--training.optimizer", "sgd", "--parent.keep_optimizer", "true"],
            "parent.keep_optimizer",
        ),
    ],
)
def test_what_a_run_cannot_go_on_from_or_with(settings, named, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=named):
        train(folder, "new", *ONE_EPOCH, "--parent.run", "parent", *settings)
    assert (
        not (folder / "new" / "config.yaml").exists() and not (folder / "new" / "initial").exists()
    )


@pytest.mark.parametrize("status", ["interrupted", "diverged"])
def test_a_parent_that_came_to_no_good_end(status, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "parent", "parent")
    (tmp_path / "parent" / "manifest.json").unlink()
    before = summary_of(tmp_path / "parent")
    (tmp_path / "parent" / "summary.json").write_text(json.dumps(before | {"status": status}))
    with pytest.raises(InputError, match="^parent: "):
        train(tmp_path, "new", "--parent.run", "parent")


@pytest.mark.parametrize("clip, ema", [(None, None), (0.5, 0.9)])
def test_moments_are_found_however_the_optimizer_is_wrapped(clip, ema):
    """The schedule and the average begin anew."""
    weights = {"readout": {"w": jnp.ones((3, 2))}}
    theirs = make_optimizer(TrainingConfig(clip_norm=1.0))
    _, state = theirs.update(weights, theirs.init(weights), weights, rates=jnp.ones(1))
    ours = make_optimizer(TrainingConfig(clip_norm=clip, ema=ema))
    found = with_moments(ours.init(weights), serialization.to_state_dict(state), "here")
    assert jax.tree.structure(found) == jax.tree.structure(ours.init(weights))

    def part(tree, kind):
        leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, kind))
        return next(leaf for leaf in leaves if isinstance(leaf, kind))

    moments, expected = part(found, optax.ScaleByAdamState), part(state, optax.ScaleByAdamState)
    assert int(moments.count) == 1 and np.array_equal(
        moments.mu["readout"]["w"], expected.mu["readout"]["w"]
    )
    assert int(part(found, optax.ScaleByScheduleState).count) == 0
