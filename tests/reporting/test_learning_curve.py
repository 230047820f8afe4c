"""The picture of a learning curve."""

import pytest

from esnlm.reporting import learning_curve, plots


def test_a_model_that_is_far_above_the_curve_is_named_and_not_drawn(monkeypatch):
    pytest.importorskip("matplotlib")
    kept = []
    monkeypatch.setattr(plots, "png", lambda made: kept.append(made) or b"")
    losses = [{"model": 5.5, "unigram": 6.93, "bigram": 5.4}, {"model": 5.0, "unigram": 6.92, "bigram": 5.2}]
    points = [{"words": 10**6 * (i + 1), "nll": nll, "nll_without_eos": nll} for i, nll in enumerate(losses)]
    learning_curve.plot({"run": "a run", "points": points, "pairs": None})
    panel = kept[0].axes[0]
    assert panel.get_title() == "NLL, nats per token (unigram 6.92)"
    assert panel.get_ylim()[1] < 6, "so that the run and the bigram model can be told apart"


@pytest.mark.parametrize(
    "words, numbers",
    [
        ([1, 2, 4, 4.4, 5, 24.567], ["1", "2", "", "", "5", "24.6"]),
        ([1, 24.5, 24.6], ["1", "", "24.6"]),
        ([3], ["3"]),
        ([0.001, 0.001], ["", "0.001"]),
    ],
)
def test_numbers_on_the_axis_do_not_touch(words, numbers):
    assert learning_curve._numbers_below(words) == numbers


def test_a_run_that_goes_on_from_another_says_what_its_words_are(capsys):
    nll = {"model": 5.5, "unigram": 6.9, "bigram": 5.4}
    result = {"run": "more", "pairs": None, "validation": {"path": "dev", "words": 10, "tokens": 12}}
    result["points"] = [{"words": 10**6, "nll": nll, "nll_without_eos": nll}]
    line = "The run goes on from runs/first: words are those since then"
    assert line in learning_curve.markdown(result | {"parent": "runs/first"})
    assert "goes on from" not in learning_curve.markdown(result)
    learning_curve.show(result | {"parent": "runs/first"})
    assert line in " ".join(capsys.readouterr().out.split())
