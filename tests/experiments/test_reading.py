"""The tables of reading times and probes, from records of a few runs."""

from experiments import reading

# Student's t with two degrees of freedom at 97.5 %, by which the standard error is multiplied
T = 4.302652729911275


def record(model: str, seed: int, by_story: list[float], surprisal: float, last: bool) -> dict:
    gain = {"gain": sum(by_story) / 3, "by_story": by_story, "surprisal": surprisal}
    beyond = None if model == "bigram" else {"by_story": [0.0, 0.0, 3.0]}
    return gain | {"model": model, "seed": seed, "step": 9, "last": last, "beyond_ngrams": beyond}


def test_intervals_are_over_stories_after_the_mean_over_seeds():
    records = [
        record("bigram", 0, [1.0, 2.0, 3.0], 9.5, True),
        record("esn", 0, [0.0, 4.0, 8.0], 10.0, True),
        record("esn", 1, [4.0, 4.0, 4.0], 10.5, True),
        record("esn", 0, [9.0, 9.0, 9.0], 12.0, False),  # of an earlier checkpoint
    ]
    *_, first, second = reading.times_table(records).splitlines()
    # the means over seeds of the three stories are 2, 4 and 6, with a standard error of 2 / sqrt 3
    half = T * 2 / 3**0.5
    assert second.split(" | ")[1:5] == [
        "2",
        "10.25",
        f"4.0 ({4 - half:.1f} to {4 + half:.1f})",
        "4.0 to 4.0",
    ]
    assert second.split(" | ")[5].startswith("1.0 (") and first.startswith("| bigram | 1 | 9.50 |")


def test_a_row_has_the_accuracies_of_a_model():
    records = [
        {"model": model, "task": task, "seeds": 3, "accuracy": value, "interval": [value - 1, 99]}
        for value, (model, task) in enumerate(
            [("esn", "upos"), ("esn", "head"), ("lstm", "upos"), ("lstm", "head")], start=50
        )
    ]
    head, _, *rows = reading.probes_table(records).splitlines()
    assert head == "| model | seeds | upos | head |"
    assert rows[1] == "| lstm | 3 | 52.0 (51.0 to 99.0) | 53.0 (52.0 to 99.0) |"


def test_the_name_of_a_run_has_its_model_and_seed():
    assert reading.split_name("esn-1024-documents-seed2") == ("esn-1024-documents", 2)
