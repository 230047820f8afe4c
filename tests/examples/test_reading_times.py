"""The example that predicts reading times: made-up readers whose times are known to depend on a
surprisal, or not to."""

import numpy as np
import pandas as pd
import pytest

from esnlm.base.errors import InputError
from examples import reading_times

SENTENCES, LENGTH = 60, 12


@pytest.fixture(scope="module")
def scored() -> pd.DataFrame:
    """A table as `esnlm.score_words` makes it, with predictors drawn at random."""
    rng = np.random.default_rng(0)
    size = 4 * SENTENCES * LENGTH
    table = pd.DataFrame(
        {
            "item": np.repeat(range(4), size // 4),
            "zone": np.tile(range(size // 4), 4),
            "sentence_number": np.repeat(range(4 * SENTENCES), LENGTH),
            "sentence_position": np.tile(range(LENGTH), 4 * SENTENCES),
        }
    )
    table["first_in_sentence"] = table.sentence_position == 0
    table["last_in_sentence"] = table.sentence_position == LENGTH - 1
    table["length"] = rng.integers(1, 12, size)
    table["log_frequency"] = rng.uniform(1, 7, size)
    for name in ("unigram", "bigram", "true", "other"):
        table[f"surprisal_bits_{name}"] = rng.gamma(2, 4, size)
    columns = [name for name in table if name.startswith(("length", "log_", "surprisal"))]
    for name in columns:
        for k in (1, 2):
            table[f"{name}_previous{k}"] = table.groupby("item")[name].shift(k)
    return table


def times(scored: pd.DataFrame, effect: float, noise: float) -> pd.DataFrame:
    """Returns reading times with an effect of one surprisal, and a curved one of frequency."""
    log_time = 5.7 + effect * scored.surprisal_bits_true + 0.05 * (scored.log_frequency - 4) ** 2
    log_time += 0.3 * scored["item"] + np.random.default_rng(1).normal(0, noise, len(scored))
    return scored[["item", "zone"]].assign(time=np.exp(log_time))


def test_a_surprisal_gains_what_it_explains(scored):
    effect, noise = 0.02, 0.2
    results = reading_times.gains(scored, times(scored, effect, noise))
    true, other = results["surprisal_bits_true"], results["surprisal_bits_other"]
    # Without the surprisal its variance is noise, too: the gain is half the log of their ratio,
    # less what the estimation of its three coefficients costs.
    variance = scored.surprisal_bits_true[scored.sentence_position.between(1, LENGTH - 2)].var()
    expected = 1000 * 0.5 * np.log(1 + effect**2 * variance / noise**2)
    low, high = true["interval"]
    assert low < expected < high and true["gain"] == pytest.approx(expected, rel=0.2)
    assert true["beyond_ngrams"]["gain"] == pytest.approx(true["gain"], abs=2)
    assert other["gain"] < 2 and other["interval"][0] < 0
    assert true["words"] == 4 * SENTENCES * (LENGTH - 2) - 4  # the first has no second word before
    assert true["gain"] == pytest.approx(np.mean(true["by_story"]))


def test_the_gains_are_drawn(scored, tmp_path):
    results = reading_times.gains(scored, times(scored, 0.02, 0.2))
    reading_times.draw(results, tmp_path / "gains.png")
    assert (tmp_path / "gains.png").exists()


@pytest.mark.parametrize(
    "content", [None, "", "item\tzone\n1\t2\n"], ids=["no file", "empty", "no times"]
)
def test_a_table_that_cannot_be_read_is_named(content, tmp_path):
    words, path = tmp_path / "words.tsv", tmp_path / "times.tsv"
    words.write_text("word\tzone\titem\n")
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=f"^{path}: .*; give the file of Natural Stories$"):
        reading_times.read_tables(str(words), str(path))
