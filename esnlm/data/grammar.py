"""A small English grammar with known probabilities, to compare a trained model with the truth.

It has five long-distance dependencies: subject-verb agreement across distractors, relative clauses,
reflexives, negative polarity, and fillers with their gaps. It is a probabilistic context-free
grammar without recursion and ambiguity: each sentence has exactly one derivation, so its
probability is a product of rule probabilities, and the entropy of the language is a finite sum.

    log_prob("The dogs near my cat sleep.")     # nats; -inf for "The dogs near my cat sleeps."
    entropy().nats_per_token                    # the NLL that no model can beat in expectation

`grammar_pairs.py` has held-out minimal pairs from the same lexicon.
"""

import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import NamedTuple

Rules = dict[str, list[tuple[float, list[str]]]]
"""Nonterminal -> alternatives, each with its probability and symbols. A symbol that is not a key is
a word."""

# of a noun: singular, plural; of a verb: singular, plural, past (also the participle)
Forms = tuple[str, ...]

NUMBERS = ("sg", "pl")


def _forms(text: str) -> tuple[Forms, ...]:
    """Parses words separated by spaces, with the forms of each word separated by slashes."""
    return tuple(tuple(word.split("/")) for word in text.split())


# All words of a class are equally likely. No word is in two classes, which would make the grammar
# ambiguous.
MASCULINE = _forms(
    "man/men boy/boys king/kings prince/princes actor/actors waiter/waiters father/fathers"
    " brother/brothers uncle/uncles monk/monks"
)
FEMININE = _forms(
    "woman/women girl/girls queen/queens princess/princesses actress/actresses waitress/waitresses"
    " mother/mothers sister/sisters aunt/aunts nun/nuns"
)
NEUTER = _forms(
    "dog/dogs cat/cats horse/horses goat/goats pig/pigs duck/ducks bear/bears mouse/mice"
)
INTRANSITIVE = _forms(
    "sleeps/sleep/slept smiles/smile/smiled waits/wait/waited sneezes/sneeze/sneezed"
    " jumps/jump/jumped laughs/laugh/laughed stumbles/stumble/stumbled dances/dance/danced"
    " yawns/yawn/yawned cries/cry/cried"
)
TRANSITIVE = _forms(  # with an object, or a gap in its place
    "likes/like/liked admires/admire/admired praises/praise/praised blames/blame/blamed"
    " trusts/trust/trusted scares/scare/scared amuses/amuse/amused pities/pity/pitied"
    " thanks/thank/thanked hugs/hug/hugged"
)
REPORTING = _forms(
    "knows/know/knew remembers/remember/remembered forgets/forget/forgot reveals/reveal/revealed"
    " discovers/discover/discovered"
)
PREPOSITIONS = ("near", "behind", "beside", "opposite", "around")
ADVERBS = ("often", "sometimes", "always", "usually")
DETERMINERS = ("the", "my", "our")
# by the reflexive that a singular noun binds
NOUNS = {"himself": MASCULINE, "herself": FEMININE, "itself": NEUTER}


@cache
def rules() -> Rules:
    """Returns the grammar, which starts at `S`. Nonterminals' names have number and gender."""
    table: Rules = {}

    def rule(left: str, *alternatives: tuple[float, str]) -> None:
        total = math.fsum(weight for weight, _ in alternatives)
        table[left] = [(weight / total, right.split()) for weight, right in alternatives]

    def any_of(left: str, alternatives: Iterable[str]) -> None:
        rule(left, *((1, right) for right in alternatives))

    agreements = [(number, gender) for number in NUMBERS for gender in NOUNS]
    number_and_tense = [(number, form) for number in NUMBERS for form in (number, "past")]

    any_of("Prep", PREPOSITIONS)
    any_of("Adv", ADVERBS)
    any_of("Det", DETERMINERS)
    for verb, verbs in (("Vi", INTRANSITIVE), ("Vt", TRANSITIVE), ("Vr", REPORTING)):
        for form, members in zip(("sg", "pl", "past"), zip(*verbs, strict=True), strict=True):
            any_of(f"{verb}-{form}", members)
    for gender, pairs in NOUNS.items():
        for number, members in zip(NUMBERS, zip(*pairs, strict=True), strict=True):
            any_of(f"N-{number}-{gender}", members)

    # Noun phrases below the main subject are plain; an embedded subject (Inner) may carry a
    # prepositional phrase.
    rule("Det-or-no", (0.8, "Det"), (0.2, "no"))
    for number, gender in agreements:
        any_of(f"NP-{number}-{gender}", [f"Det-or-no N-{number}-{gender}"])
        any_of(f"Inner-{number}-{gender}", [f"NP-{number}-{gender} PP-or-nothing"])
    for number in NUMBERS:
        any_of(f"Inner-{number}", (f"Inner-{number}-{gender}" for gender in NOUNS))
    any_of("NP", (f"NP-{number}-{gender}" for number, gender in agreements))
    any_of("PP", ["Prep NP"])
    rule("PP-or-nothing", (0.3, "PP"), (0.7, ""))

    # In a subject relative, the verb agrees with the outer noun; in an object relative, with the
    # inner subject.
    for number in NUMBERS:
        rule(
            f"SubjectRelative-{number}",
            (0.3, f"that Vt-{number} NP"),
            (0.2, f"that Adv Vt-{number} NP"),
            (0.5, "that Vt-past NP"),
        )
    any_of("ObjectGap", (f"Inner-{number} Vt-{form}" for number, form in number_and_tense))
    for number in NUMBERS:
        rule(
            f"Modifier-{number}",
            (0.3, "PP"),
            (0.2, f"SubjectRelative-{number}"),
            (0.3, "that ObjectGap"),
            (0.2, ""),
        )

    # A reflexive agrees with the subject of the same clause.
    for number, gender in agreements:
        rule(
            f"Predicate-{number}-{gender}",
            (0.25, f"Vi-{number}"),
            (0.10, f"Adv Vi-{number}"),
            (0.10, "Vi-past"),
            (0.10, f"Vt-{number} NP"),
            (0.05, f"Adv Vt-{number} NP"),
            (0.10, "Vt-past NP"),
            (0.30, "Vt-past " + (gender if number == "sg" else "themselves")),
        )

    # `ever` needs `no` on the subject itself; `already`, a positive polarity item, excludes it.
    for number, have in zip(NUMBERS, ("has", "have"), strict=True):
        for item in ("ever", "already"):
            rule(
                f"Perfect-{number}-{item}",
                (0.9, f"{have} {item} Participle"),
                (0.1, f"{have} Participle"),
            )
    rule("Participle", (0.7, "Vi-past"), (0.3, "Vt-past NP"))

    for determiner, item, perfect in (("Det", "already", 0.3), ("no", "ever", 0.6)):
        for number, gender in agreements:
            subject = f"{determiner} N-{number}-{gender} Modifier-{number}"
            rule(
                f"Main-{determiner}-{number}-{gender}",
                (1 - perfect, f"{subject} Predicate-{number}-{gender}"),
                (perfect, f"{subject} Perfect-{number}-{item}"),
            )
        any_of(
            f"Main-{determiner}",
            (f"Main-{determiner}-{number}-{gender}" for number, gender in agreements),
        )
    rule("Main", (0.7, "Main-Det"), (0.3, "Main-no"))

    # Reports: a complete clause after `that`, a clause with a gap after `who`.
    any_of(
        "Clause",
        (f"Inner-{number}-{gender} Predicate-{number}-{gender}" for number, gender in agreements),
    )
    rule("Complement", (0.5, "that Clause"), (0.4, "who ObjectGap"), (0.1, "who Vt-past NP"))
    any_of("Report", (f"Inner-{number} Vr-{form} Complement" for number, form in number_and_tense))

    rule("S", (0.6, "Main ."), (0.4, "Report ."))
    return table


def sentences(count: int, seed: int, split: str = "train") -> Iterator[str]:
    """Yields the first `count` sentences of the stream (seed, split), independent of all others.

    The result is the same on every machine: it only uses `Random.random`, whose sequence Python
    keeps stable.
    """
    rng = random.Random(f"{split}/{seed}")
    table = {
        left: (
            [*accumulate(p for p, _ in alternatives[:-1])],
            [symbols for _, symbols in alternatives],
        )
        for left, alternatives in rules().items()
    }

    def expand(symbol: str) -> list[str]:
        if symbol not in table:
            return [symbol]
        cumulative, alternatives = table[symbol]
        return [
            word
            for child in alternatives[bisect(cumulative, rng.random())]
            for word in expand(child)
        ]

    for _ in range(count):
        yield spell(expand("S"))


def spell(words: list[str]) -> str:
    """Joins words and a final period to a sentence, with a capital first letter."""
    text = " ".join(words[:-1]) + words[-1]
    return text[:1].upper() + text[1:]


def log_prob(sentence: str) -> float:
    """Returns ln p(sentence) in nats, by the inside algorithm; -inf outside the language."""
    words = [*(sentence[:1].lower() + sentence[1:-1]).split(" "), "."]
    if spell(words) != sentence:
        return -math.inf
    table = rules()

    @cache
    def inside(symbol: str, start: int) -> dict[int, float]:
        """Returns {end: probability that `symbol` becomes words[start:end]}."""
        if symbol not in table:
            return {start + 1: 1.0} if words[start : start + 1] == [symbol] else {}
        ends: dict[int, float] = defaultdict(float)
        for p, symbols in table[symbol]:
            if symbols and symbols[0] not in table and symbols[:1] != words[start : start + 1]:
                continue  # skips most words of a class
            reached = {start: 1.0}
            for child in symbols:
                further: dict[int, float] = defaultdict(float)
                for middle, q in reached.items():
                    for end, r in inside(child, middle).items():
                        further[end] += q * r
                reached = further
            for end, q in reached.items():
                ends[end] += p * q
        return ends

    probability = inside("S", 0).get(len(words), 0.0)
    return math.log(probability) if probability else -math.inf


class Entropy(NamedTuple):
    """The exact entropy of the language. Tokens are the words, the period and EOS, but not BOS."""

    nats_per_sentence: float
    tokens_per_sentence: float
    nats_per_token: float


def entropy() -> Entropy:
    """Computes H(X) = sum over the rules X -> Y Z.. of p (-ln p + H(Y) + H(Z) + ..).

    The mean length is computed likewise. The entropy per token is the ratio of the two means,
    because total NLL / total tokens estimates this ratio.
    """
    table = rules()

    @cache
    def below(symbol: str) -> tuple[float, float]:
        """Returns the mean (nats, words) of `symbol`."""
        if symbol not in table:
            return 0.0, 1.0
        nats = length = 0.0
        for p, symbols in table[symbol]:
            children = [below(child) for child in symbols]
            nats += p * (math.fsum(h for h, _ in children) - math.log(p))
            length += p * math.fsum(n for _, n in children)
        return nats, length

    nats, length = below("S")
    tokens = length + 1  # EOS
    return Entropy(nats, tokens, nats / tokens)


def words() -> list[str]:
    """Returns all tokens for a closed word list: ".", "The", " The", " dog", ...

    " The" is for the scoring conventions that put a space before the sentence.
    """
    table = rules()
    inner = {
        symbol
        for alternatives in table.values()
        for _, symbols in alternatives
        for symbol in symbols
    }
    first = [word.capitalize() for word in sorted((*DETERMINERS, "no"))]
    return [".", *first, *(" " + word for word in (*first, *sorted(inner - set(table) - {"."})))]
