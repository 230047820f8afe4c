"""The losses of runs: by tokens, by words and by minutes."""

import json

import numpy as np
import pytest

from esnlm.reports import plots
from esnlm.reports.loss_plot import plot_losses, read_curves


@pytest.fixture
def make_logged(make_run):
    """Makes a finished run with two lines of training losses, after 1,000 and 4,000 tokens, and one
    of validation."""

    def make(name, tokens_per_second=1000.0):
        folder = make_run(name)
        lines = []
        for step, tokens, loss in ((1, 60_000, 8.0), (2, 240_000, 6.0)):
            line = {
                "step": step,
                "epoch": 1,
                "tokens": tokens,
                "words": tokens // 2,
                "train_nll": loss,
            }
            lines.append(line | {"tokens_per_second": tokens_per_second})
        lines.append({"step": 2, "epoch": 1, "val_nll": 5.5})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return make


@pytest.fixture
def figure(monkeypatch):
    """Keeps the figure that is drawn, in place of a file."""
    kept = []
    monkeypatch.setattr(plots, "picture", lambda figure, suffix: kept.append(figure) or b"")
    return kept


def test_minutes_are_the_tokens_over_the_mean_speed_until_then(make_logged):
    curves = read_curves(make_logged("fast", tokens_per_second=2000.0))
    np.testing.assert_allclose(curves.training["minutes"], [[0.5, 8.0], [2.0, 6.0]])
    np.testing.assert_allclose(curves.training["words"], [[0.03, 8.0], [0.12, 6.0]])
    np.testing.assert_allclose(curves.training["tokens"], [[0.06, 8.0], [0.24, 6.0]])
    np.testing.assert_allclose(curves.validation["minutes"], [[2.0, 5.5]])


def test_updates_before_the_first_whole_word_are_left_out(make_run):
    """An update of a document may end no sentence, and the axis of words is logarithmic."""
    folder = make_run("document")
    lines = [
        {"step": step, "epoch": 1, "tokens": step, "words": words, "train_nll": 9.0 - step}
        for step, words in ((1, 0), (2, 1_000_000), (3, 2_000_000))
    ]
    text = "".join(json.dumps(line | {"tokens_per_second": 10.0}) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    curves = read_curves(folder)
    np.testing.assert_allclose(curves.training["words"], [[1.0, 7.0], [2.0, 6.0]])


def test_a_readout_that_was_solved_for_has_one_loss(make_run):
    """Its last line has neither words nor speed: they are those of the line before."""
    folder = make_run("ridge")
    lines = [
        {"step": 1, "epoch": 1, "tokens": 60_000, "words": 50_000, "tokens_per_second": 1000.0},
        {"step": 2, "tokens": 60_000, "train_nll": 6.5},
        {"step": 2, "epoch": 1, "val_nll": 6.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = read_curves(folder)
    np.testing.assert_allclose(curves.training["minutes"], [[1.0, 6.5]])
    np.testing.assert_allclose(curves.training["words"], [[0.05, 6.5]])
    np.testing.assert_allclose(curves.validation["words"], [[0.05, 6.0]])


def test_a_line_for_each_run_over_words_and_over_minutes(make_logged, figure, tmp_path):
    runs = [
        make_logged("fast", tokens_per_second=2000.0),
        make_logged("slow", tokens_per_second=500.0),
    ]
    assert plot_losses(runs, tmp_path / "losses.pdf") == f"written: {tmp_path / 'losses.pdf'}"
    words, minutes = figure[0].axes
    assert (words.get_xlabel(), minutes.get_xlabel()) == (
        "million words read",
        "minutes of training",
    )
    ends = [line.get_xdata()[-1] for line in minutes.lines if line.get_linestyle() == "-"]
    np.testing.assert_allclose(ends, [2.0, 8.0])
    assert [text.get_text() for text in figure[0].legends[0].get_texts()] == ["fast", "slow"]


def test_a_run_that_is_still_training_is_drawn_as_far_as_it_is(make_logged, figure, tmp_path):
    going, done = make_logged("going", tokens_per_second=500.0), make_logged("done")
    (going / "summary.json").unlink()
    with (going / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 3, "tok')  # half of a line, as a reader may find it
    plot_losses([going, done], tmp_path / "losses.png")
    words, minutes = figure[0].axes
    assert [text.get_text() for text in figure[0].legends[0].get_texts()] == [
        "going, not finished",
        "done",
    ]
    np.testing.assert_allclose(words.lines[0].get_xdata(), [0.03, 0.12])
    np.testing.assert_allclose(minutes.lines[0].get_xdata(), [2.0, 8.0])
