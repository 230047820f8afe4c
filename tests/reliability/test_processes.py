"""Several real processes on one machine make one run, and end together however one of them ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from esnlm.base.processes import LOST
from esnlm.reports.run_results import show_results
from esnlm.runs import checkpoint
from esnlm.training import config_io
from esnlm.training.run import train_run
from tests.golden import small

ROOT = Path(__file__).resolve().parents[2]
SMALL = """
data: {kind: grammar, sentences: 64, validation_sentences: 16, pairs: 2}
model: {reservoir: {state_size: 32, mean_degree: 6}, readout: {rank: 8}}
training: {batch_size: 8, log_every: 1, checkpoint_every: 4, epochs: 1}
"""
ENDLESS = ["--training.epochs", "10000", "--training.checkpoint_every", "4"]
# Sums of a few hundred float32 numbers in another order; AdamW divides gradients by their size, see
# test_many_devices.py.
LOSS, ARRAYS = 2e-5, 1e-4


class Processes:
    """`train.py` as several processes."""

    def __init__(self, folder, count, *arguments, each=None, text=SMALL):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        self.folder, self.count = folder, count
        (folder / "small.yaml").write_text(text)
        program = (
            ["eval_blimp.py"] if "--data" in arguments else ["train.py", "--config", "small.yaml"]
        )
        environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        self.all = []
        for process in range(count):
            command = [sys.executable, ROOT / program[0], *program[1:], "--run", "run", *arguments]
            command += [
                "--coordinator",
                address,
                "--processes",
                str(count),
                "--process",
                str(process),
                "--wait",
                "60",
            ]
            command += each[process] if each else []
            with (
                open(folder / f"{process}.out", "w") as out,
                open(folder / f"{process}.err", "w") as err,
            ):
                self.all.append(
                    subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err)
                )

    def statuses(self, within):
        """How all end, within so many seconds."""
        deadline = time.monotonic() + within
        try:
            return [process.wait(max(0.1, deadline - time.monotonic())) for process in self.all]
        finally:
            for process in self.all:
                process.kill()

    def wait_for_checkpoint(self, step):
        deadline = time.monotonic() + 300
        while not (self.folder / "run" / "checkpoints" / str(step)).exists():
            assert time.monotonic() < deadline and all(
                process.poll() is None for process in self.all
            ), self.said(0)
            time.sleep(0.1)

    def said(self, process):
        return (self.folder / f"{process}.err").read_text()

    def last_line(self, process):
        return self.said(process).splitlines()[-1]


def alone(folder, *arguments, text=SMALL):
    folder.mkdir(exist_ok=True)
    (folder / "small.yaml").write_text(text)
    experiment = config_io.read(folder / "small.yaml", ["--run", str(folder / "run"), *arguments])
    assert train_run(experiment, show_results=show_results) == 0
    return folder / "run"


def changed(section, value):
    """The small configuration with another section."""
    return "\n".join(
        f"{section}: {value}" if line.startswith(section) else line for line in SMALL.splitlines()
    )


def nlls(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    found = [line.get("train_nll", line.get("val_nll")) for line in lines]
    return [nll for nll in found if nll is not None]  # a regression has none while it goes on


def assert_same(run, other):
    np.testing.assert_allclose(nlls(run), nlls(other), rtol=0, atol=LOSS)
    (_, one, its), (_, two, their) = (
        checkpoint.restore_latest(each / "checkpoints") for each in (run, other)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=ARRAYS),
        one["params"],
        two["params"],
    )
    assert its["step"] == their["step"] and jax.tree.structure(one) == jax.tree.structure(two)


def test_two_processes_make_the_run_of_one(tmp_path):
    (tmp_path / "two").mkdir()
    two = Processes(tmp_path / "two", 2)
    expected = alone(tmp_path / "one")
    assert two.statuses(within=120) == [0, 0], two.said(0) + two.said(1)
    found = tmp_path / "two" / "run"
    assert_same(found, expected)
    summary = json.loads((found / "summary.json").read_text())
    assert summary["device"]["processes"] == 2 and summary["device"]["mesh"]["vocabulary"] == 2
    assert sorted(os.listdir(found)) == sorted(os.listdir(expected))
    assert (tmp_path / "two" / "1.out").read_text() == two.said(1) == "", "only process 0 writes"


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["esn_i", "gpt2", "ridge"])
def test_two_processes_with_every_kind_of_model(tmp_path, model):
    text = {
        "esn_i": SMALL.replace("model: {", "model: {train_input: true, "),
        "gpt2": changed(
            "model", "{family: gpt2, layers: 1, heads: 2, width: 16, positions: 64, dropout: 0}"
        ),
        "ridge": changed("training", "{kind: ridge}"),
    }[model]
    (tmp_path / "two").mkdir()
    two = Processes(tmp_path / "two", 2, text=text)
    assert two.statuses(within=400) == [0, 0], two.said(0) + two.said(1)
    assert_same(tmp_path / "two" / "run", alone(tmp_path / "one", text=text))


@pytest.mark.nightly
def test_two_processes_score_as_one_does(tmp_path):
    run = alone(tmp_path)
    pairs = ["--data", str(run / "minimal_pairs"), "--out"]
    two = Processes(tmp_path, 2, *pairs, "two.json")
    assert two.statuses(within=200) == [0, 0], two.said(0) + two.said(1)
    assert small.esnlm("blimp", "--run", run, *pairs, tmp_path / "one.json") == 0
    texts = [(tmp_path / f"{name}.pairs.jsonl").read_text() for name in ("one", "two")]
    scores = [[json.loads(line)["log_prob_good"] for line in text.splitlines()] for text in texts]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-3)


@pytest.mark.nightly
def test_a_run_goes_on_with_two_and_one(tmp_path):
    """Two are stopped by SIGTERM or Ctrl-C to one of them, two go on and are stopped, and one comes
    to the end."""
    epochs = ["--training.epochs", "60"]
    for asked, number, step in ((1, signal.SIGTERM, 4), (0, signal.SIGINT, 16)):
        processes = Processes(tmp_path, 2, *epochs)
        processes.wait_for_checkpoint(step)
        processes.all[asked].send_signal(number)
        assert processes.statuses(within=60) == [75, 75], processes.said(0) + processes.said(1)
        assert processes.last_line(0).startswith("stopped at update ")
        assert (
            json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"
        )
    assert (
        train_run(
            config_io.read(tmp_path / "small.yaml", ["--run", str(tmp_path / "run"), *epochs])
        )
        == 0
    )
    assert_same(tmp_path / "run", alone(tmp_path / "one", *epochs))


@pytest.mark.nightly
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other_within_half_a_minute(tmp_path, killed):
    processes = Processes(tmp_path, 2, *ENDLESS)
    processes.wait_for_checkpoint(4)
    processes.all[killed].kill()
    expected = [LOST] * 2
    expected[killed] = -signal.SIGKILL
    assert processes.statuses(within=30) == expected
    assert processes.last_line(1 - killed).startswith("error: another process was lost: ")
    assert checkpoint.verify(tmp_path / "run" / "checkpoints" / "4") is None


@pytest.mark.nightly
def test_a_process_that_hangs_ends_the_other_within_half_a_minute(tmp_path):
    processes = Processes(tmp_path, 2, *ENDLESS)
    processes.wait_for_checkpoint(4)
    processes.all[1].send_signal(signal.SIGSTOP)
    try:
        assert processes.all[0].wait(30) == LOST
    finally:
        for process in processes.all:
            process.kill()
            process.wait()


@pytest.mark.nightly
@pytest.mark.parametrize("asked", [0, 1])
def test_one_that_is_asked_to_stop_before_the_training_ends_all(tmp_path, asked):
    processes = Processes(tmp_path, 2, *ENDLESS)
    deadline = time.monotonic() + 60
    while "generating" not in processes.said(0) and time.monotonic() < deadline:
        time.sleep(0.05)
    processes.all[asked].send_signal(signal.SIGTERM)
    assert processes.statuses(within=30) == [75, 75]


@pytest.mark.nightly
def test_another_configuration_in_one_process_is_refused_and_nothing_is_written(tmp_path):
    processes = Processes(tmp_path, 2, each=[[], ["--seed", "7"]])
    assert processes.statuses(within=60) == [2, 2]
    line = (
        "error: process 1 differs from process 0 (seed 7, there 0): give all processes the same\n"
    )
    assert [processes.said(process) for process in (0, 1)] == [line, line]
    assert not (tmp_path / "run").exists()
