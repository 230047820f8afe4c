"""What the pipeline computes, a second time: plain loops over the equations in float64, one text at a time."""

import math

import numpy as np
import pytest

import esnlm
from esnlm.interchange import babylm_data, babylm_scoring
from esnlm.interchange.babylm_data import Item
from tests import oracle
from tests.interchange.babylm_files import write_data
from tests.interchange.small_run import small_run

TOLERANCE = 300 * float(np.finfo(np.float32).eps)  # as in tests/evaluation/test_scoring.py


@pytest.fixture(scope="module")
def run():
    return esnlm.load(small_run())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data") / "full_eval")


def token_log_probs(run, ids):
    reservoir = run.model.reservoir
    dense = reservoir.w_rec.todense(), reservoir.w_in.todense()
    return (
        oracle.token_log_probs(*dense, reservoir.leak, run.model.params["readout"], ids)
        if len(ids) > 1
        else np.empty(0)
    )


def completion(run, text, end, bos):
    """The sum over all tokens but the first that reach into the end of a text, by characters as the pipeline counts them."""
    ids = run.tokenizer.encode(text)
    sequence = [run.tokenizer.bos] * bos + ids
    log_probs, total = token_log_probs(run, sequence), 0.0
    for i in range(len(ids)):
        characters = len(run.tokenizer.decode_bytes(ids[: i + 1]).decode(errors="ignore"))
        cut = run.tokenizer.decode_bytes(ids[: i + 1]) != text[:characters].encode()
        if characters + cut > len(text) - len(end) and i + bos > 0:  # part of a character reaches to its end
            total += log_probs[i + bos - 1]
    return total


@pytest.mark.parametrize("bos", [False, True])
def test_a_completion_is_scored_given_what_is_before_it(run, bos):
    texts = [
        ("the cats sleep .", "the cats sleep ."),
        ("the cats sleep .", " sleep ."),
        ("the cats sleep .", "sleep ."),  # the token of a word begins with the space before it
        ("un café fête x", "fête x"),
        ("un café", "é"),
        ("a", "a"),
        ("", ""),
    ]
    found = babylm_scoring.completion_log_probs(run, texts, bos)
    np.testing.assert_allclose(found, [completion(run, *text, bos) for text in texts], rtol=TOLERANCE)


def test_the_most_probable_sentence_is_chosen_and_the_first_of_equal_ones():
    items = [Item("u", [f"{i}a", f"{i}b"], ["a", "b"], [f"A{i}", f"B{i}"]) for i in range(3)]
    predictions, right, ties = babylm_scoring.predict(items, np.array([-1.0, -2, -3, -2, -5, -5]), with_prob=True)
    entries = predictions["u"]["predictions"]
    assert [(entry["id"], entry["pred"]) for entry in entries] == [("u_0", "A0"), ("u_1", "B1"), ("u_2", "A2")]
    np.testing.assert_allclose([entry["prob"] for entry in entries], [1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0.5])
    assert right == {"u": [True, False, True]} and ties == 1


def test_the_mean_of_entity_tracking_is_that_of_its_splits():
    right = {"regular_0_ops": [True, False], "regular_1_ops": [True], "ambiref_0_ops": [False]}
    accuracy, subsets = babylm_scoring.accuracies("entity_tracking", right)
    assert accuracy == (75 + 0) / 2 and subsets == {"regular_0_ops": 50, "regular_1_ops": 100, "ambiref_0_ops": 0}
    assert babylm_scoring.accuracies("blimp", right)[0] == 50


def test_correlation_with_people_is_by_ranks():
    items = [Item("wug_adj", [], [], [], ratio) for ratio in (0.1, 0.5, 0.9)]
    predictions = {"wug_adj": {"predictions": [{"prob": p} for p in (0.2, 0.9, 0.8)]}}
    assert babylm_scoring.correlation(items, predictions) == pytest.approx(0.5)
    assert babylm_scoring.correlation(items[:1], {"wug_adj": {"predictions": [{"prob": 0.2}]}}) is None


@pytest.mark.parametrize("bos", [False, True])
def test_a_word_s_surprisal_is_the_sum_over_its_tokens(run, bos):
    words = [("the", " cats"), ("None", "the"), ("the cats", " qxz"), ("the", " café")]
    expected = []
    for context, word in words:
        total, text = 0.0, context
        for position, token in enumerate(run.tokenizer.encode(word)):
            piece = run.tokenizer.decode([token])
            target = token if position == 0 else run.tokenizer.encode(piece)[0]
            total -= token_log_probs(run, [run.tokenizer.bos] * bos + run.tokenizer.encode(text) + [target])[-1]
            text += piece
        expected.append(total)
    np.testing.assert_allclose(babylm_scoring.word_surprisals(run, words, bos), expected, rtol=TOLERANCE)


def test_reading_times_are_predicted_by_a_regression_with_and_without_surprisal(data):
    reading = babylm_data.read_reading(data / babylm_data.READING_FILE)
    rng = np.random.default_rng(1)
    surprisals, previous = rng.uniform(1, 9, len(reading.words)), rng.uniform(1, 9, len(reading.words))
    previous[[place is None for place in reading.previous]] = np.nan

    def gain(times, properties):
        """By the normal equations, of standardized columns."""
        use = np.isfinite(np.array([times, *properties])).all(axis=0)
        pairs = [a * b for i, a in enumerate(properties) for b in properties[i + 1 :]]
        r2 = []
        for columns in ([*properties, *pairs], [*properties, *pairs, surprisals]):
            x = np.array([column[use] for column in columns]).T
            x = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(len(x))])
            fitted = x @ np.linalg.solve(x.T @ x, x.T @ times[use])
            r2.append(np.var(fitted) / np.var(times[use]))
        return 100 * (r2[1] - r2[0]) / (1 - r2[0])

    columns = reading.columns
    properties = [columns["Subtlex_log10"], columns["length"], columns["context_length"]]
    eyes = [gain(columns[name], properties) for name in babylm_data.EYE_TRACKING]
    found = babylm_scoring.reading_scores(reading, surprisals, previous)
    np.testing.assert_allclose(found["eye_tracking"], np.mean(eyes), rtol=1e-9)
    paced = gain(columns["self_paced_reading_time"], [*properties, columns["prev_length"], previous])
    np.testing.assert_allclose(found["self_paced_reading"], paced, rtol=1e-9)


def test_surprisal_for_the_age_of_acquisition_is_that_of_the_word_after_one_space(run):
    contexts = {"cats": ["I see the", "  all "], "café": [""]}
    found = babylm_scoring.aoa_surprisals(run, contexts, bos=False)
    texts = [("I see the cats", "cats"), ("all cats", "cats"), (" café", "café")]
    np.testing.assert_allclose(found, [-completion(run, *text, False) for text in texts], rtol=TOLERANCE)
    entries = babylm_scoring.aoa_results("chck_2M", 2_000_000, contexts, found)
    assert entries[1] == {
        "step": "chck_2M",
        "word_count": 2_000_000,
        "target_word": "cats",
        "context_id": 1,
        "context": "  all ",
        "surprisal": found[1],
    }
