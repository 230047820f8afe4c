"""Lines are split as NLTK itself splits them."""

import random
import re
import shutil
from functools import partial

import nltk.data
import pytest
from nltk.tokenize.punkt import (
    PunktParameters,
    PunktSentenceTokenizer,
    PunktTokenizer,
    PunktTrainer,
)

from esnlm.base.errors import InputError
from esnlm.data.sentences import load_punkt, punkt_splitter, train_punkt
from esnlm.data.text_files import read_chunks


def write(path, data: bytes):
    path.write_bytes(data)
    return path


# ---- Punkt ----


def toy_parameters() -> PunktParameters:
    """Every kind of knowledge that Punkt has, in small."""
    parameters = PunktParameters()
    parameters.abbrev_types = {"mr", "dr", "co", "p.m", "e.g", "a"}
    parameters.collocations = {("##number##", "b"), ("j", "brown")}
    parameters.sent_starters = {"he", "the"}
    for word, context in {
        "he": 0b1010,
        "b": 0b100010,
        "brown": 0b0100,
        "the": 0b100110,
        "a": 0b1000000,
    }.items():
        parameters.ortho_context[word] = context
    return parameters


WORDS = [
    "a",
    "b",
    "he",
    "He",
    "The",
    "Brown",
    "J.",
    "J",
    "Mr.",
    "mr.",
    "Dr.",
    "p.m.",
    "e.g.",
    "3.",
    "3.5",
    "-4.1.",
]
WORDS += ["No.", "x-mr.", "ß.", "É.", "İ"]
MARKS = [*"....?!,;:()[]\"'`‘’“”«»—*@#&{", "..", "...", "....", "?!", "!!!", "--"]
PIECES = WORDS + MARKS
SPACES = [
    " ",
    " ",
    " ",
    "",
    "",
    "  ",
    "\t",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\xa0",
    "\u2028",
    "\u3000",
]


def random_line(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) + rng.choice(SPACES) for _ in range(rng.randint(0, 20)))


def test_random_lines_split_as_nltk_splits_them():
    """Also with line ends inside."""
    rng, parameters = random.Random(1), toy_parameters()
    ours, nltks = punkt_splitter(parameters), PunktSentenceTokenizer(parameters)
    several = 0
    for _ in range(2000):
        text = random_line(rng) + rng.choice(["", ".\n", " \n\n"]) + random_line(rng)
        expected = nltks.tokenize(text)
        assert ours(text) == expected, repr(text)
        several += len(expected) > 1
    assert several > 500


def test_real_text_splits_as_nltk_splits_it(data, dev_corpus, tmp_path, monkeypatch):
    shutil.copytree(
        data / "punkt_tab" / "english", tmp_path / "tokenizers" / "punkt_tab" / "english"
    )
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    ours, nltks = punkt_splitter(load_punkt("english")), PunktTokenizer("english")
    for path in sorted(dev_corpus.glob("*.dev")):
        for line in map(str.strip, next(read_chunks(path)).split("\n")[:600]):
            assert ours(line) == nltks.tokenize(line), f"{path.name}: {line!r}"


@pytest.mark.parametrize("folder", ["", "punkt_tab", "tokenizers/punkt_tab"])
def test_punkt_data_is_found_in_a_folder_in_three_layouts_or_refused_by_name(tmp_path, folder):
    place = tmp_path / folder / "toy"
    place.mkdir(parents=True)
    (place / "abbrev_types.txt").write_text("mr\ndr")
    (place / "sent_starters.txt").write_text("he")
    (place / "collocations.tab").write_text("j\tbrown\n##number##\tb")
    (place / "ortho_context.tab").write_text("he\t10\nthe\t38")
    parameters = load_punkt("toy", tmp_path)
    assert parameters.abbrev_types == {"mr", "dr"} and parameters.sent_starters == {"he"}
    assert parameters.collocations == {("j", "brown"), ("##number##", "b")}
    assert parameters.ortho_context == {"he": 10, "the": 38}
    assert parameters.ortho_context["unseen"] == 0
    (place / "ortho_context.tab").write_text("he\tten")
    with pytest.raises(InputError, match=r"toy/ortho_context\.tab: missing or damaged"):
        load_punkt("toy", tmp_path)
    with pytest.raises(
        InputError, match=f"^{re.escape(str(tmp_path))}: no Punkt data for language 'german'"
    ):
        load_punkt("german", tmp_path)


def invented_text(seed: int) -> str:
    """Sentences of nonsense words in which "mr." is the one abbreviation."""
    rng = random.Random(seed)
    words = ["".join(map(rng.choice, ("bdfglmnprst", "aeiou", "bdfgnpt"))) for _ in range(40)]
    lines = []
    for _ in range(300):
        sentence = rng.choices(words, k=rng.randint(4, 8))
        if rng.random() < 0.3:
            sentence[2:2] = ["mr.", rng.choice(words).capitalize()]
        lines.append(" ".join(sentence).capitalize() + ".")
    return " ".join(lines)


def test_punkt_learns_abbreviations_from_the_text():
    parameters = train_punkt([invented_text(0), invented_text(0)])
    assert parameters.abbrev_types == {"mr"}
    assert punkt_splitter(parameters)("Now mr. Bad is here. The end.") == [
        "Now mr. Bad is here.",
        "The end.",
    ]


def test_what_punkt_learns_does_not_depend_on_the_order_of_a_set(monkeypatch):
    # NLTK goes through a set of strings here, whose order is another in each process.
    text = (
        invented_text(1) + " cat, mr, dog, etc. and so on, cat, no etc in dog, etc.. and so on" * 9
    )
    learned = []
    for reverse in (False, True):
        order = partial(sorted, reverse=reverse)
        monkeypatch.setattr(
            PunktTrainer,
            "_unique_types",
            lambda self, tokens, order=order: order({t.type for t in tokens}),
        )
        learned.append(vars(train_punkt([text, text[::2]])))
    assert learned[0] == learned[1]
