"""The grammar against hand calculation, exhaustive enumeration of a small copy of it, and
sampling."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from esnlm.data import grammar
from esnlm.data.grammar import entropy, log_prob, rules, sentences, spell, words

# The same rules with one word or two in a class, and one gender: few enough sentences to write them
# all down.
TINY = {
    "NOUNS": {"himself": (("man", "men"),)},
    "INTRANSITIVE": (("sleeps", "sleep", "slept"),),
    "TRANSITIVE": (("likes", "like", "liked"),),
    "REPORTING": (("knows", "know", "knew"),),
    "PREPOSITIONS": ("near",),
    "ADVERBS": ("often",),
    "DETERMINERS": ("the",),
}


def tokens(sentence: str) -> list[str]:
    """What a closed word list makes of a sentence: "The", " dog", " sleeps", "."."""
    first, *others = sentence[:-1].split(" ")
    return [first, *(" " + word for word in others), "."]


def every_derivation(table, symbol="S"):
    """(probability, words) of each derivation of `symbol`, written from the definition of a
    probabilistic grammar."""
    if symbol not in table:
        yield 1.0, (symbol,)
        return
    for probability, symbols in table[symbol]:
        for children in itertools.product(
            *(list(every_derivation(table, child)) for child in symbols)
        ):
            p = math.prod((child_p for child_p, _ in children), start=probability)
            yield (
                p,
                tuple(itertools.chain.from_iterable(child_words for _, child_words in children)),
            )


def test_seeds_and_splits_are_different_streams():
    streams = [
        list(sentences(50, seed, split)) for seed in (0, 1) for split in ("train", "validation")
    ]
    for one, other in itertools.combinations(streams, 2):
        assert sum(a == b for a, b in zip(one, other, strict=False)) <= 1


def test_sentences_are_made_of_the_listed_words_and_pass_the_length_filter():
    corpus = [tokens(sentence) for sentence in sentences(5000, seed=1)]
    listed = words()
    assert len(listed) == len(set(listed)) == 163
    assert all(4 <= len(sentence) <= 510 for sentence in corpus)  # 6 .. 512 with BOS and EOS
    used = set(itertools.chain.from_iterable(corpus))
    assert used == set(listed) - {" The", " My", " Our", " No"}
    lengths = [len(sentence) - 1 for sentence in corpus]
    assert np.mean([4 <= length <= 14 for length in lengths]) > 0.9


def test_log_prob_is_the_product_of_the_choices():
    #         S     Main  number, gender  no modifier  predicate        the     dog     sleeps
    choices = 0.6 * 0.7 * (1 / 2 * 1 / 3) * 0.2 * (0.7 * 0.25) * (1 / 3) * (1 / 8) * (1 / 10)
    assert log_prob("The dog sleeps.") == pytest.approx(math.log(choices), rel=1e-12)


@pytest.mark.parametrize(
    "good, bad",
    [
        ("The dogs near my cat sleep.", "The dogs near my cat sleeps."),
        ("The dog that the cats like sleeps.", "The dog that the cats like sleep."),
        ("The dog that likes the cats sleeps.", "The dog that like the cats sleeps."),
        ("The girl near the boys praised herself.", "The girl near the boys praised themselves."),
        ("The girl near the boy praised herself.", "The girl near the boy praised himself."),
        (
            "The girl knew that the boy praised himself.",
            "The girl knew that the boy praised herself.",
        ),
        (
            "No man that the dogs liked has ever slept.",
            "The man that no dogs liked has ever slept.",
        ),
        ("The man has already slept.", "No man has already slept."),
        ("The boy knew who the girl liked.", "The boy knew that the girl liked."),
        ("The boy knew that the girl liked the dog.", "The boy knew who the girl liked the dog."),
        ("The dog sleeps.", "the dog sleeps."),
        ("The dog sleeps.", "The dog sleeps"),
        ("The dog sleeps.", "The dog sleeps ."),
        ("The dog sleeps.", "The  dog sleeps."),
        ("The dog sleeps.", "The dog sleeps. "),
        ("The dog sleeps.", "The zebra sleeps."),
        ("The dog sleeps.", "The dog."),
        ("The dog sleeps.", "."),
        ("The dog sleeps.", ""),
    ],
)
def test_log_prob_is_minus_infinity_outside_the_language(good, bad):
    assert math.isfinite(log_prob(good))
    assert log_prob(bad) == -math.inf


@pytest.fixture
def tiny(monkeypatch):
    for name, forms in TINY.items():
        monkeypatch.setattr(grammar, name, forms)
    # with a cache of its own
    monkeypatch.setattr(grammar, "rules", cache(grammar.rules.__wrapped__))


def test_every_string_has_one_derivation_and_the_probabilities_sum_to_one(tiny):
    language = {}
    for probability, derived in every_derivation(grammar.rules()):
        sentence = spell(list(derived))
        assert sentence not in language, f"two derivations: {sentence}"
        language[sentence] = probability
    p = np.array(list(language.values()))
    lengths = np.array([len(tokens(sentence)) + 1 for sentence in language])
    assert math.fsum(p) == pytest.approx(1, rel=1e-12)

    exact = entropy()
    assert exact.nats_per_sentence == pytest.approx(-math.fsum(p * np.log(p)), rel=1e-12)
    assert exact.tokens_per_sentence == pytest.approx(math.fsum(p * lengths), rel=1e-12)
    assert exact.nats_per_token == exact.nats_per_sentence / exact.tokens_per_sentence

    for sentence in list(language)[:: len(language) // 500]:
        assert log_prob(sentence) == pytest.approx(math.log(language[sentence]), rel=1e-12)


def test_every_word_has_one_class_so_the_full_lexicon_adds_no_ambiguity():
    classes = [
        left
        for left in rules()
        if left.startswith(("N-", "Vi-", "Vt-", "Vr-", "Prep", "Adv")) or left == "Det"
    ]
    members = [symbols[0] for left in classes for _, symbols in rules()[left]]
    assert len(set(members)) == len(members) == 143
    assert not {"no", "that", "who", "has", "have", "ever", "already", "himself"} & set(members)


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_sampled_sentences_have_the_exact_entropy_and_length(count):
    corpus = list(sentences(count, seed=2))
    exact = entropy()
    for sample, mean in (
        ([-log_prob(sentence) for sentence in corpus], exact.nats_per_sentence),
        ([len(tokens(sentence)) + 1 for sentence in corpus], exact.tokens_per_sentence),
    ):
        standard_error = np.std(sample, ddof=1) / math.sqrt(len(sample))
        assert abs(np.mean(sample) - mean) < 4 * standard_error
