"""`esnlm.score_words` against the oracle's float64 and plain loops over the words of a table."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.encode import encode_sentences
from esnlm.data.sources import ImportedData
from esnlm.data.tokenizer import word_tokenizer
from esnlm.evaluation.cache import RANGES, CacheFit
from esnlm.evaluation.surprisal import word_ends
from esnlm.evaluation.words import log_frequencies
from esnlm.loaded_run import Run
from esnlm.models.ngrams import NgramModel
from tests.evaluation import small_run
from tests.evaluation.small_run import TOKENIZER, TOLERANCE, log_probs

EOS = TOKENIZER.eos
TRAINING = ["The cats sleep.", "The cat that run", "The cats that run", "cats sleep"]
# The run reads documents, so that a test may choose either context.
pytestmark = pytest.mark.filterwarnings("ignore:run \\w+ was trained on whole documents")

# (story, sentence, zone, word); " cats" is one token, of which "c" has all
TEXT = [
    (1, 1, 1, "The"),
    (1, 1, 2, "cats"),
    (1, 1, 3, "sleep."),
    (1, 2, 4, "c"),
    (1, 2, 5, "ats"),
    (1, 2, 6, "run"),
    (2, 1, 1, "The"),
    (2, 1, 2, "-"),
    (2, 1, 3, "cat"),
]
SENTENCES = [range(3), range(3, 6), range(6, 9)]
TEXTS = ["The cats sleep.", "cats run", "The - cat"]
TOKENS = [1, 1, 2, 1, None, 1, 1, 2, 1]  # of each word
FORMS = ["the", "cats", "sleep", None, None, "run", "the", "", "cat"]
ORDER = [4, 8, 0, 7, 2, 6, 1, 3, 5]  # of the rows of the table
NEEDED = {"document": "story", "sentence": ["story", "s"], "space_after": "space"}


def table():
    names = ("story", "s", "zone", "word")
    rows = [dict(zip(names, TEXT[i], strict=True)) for i in ORDER]
    return [row | {"space": row["word"] != "c", "zone": str(row["zone"])} for row in rows]


@pytest.fixture(scope="module")
def run():
    return small_run.small_run(data=small_run.OF_DOCUMENTS)


@pytest.fixture(autouse=True)
def store(monkeypatch):
    made = encode_sentences(TRAINING, TOKENIZER)
    monkeypatch.setattr(
        Run, "training_store", lambda self: made if self.config.data.has_corpus else None
    )
    return made


def in_reading_order(rows, name):
    values = dict(zip(ORDER, (row[name] for row in rows), strict=True))
    return [values[i] for i in range(len(TEXT))]


def close(values, rel=TOLERANCE):
    """Compares numbers, and None with None."""
    return [None if value is None else pytest.approx(value, rel=rel) for value in values]


def framed(text):
    return np.array([EOS, *TOKENIZER.encode(text), EOS])


def by_word(log_p):
    """Returns the bits of each word from log p of the tokens of each sentence."""
    bits = []
    for words, values in zip(SENTENCES, log_p, strict=True):
        rest = list(-values / math.log(2))
        for i in words:
            count = TOKENS[i]
            bits.append(None if count is None else sum(rest[:count]))
            rest = rest[count or 0 :]
    return bits


def test_words_have_the_surprisals_of_the_oracle_with_their_sentence_as_context(run):
    rows = esnlm.score_words(table(), run, **NEEDED)
    expected = by_word([log_probs(run, framed(text)) for text in TEXTS])
    assert in_reading_order(rows, "surprisal_bits") == close(expected)
    assert [{name: row[name] for name in table()[0]} for row in rows] == table()
    places = [(n, i, i == 0, i == 2) for n in range(3) for i in range(3)]
    for name, values in zip(
        ("sentence_number", "sentence_position", "first_in_sentence", "last_in_sentence"),
        zip(*places, strict=True),
        strict=True,
    ):
        assert in_reading_order(rows, name) == list(values)
    assert in_reading_order(rows, "tokens") == TOKENS
    assert in_reading_order(rows, "length") == [len(word) for *_, word in TEXT]
    assert in_reading_order(rows, "context_words") == [0, 1, 2] * 3
    assert {(row["context"], row["cache"]) for row in rows} == {("sentence", False)}


def test_words_have_those_of_a_document_that_is_read_on(run):
    rows = esnlm.score_words(table(), run, context="document", unit="nats", **NEEDED)
    first, second, third = map(framed, TEXTS)
    stream = log_probs(run, np.concatenate([first, second]))
    # without the prediction of the second BOS
    read_on = [stream[: len(first) - 1], stream[len(first) :], log_probs(run, third)]
    bits = by_word(read_on)
    expected = [None if value is None else value * math.log(2) for value in bits]
    assert in_reading_order(rows, "surprisal_nats") == close(expected)
    assert in_reading_order(rows, "context_words") == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert {row["context"] for row in rows} == {"document"}


def test_a_cache_counts_the_tokens_of_a_document(run, monkeypatch):
    fit = CacheFit(0, "", "", RANGES, [], [1.0] * 5, math.nan, math.nan)
    cached = dataclasses.replace(run)
    monkeypatch.setitem(cached.__dict__, "cache_fit", fit)
    counts = np.ones(TOKENIZER.vocab_size)
    monkeypatch.setattr(Run, "unigram", lambda run: NgramModel.from_counts(counts))
    rows = esnlm.score_words(table(), cached, cache=True, **NEEDED)
    words = [["The", "cats", "sleep."], ["c", "ats", "run"], ["The", "-", "cat"]]
    spaces = [[True] * 3, [False, True, True], [True] * 3]
    options = {"documents": [1, 1, 2], "space_after": spaces, "eos": False}
    expected = cached.surprisal(words, cache=True, **options)
    assert in_reading_order(rows, "surprisal_bits") == [row["surprisal_bits"] for row in expected]
    assert {(row["context"], row["cache"]) for row in rows} == {("sentence", True)}
    plain = esnlm.score_words(table(), cached, **NEEDED)
    assert in_reading_order(rows, "surprisal_bits") != in_reading_order(plain, "surprisal_bits")


def test_baselines_sum_over_tokens_and_are_fitted_once(run, store, monkeypatch):
    fits = []
    fit = NgramModel.fit
    monkeypatch.setattr(NgramModel, "fit", lambda *given: fits.append(given[2]) or fit(*given))
    rows = esnlm.score_words(
        table(), run, baselines=["unigram", "bigram", "trigram"], context="document", **NEEDED
    )
    assert fits == [3]
    for order, name in enumerate(["unigram", "bigram", "trigram"], start=1):
        model = fit(store, TOKENIZER.vocab_size, order)
        expected = by_word(model.token_log_probs_of_ids([framed(text) for text in TEXTS]))
        assert in_reading_order(rows, f"surprisal_bits_{name}") == close(expected, rel=1e-12)


def test_baselines_count_white_space_with_the_word_before_it(run, store):
    rows = [{"word": word, "s": 1} for word in ("The", "cats", "sleep.")]
    options = {"baselines": "bigram", "whitespace": "trailing", "unit": "nats"}
    scored = esnlm.score_words(rows, run, sentence="s", **options)
    model = NgramModel.fit(store, TOKENIZER.vocab_size, 2)
    ids = [framed("The cats sleep.")]
    the, cats, sleep, stop, _ = -model.token_log_probs_of_ids(ids)[0]
    ends = -model.token_log_probs_of_ids(ids, group=word_ends(TOKENIZER))[0]
    expected = [the + ends[1], cats - ends[1] + ends[2], sleep + stop - ends[2] + ends[4]]
    assert [row["surprisal_nats_bigram"] for row in scored] == close(expected, rel=1e-12)


def test_the_words_before_are_those_of_the_document(run, capsys):
    """Also across sentences, and none at the beginning of the document."""
    rows = esnlm.score_words(table(), run, baselines="bigram", previous=2, **NEEDED)
    names = ["length", "log_frequency", "surprisal_bits", "surprisal_bits_bigram"]
    assert [name for name in rows[0] if "_previous" in name] == [
        f"{name}_previous{k}" for name in names for k in (1, 2)
    ]
    for name in names:
        values = in_reading_order(rows, name)
        for k in (1, 2):
            expected = [None] * k + values[: 6 - k] + [None] * k + values[6 : 9 - k]
            assert in_reading_order(rows, f"{name}_previous{k}") == expected
    assert "no column identifies documents" not in capsys.readouterr().err
    (only,) = esnlm.score_words([{"word": "The", "s": 1}], run, sentence="s", previous=3)
    assert only["length_previous1"] is only["length_previous3"] is None
    assert "no column identifies documents (--document): the table is one" in (
        capsys.readouterr().err
    )


def test_frequencies_are_those_of_words_that_white_space_separates(run, store, capsys):
    rows = esnlm.score_words(table(), run, **NEEDED)
    frequencies = log_frequencies([form or "" for form in FORMS], store, TOKENIZER)
    assert in_reading_order(rows, "log_frequency") == frequencies
    assert "no log_frequency for 2 words: no space separates" in capsys.readouterr().err


def test_several_runs_have_columns_of_their_own(run):
    """A model that reads in windows reads fewer words before some, and has a column of its own."""
    gpt2 = small_run.small_run(small_run.GPT2, data=ImportedData())  # windows of 10 + 1 tokens
    runs = {"small": run, "GPT_2": dataclasses.replace(gpt2, directory=Path("runs/GPT-2"))}
    words = ["The", "cats", "sleep."] * 4
    rows = [{"word": word, "s": i // 3} for i, word in enumerate(words)]
    scored = esnlm.score_words(rows, [*runs.values()], context="document", sentence="s")
    for name, model in runs.items():
        alone = esnlm.score_words(rows, model, context="document", sentence="s")
        for column in ("surprisal_bits", "context_words"):
            assert [row[f"{column}_{name}"] for row in scored] == [row[column] for row in alone]
    assert [row["context_words_small"] for row in scored] == list(range(12))
    assert [row["tokens"] for row in scored] == [1, 1, 2] * 4
    # of each word, the place of its first token, and the first token of its window
    starts = [6 * sentence + i for sentence in range(4) for i in (1, 2, 3)]
    firsts = [5 * max(0, -(-(start - 10) // 5)) for start in starts]
    assert [row["context_words_GPT_2"] for row in scored] == [
        sum(first <= before < start for before in starts)
        for first, start in zip(firsts, starts, strict=True)
    ]
    assert max(firsts) > 0
    # the columns do not depend on the words: these all fit into one window
    assert scored[0].keys() == esnlm.score_words(rows[:3], [*runs.values()], sentence="s")[0].keys()
    # nor do those of another tokenizer, which has as many tokens in these
    longer = word_tokenizer([*(f"token{i}" for i in range(9)), "The", " cats", " sleep"])
    runs["GPT_2"] = dataclasses.replace(
        small_run.small_run(small_run.GPT2, longer), directory=Path("GPT_2")
    )
    runs["other"] = dataclasses.replace(gpt2, directory=Path("other"))
    (first, *_) = esnlm.score_words(rows[:3], [runs["GPT_2"], runs["other"]], sentence="s")
    assert [first[f"tokens_{name}"] for name in ("GPT_2", "other")] == [1, 1]
    assert {"context_words_GPT_2", "context_words_other"} <= first.keys()
    assert not {"tokens", "context_words"} & first.keys()


def test_runs_of_one_name_are_told_apart(run):
    one, two, three = (
        dataclasses.replace(run, directory=Path(folder), step=step)
        for folder, step in (("a/esn", 1), ("b/esn", 1), ("b/esn", 2))
    )
    rows = esnlm.score_words(table(), [one, two, three], **NEEDED)
    assert [name for name in rows[0] if name.startswith("surprisal")] == [
        "surprisal_bits_a_esn",
        "surprisal_bits_b_esn_1",
        "surprisal_bits_b_esn_2",
    ]
    rows = esnlm.score_words(table(), [two, three], **NEEDED)
    assert "surprisal_bits_esn_2" in rows[0] and "tokens" in rows[0]
    with pytest.raises(InputError, match="^a/esn: two runs would have the columns of 'esn_1': "):
        esnlm.score_words(table(), [one, one], **NEEDED)


@pytest.mark.parametrize(
    "options, line",
    [
        ({"baselines": "4gram"}, "baseline '4gram': choose unigram, bigram, trigram or 5-gram"),
        ({"previous": -1}, "previous is -1: give a number of words"),
        ({"context": "story"}, "context is 'story': choose from sentence, document"),
        ({"document": "item"}, "the table: no column 'item': choose from story, s, zone, word"),
        ({"runs": []}, "no run to score the words with: give at least one"),
    ],
)
def test_mistakes_are_named(run, options, line):
    with pytest.raises(InputError, match=f"^{line}"):
        esnlm.score_words(table(), **{"runs": run} | NEEDED | options)


@pytest.mark.parametrize("name", ["tokens", "surprisal_bits_bigram", "length_previous2"])
def test_no_column_of_the_table_is_replaced(run, name):
    rows = [row | {name: 1} for row in table()]
    with pytest.raises(InputError, match=f"column '{name}' would appear twice in the table: ren"):
        esnlm.score_words(rows, run, baselines="bigram", previous=2, **NEEDED)


def test_an_imported_run_has_no_frequencies_and_no_baselines(capsys):
    imported = small_run.small_run(data=ImportedData())
    rows = esnlm.score_words(table(), imported, **NEEDED)
    assert {row["log_frequency"] for row in rows} == {None}
    assert "no log_frequency: the run was imported" in capsys.readouterr().err
    with pytest.raises(InputError, match="^small: no baselines, as the run was imported"):
        esnlm.score_words(table(), imported, baselines="bigram", **NEEDED)


def test_a_data_frame_comes_back_with_its_index(run):
    frame = pandas.DataFrame(table(), index=[f"row {i}" for i in ORDER])
    scored = esnlm.score_words(frame, run, previous=1, **NEEDED)
    expected = pandas.DataFrame(esnlm.score_words(table(), run, previous=1, **NEEDED))
    assert list(scored.index) == list(frame.index) and list(frame.columns) == list(table()[0])
    pandas.testing.assert_frame_equal(scored.reset_index(drop=True), expected, check_dtype=False)
    assert scored["surprisal_bits"].dtype == scored["tokens"].dtype == np.float64  # NaN
    assert scored["first_in_sentence"].dtype == bool and scored["length"].dtype == np.int64
