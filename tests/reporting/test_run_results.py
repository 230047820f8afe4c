"""The tables that a training ends with."""

from esnlm.reporting import run_results


def test_what_is_known_of_the_validation_text_stands_before_what_it_is_compared_with():
    summary = {"train_nll": 2.0, "val_nll": 1.5, "val_nll_without_eos": 1.75, "val_bits_per_byte": 0.5}
    rows = run_results._losses(summary | {"references": {"unigram model": 4.0}})
    assert [row[0] for row in rows] == [
        "training, mean over the last epoch",
        "validation",
        "validation, without EOS",
        "unigram model",
        "validation, bits per byte",
    ]
    assert rows[3] == ["unigram model", "4.0000", "54.60", "+2.5000"]
