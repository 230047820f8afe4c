"""What a page says of the runs that it was made from."""

from esnlm.studies import made_from

RUNS = [
    {"words": 1_000_146, "vocab_size": 8192, "epochs": 1, "learning_rate": 0.003, "seed": 1, "seconds": 5400.0},
    {"words": 1_000_146, "vocab_size": 8192, "epochs": 1, "learning_rate": 0.0003, "seed": 0, "seconds": 1800.0},
]


def test_each_value_is_told_once_in_order():
    assert made_from.sentence(RUNS) == (
        "Words 1,000,146; vocabulary 8,192; epochs 1; learning rate 0.0003, 0.003; seeds 0, 1; hours of training 2.0."
    )


def test_what_no_run_has_is_left_out_of_the_sentence_and_empty_in_a_table():
    unknown = [{"words": None, "seed": 3, "seconds": None}]
    assert made_from.sentence(unknown) == "Seeds 3."
    assert made_from.figures(unknown)["words"] == "" and made_from.figures(unknown)["hours of training"] == ""


def test_without_runs_there_is_no_sentence():
    assert made_from.sentence([]) == ""
