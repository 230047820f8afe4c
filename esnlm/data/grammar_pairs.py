"""Held-out minimal pairs of the grammar, in BLiMP's form, that no n-gram model up to n = 4 can solve.

A paradigm is a square of two contexts A, B and two completions a, b, where A a and B b are sentences of the language
and A b and B a are not. Each square gives two pairs, mirror images of each other:

    contrast of completions   The dog near the cats | sleeps.        bad: The dog near the cats | sleep.
                              The dogs near the cats | sleep.        bad: The dogs near the cats | sleeps.
    contrast of contexts      The boy knew who the girl liked | .    bad: The boy knew that the girl liked | .
                              The boy knew that the girl liked | the king.
                                                                     bad: The boy knew who the girl liked | the king.

A and B end in the same three words at least. So the difference in log-probability that an n-gram model (n <= 4) sees in
one pair it sees with the opposite sign in the other, whatever it was trained on. It has one pair right and one wrong:
50 % by construction, on every paradigm.
"""

import json
import math
import os
import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from esnlm.data.grammar import ENGLISH, Forms, Lexicon, spell
from esnlm.errors import InputError
from esnlm.io.atomic import NewFolder, writing


class Square(NamedTuple):
    """Holds two contexts and two completions: A asks for a, and B asks for b. `end` stands before the period in all four."""

    context_a: str
    completion_a: str
    context_b: str
    completion_b: str
    end: str = ""


@dataclass(frozen=True)
class Paradigm:
    """What the pairs of one UID are made of: `square` takes one item from each of `slots`.

    Different items give different good sentences, so that no pair comes twice.
    """

    field: str
    linguistics_term: str
    contrast: str  # what differs within a pair: "completion" or "context"
    slots: tuple[tuple, ...]
    square: Callable[..., Square]


def prepositional_phrase(det: str, noun: Forms, prep: str, inner: str, distractor: str, verb: Forms) -> Square:
    """The dog near the cats | sleeps."""
    between = f"{prep} {inner} {distractor}"
    return Square(f"{det} {noun[0]} {between}", verb[0], f"{det} {noun[1]} {between}", verb[1])


def subject_relative(det: str, noun: Forms, relative_verb: str, inner: str, distractor: str, verb: Forms) -> Square:
    """The dog that liked the cats | sleeps."""
    between = f"that {relative_verb} {inner} {distractor}"
    return Square(f"{det} {noun[0]} {between}", verb[0], f"{det} {noun[1]} {between}", verb[1])


def object_relative(
    det: str, noun: Forms, inner: str, distractor: Forms, number: int, relative_verb: Forms, verb: Forms
) -> Square:
    """The dog that the cats like | sleeps."""
    between = f"that {inner} {distractor[number]} {relative_verb[number]}"
    return Square(f"{det} {noun[0]} {between}", verb[0], f"{det} {noun[1]} {between}", verb[1])


def inside_relative(
    det: str, head: str, noun: Forms, prep: str, distractor: str, verb: Forms, main_verb: str
) -> Square:
    """The dog that the cat near the men | likes | slept."""
    left, right = f"{det} {head} that the", f"{prep} the {distractor}"
    return Square(f"{left} {noun[0]} {right}", verb[0], f"{left} {noun[1]} {right}", verb[1], main_verb)


def reflexive_number(
    det: str, noun_and_reflexive: tuple[Forms, str], prep: str, inner: str, distractor: str, verb: str
) -> Square:
    """The girl near the cats praised | herself."""
    (singular, plural), reflexive = noun_and_reflexive
    between = f"{prep} {inner} {distractor} {verb}"
    return Square(f"{det} {singular} {between}", reflexive, f"{det} {plural} {between}", "themselves")


def reflexive_gender(
    det: str, couple: tuple[Forms, Forms], prep: str, inner: str, distractor: str, verb: str
) -> Square:
    """The boy near the queen praised | himself."""
    man, woman = couple
    between = f"{prep} {inner} {distractor} {verb}"
    return Square(f"{det} {man[0]} {between}", "himself", f"{det} {woman[0]} {between}", "herself")


def reflexive_domain(
    det: str, couple: tuple[Forms, Forms], report: str, prep: str, distractor: str, verb: str
) -> Square:
    """The girl knew that the boy near the dogs praised | himself."""
    man, woman = couple
    between = f"{prep} the {distractor} {verb}"
    context_a = f"{det} {woman[0]} {report} that the {man[0]} {between}"
    context_b = f"{det} {man[0]} {report} that the {woman[0]} {between}"
    return Square(context_a, "himself", context_b, "herself")


def polarity(det: str, noun: Forms, number: int, distractor: str, relative_verb: str, participle: str) -> Square:
    """No dog that the cats liked has | ever | slept."""
    have = ("has", "have")[number]
    context_a = f"no {noun[number]} that {det} {distractor} {relative_verb} {have}"
    context_b = f"{det} {noun[number]} that no {distractor} {relative_verb} {have}"
    return Square(context_a, "ever", context_b, "already", participle)


def gap(
    det: str, head: str, report: str, noun_and_object: tuple[str, str], prep: str, distractor: str, verb: str
) -> Square:
    """The boy knew who the girl near the dogs liked | ."""
    noun, object_ = noun_and_object
    clause = f"the {noun} {prep} the {distractor} {verb}"
    return Square(f"{det} {head} {report} who {clause}", "", f"{det} {head} {report} that {clause}", f"the {object_}")


def _paradigms(lexicon: Lexicon) -> dict[str, Paradigm]:
    det, det_or_no, prep = lexicon.determiner, (*lexicon.determiner, "no"), lexicon.preposition
    nouns = (*lexicon.masculine, *lexicon.feminine, *lexicon.neuter)
    singular, any_number = tuple(noun[0] for noun in nouns), tuple(form for noun in nouns for form in noun)
    couple = tuple(zip(lexicon.masculine, lexicon.feminine, strict=False))
    binder = tuple((noun, reflexive) for reflexive, bound in lexicon.nouns_by_reflexive().items() for noun in bound)
    noun_and_object = tuple(zip(singular, (*singular[1:], singular[0]), strict=True))
    sleep, like = lexicon.intransitive, lexicon.transitive
    slept, liked = (tuple(past for _, _, past in verbs) for verbs in (sleep, like))
    knew = tuple(past for _, _, past in lexicon.reporting)
    number = (0, 1)

    agreement = ("morphology", "subject_verb_agreement", "completion")
    anaphor = ("morphology", "anaphor_agreement", "completion")
    binding = ("syntax_semantics", "binding", "completion")
    npi = ("semantics", "npi_licensing")
    filler_gap = ("syntax", "filler_gap_dependency")
    npi_slots = (det, nouns, number, any_number, liked, slept)
    gap_slots = (det, any_number, knew, noun_and_object, prep, any_number, liked)
    across, reflexive = (det, nouns, prep, det_or_no, any_number, sleep), (prep, det_or_no, any_number, liked)
    return {
        "agreement_across_prepositional_phrase": Paradigm(*agreement, across, prepositional_phrase),
        "agreement_across_subject_relative": Paradigm(
            *agreement, (det, nouns, liked, det_or_no, any_number, sleep), subject_relative
        ),
        "agreement_across_object_relative": Paradigm(
            *agreement, (det, nouns, det_or_no, nouns, number, like, sleep), object_relative
        ),
        "agreement_inside_object_relative": Paradigm(
            *agreement, (det, any_number, nouns, prep, any_number, like, slept), inside_relative
        ),
        "reflexive_number": Paradigm(*anaphor, (det, binder, *reflexive), reflexive_number),
        "reflexive_gender": Paradigm(*anaphor, (det, couple, *reflexive), reflexive_gender),
        "reflexive_domain": Paradigm(*binding, (det, couple, knew, prep, any_number, liked), reflexive_domain),
        "npi_licensor_scope": Paradigm(*npi, "context", npi_slots, polarity),
        "npi_item": Paradigm(*npi, "completion", npi_slots, polarity),
        "wh_vs_that": Paradigm(*filler_gap, "context", gap_slots, gap),
        "gap_vs_object": Paradigm(*filler_gap, "completion", gap_slots, gap),
    }


PARADIGMS = _paradigms(ENGLISH)


def minimal_pairs(per_paradigm: int, seed: int, exclude: Container[str] = ()) -> dict[str, list[dict]]:
    """Returns {UID: `per_paradigm` pairs in BLiMP's schema}, the two pairs of a square next to each other.

    No sentence of `exclude` (the corpus) is in any pair, and no good sentence comes twice in a paradigm.
    `per_paradigm` is even. Raises InputError if it is more than a paradigm holds.
    """
    return {uid: _held_out(uid, paradigm, per_paradigm, seed, exclude) for uid, paradigm in PARADIGMS.items()}


def _held_out(uid: str, paradigm: Paradigm, count: int, seed: int, exclude: Container[str]) -> list[dict]:
    rows: list[dict] = []
    for choice in _choices(paradigm.slots, random.Random(f"{uid}/{seed}")):
        pairs = _mirrored_pairs(paradigm.square(*choice), paradigm.contrast)
        if not any(pair[key] in exclude for pair in pairs for key in ("sentence_good", "sentence_bad")):
            rows += [_blimp_row(uid, paradigm, pair, len(rows) + i) for i, pair in enumerate(pairs)]
        if len(rows) == count:
            return rows
    raise InputError(f"per_paradigm: {count} pairs asked, {uid} has only {len(rows)} outside the corpus: ask for fewer")


def _choices(slots: tuple[tuple, ...], rng: random.Random) -> Iterator[list]:
    """Yields every combination of one item per slot once, in random order (Fisher-Yates on numbers that are not stored)."""
    moved: dict[int, int] = {}
    for last in reversed(range(math.prod(len(slot) for slot in slots))):
        pick = int(rng.random() * (last + 1))
        number = moved.get(pick, pick)
        moved[pick] = moved.pop(last, last)
        choice = []
        for slot in slots:
            number, digit = divmod(number, len(slot))
            choice.append(slot[digit])
        yield choice


def _mirrored_pairs(square: Square, contrast: str) -> list[dict]:
    a, b = (square.context_a, square.completion_a), (square.context_b, square.completion_b)
    one_word = all(len(completion.split()) == 1 for _, completion in (a, b))
    pairs = []
    for (context, completion), (other_context, other_completion) in ((a, b), (b, a)):
        if contrast == "completion":
            bad = _sentence(context, other_completion, square.end)
            critical = {
                "one_prefix_prefix": _capital(context),
                "one_prefix_word_good": completion,
                "one_prefix_word_bad": other_completion,
            }
        else:
            bad = _sentence(other_context, completion, square.end)
            critical = {
                "two_prefix_prefix_good": _capital(context),
                "two_prefix_prefix_bad": _capital(other_context),
                "two_prefix_word": completion,
            }
        good = _sentence(context, completion, square.end)
        pairs.append({"sentence_good": good, "sentence_bad": bad} | (critical if one_word else {}))
    return pairs


def _blimp_row(uid: str, paradigm: Paradigm, pair: dict, number: int) -> dict:
    good, bad = (sorted(pair[key].lower().split()) for key in ("sentence_good", "sentence_bad"))
    return pair | {
        "field": paradigm.field,
        "linguistics_term": paradigm.linguistics_term,
        "UID": uid,
        "simple_LM_method": True,
        "one_prefix_method": "one_prefix_prefix" in pair,
        "two_prefix_method": "two_prefix_word" in pair,
        "lexically_identical": good == bad,
        "pairID": str(number),
    }


def _sentence(*parts: str) -> str:
    return spell([*" ".join(parts).split(), "."])


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def write_pairs(pairs: dict[str, list[dict]], folder: str | os.PathLike) -> None:
    """Writes `folder`/UID.jsonl for every paradigm, all or nothing. The folder is new or empty."""
    folder = Path(folder)
    with writing(folder), NewFolder(folder) as new:
        for uid, rows in pairs.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (new.path / f"{uid}.jsonl").write_text(lines, encoding="utf-8")
        new.commit()
