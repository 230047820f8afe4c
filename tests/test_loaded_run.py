"""Checks of what a run directory holds, before a Run is made of it."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm import loaded_run
from esnlm.base.errors import InputError
from esnlm.evaluation.conventions import encode
from esnlm.machine.compute import ComputeConfig
from esnlm.models import devices
from esnlm.training.config import Experiment
from tests.evaluation.small_run import small_run


def test_the_states_of_many_sentences_are_those_of_each_alone(monkeypatch):
    run = small_run()  # 32 tokens are half of its window
    texts = ["The cats sleep", "The", "", "The cat that run that sleep that cats", "cats"] * 7
    reads, read_windows = [], run._stream.read_windows

    def read(texts):
        return next(read_windows([texts]))

    alone = {}
    for text in set(texts):
        buffer, [rows] = read(encode([text], run.tokenizer, "paper"))
        alone[text] = np.asarray(buffer)[rows]
    monkeypatch.setattr(
        run._stream,
        "read_windows",
        lambda windows, *_: (reads.append(len(texts)) or read(texts) for texts in windows),
    )
    for text, states in zip(texts, run.states(texts), strict=True):
        np.testing.assert_array_equal(states, alone[text])
    assert sum(reads) == len(texts) and 1 < len(reads) < 10
    assert run.states([]) == []


@pytest.mark.parametrize("family", ["esn", "lstm"])
def test_a_run_can_be_pickled(family, trained, tmp_path):
    run, given = esnlm.load(trained(family)), ["The cats sleep.", "A dog"]
    expected = run.log_probs(given)
    copy = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(copy.log_probs(given), expected)
    assert (copy.name, copy.step, copy.config) == (run.name, run.step, run.config)


def test_arrays_that_are_edited_leave_the_model_as_it_was():
    run = small_run()
    before = run.log_probs(["The cats sleep"])
    for array in run.arrays().values():
        array[...] = 0
    np.testing.assert_array_equal(run.log_probs(["The cats sleep"]), before)
    assert all(array.any() for array in run.arrays().values())


@pytest.mark.parametrize("device, kernel", [("cpu", "csr"), ("tpu", "dense")])
def test_what_was_chosen_for_eight_gpus_is_chosen_anew(device, kernel, monkeypatch):
    monkeypatch.setattr(devices, "backend", lambda: device)
    gpus = ComputeConfig("tf32", "fused", "bf16", 4096, 1 << 19, 512, {"data": 2, "vocabulary": 4})
    found = loaded_run._for_this_machine(Experiment(compute=gpus)).compute
    assert (found.precision, found.kernel, found.mesh) == ("float32", kernel, None)
    assert found.batch_slots < 4096 and found.window_tokens < 1 << 19
    assert (found.state_precision, found.chunk_tokens) == ("bf16", 512), (
        "which is the run's own choice"
    )


def test_ids_are_integers_of_the_vocabulary():
    """Ids of a column with gaps are floats in pandas, and would be cut to integers."""
    for ids in ([1.0, 2.0], [0, 10**6], [-1]):
        with pytest.raises(InputError, match="sequence 0"):
            small_run().token_log_probs_of_ids([np.array(ids)])


def test_all_tokens_together_have_probability_one():
    run = small_run()
    everything = run.token_log_probs_of_ids(
        [np.array([0, 3, 1])], group=np.ones(run.tokenizer.vocab_size, bool)
    )[0]
    np.testing.assert_allclose(everything, 0, atol=1e-6)


def test_warnings_name_the_line_of_the_caller():
    """Who filters the warnings of JAX, or looks for the line, would miss them where they named
    JAX's own file."""
    run = small_run()
    params = run.model.params["readout"]
    broken = run.model.with_params(
        {"readout": params | {"bias": np.full_like(params["bias"], np.nan)}}
    )
    diverged = loaded_run.Run(run.directory, run.config, 0, broken, run.tokenizer)
    for ask in (
        diverged.log_probs,
        diverged.token_log_probs,
        diverged.surprisal,
        diverged.likelihood,
    ):
        with pytest.warns(UserWarning, match="readout.bias of step 0") as warned:
            ask(["The cats"])
        assert [Path(each.filename) for each in warned] == [Path(__file__)]
