"""Held-out minimal pairs of the grammar, in BLiMP's format, which no n-gram model (n <= 4) solves.

A paradigm is a square of two contexts A, B and two completions a, b: A a and B b are sentences of
the language, A b and B a are not. Each square gives two mirrored pairs:

    contrast of completions
        The dog near the cats | sleeps.                 bad: The dog near the cats | sleep.
        The dogs near the cats | sleep.                 bad: The dogs near the cats | sleeps.
    contrast of contexts
        The boy knew who Ann liked | .                  bad: The boy knew that Ann liked | .
        The boy knew that Ann liked | the king.         bad: The boy knew who Ann liked | the king.

A and B end in at least three common words. So for any n-gram model (n <= 4), the differences in
log-probability of the two pairs are equal with opposite signs. It gets one pair right and one
wrong: 50 % on every paradigm, by construction.
"""

import json
import math
import random
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from esnlm.base.errors import InputError
from esnlm.base.files import NewFolder, writing
from esnlm.data import grammar


@dataclass(frozen=True)
class Paradigm:
    """Two templates, "context | completion | end", filled with a word of each slot.

    `end` precedes the period in good and bad sentences. Different words give different good
    sentences, so that no pair is repeated.
    """

    field: str
    linguistics_term: str
    contrast: str  # the difference within a pair: "completion" or "context"
    slots: str  # keys of WORDS
    a: str
    b: str


_NOUNS = (*grammar.MASCULINE, *grammar.FEMININE, *grammar.NEUTER)
_SINGULAR, _ANY_NUMBER = (
    tuple(noun[0] for noun in _NOUNS),
    tuple(form for noun in _NOUNS for form in noun),
)
_LIKED = tuple(past for _, _, past in grammar.TRANSITIVE)
WORDS: dict[str, tuple] = {
    "det": grammar.DETERMINERS,
    "inner": (*grammar.DETERMINERS, "no"),
    "prep": grammar.PREPOSITIONS,
    "noun": _NOUNS,
    "head": _ANY_NUMBER,
    "distractor": _ANY_NUMBER,
    "sleeps": grammar.INTRANSITIVE,
    "slept": tuple(past for _, _, past in grammar.INTRANSITIVE),
    "likes": grammar.TRANSITIVE,
    "liked": _LIKED,
    "knew": tuple(past for _, _, past in grammar.REPORTING),
    "couple": tuple(zip(grammar.MASCULINE, grammar.FEMININE, strict=True)),
    "binder": tuple(
        (*noun, reflexive) for reflexive, nouns in grammar.NOUNS.items() for noun in nouns
    ),
    "noun_likes": tuple(
        f"{noun[n]} {verb[n]}" for verb in grammar.TRANSITIVE for n in (0, 1) for noun in _NOUNS
    ),
    "noun_has": tuple((noun[n], have) for n, have in enumerate(("has", "have")) for noun in _NOUNS),
    "noun_object": tuple(zip(_SINGULAR, (*_SINGULAR[1:], _SINGULAR[0]), strict=True)),
}

AGREEMENT = ("morphology", "subject_verb_agreement", "completion")
ANAPHOR = ("morphology", "anaphor_agreement", "completion")
NPI = (
    "det noun_has distractor liked slept",
    "no {noun_has[0]} that {det} {distractor} {liked} {noun_has[1]} | ever | {slept}",
    "{det} {noun_has[0]} that no {distractor} {liked} {noun_has[1]} | already | {slept}",
)
GAP = (
    "det head knew noun_object prep distractor liked",
    "{det} {head} {knew} who the {noun_object[0]} {prep} the {distractor} {liked} | | ",
    (
        "{det} {head} {knew} that the {noun_object[0]} {prep} the {distractor} {liked} | the"
        " {noun_object[1]} | "
    ),
)
PARADIGMS = {
    "agreement_across_prepositional_phrase": Paradigm(
        *AGREEMENT,
        "det noun prep inner distractor sleeps",
        "{det} {noun[0]} {prep} {inner} {distractor} | {sleeps[0]} | ",
        "{det} {noun[1]} {prep} {inner} {distractor} | {sleeps[1]} | ",
    ),
    "agreement_across_subject_relative": Paradigm(
        *AGREEMENT,
        "det noun liked inner distractor sleeps",
        "{det} {noun[0]} that {liked} {inner} {distractor} | {sleeps[0]} | ",
        "{det} {noun[1]} that {liked} {inner} {distractor} | {sleeps[1]} | ",
    ),
    "agreement_across_object_relative": Paradigm(
        *AGREEMENT,
        "det noun inner noun_likes sleeps",
        "{det} {noun[0]} that {inner} {noun_likes} | {sleeps[0]} | ",
        "{det} {noun[1]} that {inner} {noun_likes} | {sleeps[1]} | ",
    ),
    "agreement_inside_object_relative": Paradigm(
        *AGREEMENT,
        "det head noun prep distractor likes slept",
        "{det} {head} that the {noun[0]} {prep} the {distractor} | {likes[0]} | {slept}",
        "{det} {head} that the {noun[1]} {prep} the {distractor} | {likes[1]} | {slept}",
    ),
    "reflexive_number": Paradigm(
        *ANAPHOR,
        "det binder prep inner distractor liked",
        "{det} {binder[0]} {prep} {inner} {distractor} {liked} | {binder[2]} | ",
        "{det} {binder[1]} {prep} {inner} {distractor} {liked} | themselves | ",
    ),
    "reflexive_gender": Paradigm(
        *ANAPHOR,
        "det couple prep inner distractor liked",
        "{det} {couple[0][0]} {prep} {inner} {distractor} {liked} | himself | ",
        "{det} {couple[1][0]} {prep} {inner} {distractor} {liked} | herself | ",
    ),
    "reflexive_domain": Paradigm(
        *("syntax_semantics", "binding", "completion"),
        "det couple knew prep distractor liked",
        "{det} {couple[1][0]} {knew} that the {couple[0][0]} {prep} the {distractor} {liked} |"
        " himself | ",
        "{det} {couple[0][0]} {knew} that the {couple[1][0]} {prep} the {distractor} {liked} |"
        " herself | ",
    ),
    "npi_licensor_scope": Paradigm("semantics", "npi_licensing", "context", *NPI),
    "npi_item": Paradigm("semantics", "npi_licensing", "completion", *NPI),
    "wh_vs_that": Paradigm("syntax", "filler_gap_dependency", "context", *GAP),
    "gap_vs_object": Paradigm("syntax", "filler_gap_dependency", "completion", *GAP),
}


def minimal_pairs(
    per_paradigm: int, seed: int, exclude: Container[str] = ()
) -> dict[str, list[dict]]:
    """Returns `per_paradigm` pairs in BLiMP's schema by UID, the two of a square side by side.

    No pair has a sentence of `exclude` (the corpus), and no good sentence is repeated in a
    paradigm. `per_paradigm` is even. Raises InputError if a paradigm has too few pairs.
    """
    return {
        uid: _held_out(uid, paradigm, per_paradigm, seed, exclude)
        for uid, paradigm in PARADIGMS.items()
    }


def _held_out(
    uid: str, paradigm: Paradigm, count: int, seed: int, exclude: Container[str]
) -> list[dict]:
    rows: list[dict] = []
    names = {"field": paradigm.field, "linguistics_term": paradigm.linguistics_term, "UID": uid}
    for choice in _choices(paradigm.slots.split(), random.Random(f"{uid}/{seed}")):
        pairs = _mirrored_pairs(paradigm, choice)
        if not any(sentence in exclude for pair in pairs for sentence in pair.values()):
            rows += [pair | names | {"pairID": str(len(rows) + i)} for i, pair in enumerate(pairs)]
        if len(rows) == count:
            return rows
    raise InputError(
        f"per_paradigm: {count} pairs asked, {uid} has only {len(rows)} outside the corpus: ask for"
        " fewer"
    )


def _choices(slots: list[str], rng: random.Random) -> Iterator[dict]:
    """Yields each combination of one item per slot once, in random order (Fisher-Yates)."""
    moved: dict[int, int] = {}
    for last in reversed(range(math.prod(len(WORDS[slot]) for slot in slots))):
        pick = int(rng.random() * (last + 1))
        number = moved.get(pick, pick)
        moved[pick] = moved.pop(last, last)
        choice = {}
        for slot in slots:
            number, digit = divmod(number, len(WORDS[slot]))
            choice[slot] = WORDS[slot][digit]
        yield choice


def _mirrored_pairs(paradigm: Paradigm, words: dict) -> list[dict]:
    sides = [
        [part.strip() for part in side.format(**words).split("|")]
        for side in (paradigm.a, paradigm.b)
    ]
    contrast = ("context", "completion").index(paradigm.contrast)
    pairs = []
    for good, other in (sides, sides[::-1]):
        bad = [*good]
        bad[contrast] = other[contrast]
        pairs.append({"sentence_good": _sentence(*good), "sentence_bad": _sentence(*bad)})
    return pairs


def _sentence(*parts: str) -> str:
    return grammar.spell([*" ".join(parts).split(), "."])


def write_pairs(pairs: dict[str, list[dict]], folder: Path) -> None:
    """Writes `folder`/UID.jsonl for every paradigm, atomically. The folder must be new or empty."""
    with writing(folder), NewFolder(folder) as new:
        for uid, rows in pairs.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (new.path / f"{uid}.jsonl").write_text(lines, encoding="utf-8")
        new.commit()
