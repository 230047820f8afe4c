"""The table of probes, from records of a few runs."""

from experiments import probes


def test_a_row_has_the_accuracies_of_a_model():
    records = [
        {"model": model, "task": task, "seeds": 3, "accuracy": value, "interval": [value - 1, 99]}
        for value, (model, task) in enumerate(
            [("esn", "upos"), ("esn", "head"), ("lstm", "upos"), ("lstm", "head")], start=50
        )
    ]
    head, _, *rows = probes.probes_table(records).splitlines()
    assert head == "| model | seeds | upos | head |"
    assert rows[1] == "| lstm | 3 | 52.0 (51.0 to 99.0) | 53.0 (52.0 to 99.0) |"
