"""A learning curve as a page and as tables."""

from esnlm.reporting import learning_curve


def test_a_run_that_goes_on_from_another_says_what_its_words_are():
    nll = {"model": 5.5, "unigram": 6.9, "bigram": 5.4}
    result = {"run": "more", "pairs": None, "validation": {"path": "dev", "words": 10, "tokens": 12}}
    result["points"] = [{"words": 10**6, "nll": nll, "nll_without_eos": nll}]
    line = "The run goes on from runs/first: words are those since then"
    assert line in learning_curve.markdown(result | {"parent": "runs/first"})
    assert "goes on from" not in learning_curve.markdown(result)
