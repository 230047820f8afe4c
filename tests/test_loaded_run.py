"""Checks of what a run directory holds, before a Run is made of it."""

from pathlib import Path

import numpy as np
import pytest

from esnlm import loaded_run
from esnlm.compute import ComputeConfig
from esnlm.config import Experiment
from esnlm.data.store import npy_header
from esnlm.errors import InputError
from esnlm.evaluation.sequences import encode
from esnlm.readout import linear
from tests.evaluation.small_run import small_run


@pytest.mark.parametrize(
    "readout, line",
    [
        ({"a": np.zeros((2, 4))}, "readout.a has the shape (2, 4), not (2, 3)"),
        ({}, "readout.a has the shape none, not (2, 3)"),
        ({"a": np.zeros((2, 3)), "bias": np.zeros(2)}, "readout.bias has the shape (2,), not none"),
    ],
)
def test_arrays_of_another_configuration_are_named(readout, line):
    with pytest.raises(InputError) as error:
        loaded_run._require_same_shapes({"readout": {"a": np.zeros((2, 3))}}, {"readout": readout}, "runs/x: step 5")
    assert str(error.value) == (
        f"runs/x: step 5 is not of this configuration and tokenizer: {line}; restore the run from a copy"
    )


def test_arrays_of_this_configuration_pass():
    loaded_run._require_same_shapes({"readout": {"a": np.zeros((2, 3))}}, {"readout": {"a": np.ones((2, 3))}}, "run")


def test_the_states_of_many_sentences_are_those_of_each_alone(monkeypatch):
    run = small_run()  # 32 tokens are half of its window
    texts = ["The cats sleep", "The", "", "The cat that run that sleep that cats", "cats"] * 7
    reads, read = [], run._stream.read
    alone = {}
    for text in set(texts):
        buffer, [rows] = read(encode([text], run.tokenizer, "paper"))
        alone[text] = np.asarray(buffer[rows])
    monkeypatch.setattr(run._stream, "read", lambda sequences: reads.append(len(sequences)) or read(sequences))
    for text, states in zip(texts, run.states(texts), strict=True):
        np.testing.assert_array_equal(states, alone[text])
    assert sum(reads) == len(texts) and 1 < len(reads) < 10
    assert run.states([]) == []


def test_the_next_words_of_many_beginnings_are_those_of_each_alone(monkeypatch):
    run = small_run()
    texts = ["The cats sleep", "The", "", "The cat that run that sleep that cats", "cats"] * 70
    sequences = encode(texts, run.tokenizer, "no-eos")
    logits = {}
    for text, ids in zip(texts[:5], sequences, strict=False):
        buffer, [rows] = run._stream.read([ids])
        logits[text] = linear.logits(run._readout_here, buffer[rows[-1:]], "float32")[0]
    reads, read = [], run._stream.read
    monkeypatch.setattr(run._stream, "read", lambda sequences: reads.append(len(sequences)) or read(sequences))
    found = run._next_ids(sequences)
    assert found.dtype == np.int64 and found.tolist() == [int(np.argmax(logits[text])) for text in texts]
    assert len(set(found.tolist())) > 1
    assert sum(reads) == len(texts) and 1 < len(reads) < 100
    assert run._next_ids([]).shape == (0,)


def test_arrays_that_are_edited_leave_the_model_as_it_was():
    run = small_run()
    before = run.log_probs(["The cats sleep"])
    for array in run.arrays().values():
        array[...] = 0
    np.testing.assert_array_equal(run.log_probs(["The cats sleep"]), before)
    assert all(array.any() for array in run.arrays().values())


@pytest.mark.parametrize("counts", [[1, 2, 3], [1, -2], [1, (1 << 48) + 1], None])
def test_counts_of_tokens_are_whole_or_refused(tmp_path, counts):
    file = tmp_path / "unigram.npy"
    if counts is not None:
        file.write_bytes(npy_header("<i8", 2) + np.array(counts, "<i8").tobytes())
    with pytest.raises(InputError, match="unigram.npy: missing or damaged; restore it from a copy of the run$"):
        loaded_run._read_counts(file, 2)
    file.write_bytes(npy_header("<i8", 2) + np.array([1, 1 << 48], "<i8").tobytes())
    assert loaded_run._read_counts(file, 2).tolist() == [1, 1 << 48]


@pytest.mark.parametrize("device, kernel", [("cpu", "csr"), ("tpu", "dense")])
def test_what_was_chosen_for_eight_gpus_is_chosen_anew(device, kernel, monkeypatch):
    monkeypatch.setattr(loaded_run, "backend", lambda: device)
    gpus = ComputeConfig("tf32", "fused", "bf16", 4096, 1 << 19, 512, {"data": 2, "vocabulary": 4})
    found = loaded_run._for_this_machine(Experiment(compute=gpus)).compute
    assert (found.precision, found.kernel, found.mesh) == ("float32", kernel, None)
    assert found.batch_slots < 4096 and found.window_tokens < 1 << 19
    assert (found.state_precision, found.chunk_tokens) == ("bf16", 512), "which is the run's own choice"


def test_the_untrained_model_has_no_other_step():
    with pytest.raises(InputError, match="^untrained with step 40: give one of them$"):
        loaded_run.load("runs/any", step=40, untrained=True)


@pytest.mark.parametrize(
    "given, line",
    [
        ([[[1], [1, 2]]], "sequence 0 is no array: its rows have unequal lengths"),
        ([[1.0, 2.0]], "sequence 0 has the shape (2,) and the type float64: give ids, integers along one axis"),
        (
            np.ones((1, 2, 3), int),
            "sequence 0 has the shape (2, 3) and the type int64: give ids, integers along one axis",
        ),
    ],
)
def test_ids_are_integers_along_one_axis(given, line):
    """Ids of a column with gaps are floats in pandas, and were cut to integers."""
    with pytest.raises(InputError) as error:
        small_run().token_log_probs_of(given)
    assert str(error.value) == line


def test_a_group_is_a_bool_for_each_token():
    run = small_run()
    ids, size = [np.array([0, 3, 1])], run.tokenizer.vocab_size
    everything = run.group_log_probs_of(ids, np.ones(size, bool))[0]
    np.testing.assert_allclose(everything, 0, atol=1e-6)
    for group in (np.array([1, 2]), np.ones(size)):
        with pytest.raises(InputError) as error:
            run.group_log_probs_of(ids, group)
        has = f"group has the shape {group.shape} and the type {group.dtype}"
        assert str(error.value) == f"{has}: give one bool for each of the {size} tokens"


def test_warnings_name_the_line_of_the_caller():
    """Who filters the warnings of JAX, or looks for the line, would miss them where they named JAX's own file."""
    run = small_run()
    params = run.model.params["readout"]
    broken = run.model.with_params({"readout": params | {"bias": np.full_like(params["bias"], np.nan)}})
    diverged = loaded_run.Run(run.directory, run.config, 0, broken, run.tokenizer)
    for ask in (diverged.log_probs, diverged.token_log_probs, diverged.surprisal, diverged.likelihood):
        with pytest.warns(UserWarning, match="log-probability that is not a number: readout.bias of step 0") as warned:
            ask(["The cats"])
        assert [Path(each.filename) for each in warned] == [Path(__file__)]
