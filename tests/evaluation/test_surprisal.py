"""Surprisals of words and tokens, against the oracle's float64 and against the log-probabilities of
sentences."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esnlm.base.errors import InputError
from esnlm.data.sources import ImportedData
from esnlm.evaluation.surprisal import word_ends
from esnlm.evaluation.words import separator_of
from tests.evaluation import small_run
from tests.evaluation.small_run import TOKENIZER, TOLERANCE, log_distributions, log_probs

TEXT = "The  cats sleep."  # The, a space, " cats", " sleep", "."
EOS = TOKENIZER.eos
SENTENCES = [TEXT, "The cat", " that run ", "Zoë 😀."]


@pytest.fixture(scope="module")
def run():
    return small_run.small_run()


@pytest.fixture(scope="module")
def document_run():
    """The same model, as if trained on whole documents."""
    return small_run.small_run(data=small_run.OF_DOCUMENTS)


def framed(text):
    return [EOS, *TOKENIZER.encode(text), EOS]


def column(rows, name):
    return [row[name] for row in rows]


def sums(rows, count, name="surprisal_nats"):
    return [math.fsum(row[name] for row in rows if row["sentence"] == i) for i in range(count)]


def test_words_have_the_sum_of_their_tokens(run):
    rows = run.surprisal([TEXT], unit="nats")
    the, space, cats, sleep, stop, eos = -log_probs(run, framed(TEXT))
    np.testing.assert_allclose(
        column(rows, "surprisal_nats"), [the, space + cats, sleep + stop, eos], rtol=TOLERANCE
    )
    assert [tuple(row.values())[:5] for row in rows] == [
        (0, 0, "The", 0, 3),
        (0, 1, "cats", 5, 9),
        (0, 2, "sleep.", 10, 16),
        (0, 3, "<|endoftext|>", 16, 16),
    ]


def test_tokens_in_bits(run):
    rows = run.surprisal([TEXT], by="token")
    assert column(rows, "token") == ["The", " ", " cats", " sleep", ".", "<|endoftext|>"]
    expected = -log_probs(run, framed(TEXT)) / math.log(2)
    np.testing.assert_allclose(column(rows, "surprisal_bits"), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("whitespace", ["leading", "trailing"])
def test_the_words_of_a_sentence_can_be_given(run, whitespace):
    """A word that was given may have white space in it: it has the sum of its words."""
    options = {"unit": "nats", "whitespace": whitespace}
    given = run.surprisal([["The", "cats sleep.", "run"], ["The", "cat"]], **options)
    the, cats, sleep, run_, end, *second = run.surprisal(
        ["The cats sleep. run", "The cat"], **options
    )
    assert column(given, "word") == [
        "The",
        "cats sleep.",
        "run",
        "<|endoftext|>",
        "The",
        "cat",
        "<|endoftext|>",
    ]
    assert given[1]["surprisal_nats"] == pytest.approx(
        cats["surprisal_nats"] + sleep["surprisal_nats"], rel=1e-12
    )
    assert (given[1]["start"], given[1]["end"], given[1]["position"]) == (
        cats["start"],
        sleep["end"],
        1,
    )
    assert [given[0], *given[2:]] == [the, run_ | {"position": 2}, end | {"position": 3}, *second]


SPACELESS = {"zh": "我们 在 家", "ja": "ねこ が 寝る 2020 。", "th": "แมว นอน", "my": "ကြောင် အိပ်"}


@pytest.mark.parametrize("language", SPACELESS)
def test_words_in_scripts_without_spaces_are_joined_without(run, capsys, language):
    words = SPACELESS[language].split()
    rows = run.surprisal([words, ["The", "cats"]], unit="nats")
    expected = -run.log_probs(["".join(words), "The cats"])
    np.testing.assert_allclose(sums(rows, 2), expected, rtol=1e-12)
    assert column(rows, "word")[: len(words)] == words
    told = (
        "the words of 1 sentence are joined without spaces, as their script has none; the separator"
        " ' ' adds spaces"
    )
    assert told in capsys.readouterr().err
    for separator in (" ", "", "_"):
        rows = run.surprisal([words], unit="nats", separator=separator)
        assert sums(rows, 1) == pytest.approx(-run.log_probs([separator.join(words)]), rel=1e-12)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words, between",
    [
        (["The", "word", "猫"], " "),
        (["WHO", "说", "的"], ""),
        (["2020", "年"], ""),
        (["2", "+", "2"], " "),
        (["나는", "집에"], " "),
    ],
)
def test_a_sentence_is_in_the_script_of_half_of_its_words(words, between):
    assert separator_of(words) == between


def test_of_words_that_share_a_token_the_first_has_the_surprisal(run):
    rows = run.surprisal([["sl", "eep", "."]], unit="nats", separator="", eos=False)
    first, last = column(run.surprisal(["sleep."], "token", "nats", eos=False), "surprisal_nats")
    assert column(rows, "surprisal_nats") == [first, None, last]
    assert [(row["start"], row["end"]) for row in rows] == [(0, 2), (2, 5), (5, 6)]


def test_white_space_can_be_paid_for_by_the_word_before(run):
    """p(word ends) is moved from the first token of the next word, or from EOS, to the word that
    ends."""
    rows = run.surprisal([TEXT], unit="nats", whitespace="trailing")
    ids = framed(TEXT)
    white = (b" ", b"\n", b"\t", b"\r", b"\x0b", b"\x0c")
    ends = np.array([i == EOS or TOKENIZER.decode_bytes([i])[:1] in white for i in range(EOS + 1)])
    ends[[0x1C, 0x1D, 0x1E, 0x1F]] = True  # white space to Python, as ids of bytes
    assert np.array_equal(word_ends(TOKENIZER), ends)
    the, space, cats, sleep, stop, eos = -log_probs(run, ids)
    moved = -np.log(np.exp(log_distributions(run, ids))[:, ends].sum(axis=1))
    expected = [
        the + moved[1],
        space + cats - moved[1] + moved[3],
        sleep + stop - moved[3] + moved[5],
        eos - moved[5],
    ]
    np.testing.assert_allclose(
        column(rows, "surprisal_nats"), expected, rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("scoring", ["paper", "lm-eval"])
@pytest.mark.parametrize(
    "options", [{}, {"by": "token"}, {"whitespace": "trailing"}, {"punctuation": "separate"}]
)
def test_rows_sum_to_the_log_probability_of_the_sentence(run, options, scoring):
    rows = run.surprisal(SENTENCES, unit="nats", scoring=scoring, **options)
    expected = -run.log_probs(SENTENCES, scoring)
    np.testing.assert_allclose(sums(rows, len(SENTENCES)), expected, rtol=1e-12)


def test_a_document_is_read_on_with_its_state(document_run):
    run = document_run
    sentences = ["The cats", "The cat", "that run"]
    one = run.surprisal(sentences, unit="nats", by="token", context="document")
    stream = [i for sentence in sentences for i in framed(sentence)]
    expected = -log_probs(run, stream)
    # BOS is given, not predicted
    begins = np.flatnonzero((np.array(stream[1:]) == EOS) & (np.array(stream[:-1]) == EOS))
    np.testing.assert_allclose(
        column(one, "surprisal_nats"), np.delete(expected, begins), rtol=TOLERANCE
    )
    two = run.surprisal(sentences, by="token", context="document", documents=["a", "b", "b"])
    first, rest = (
        run.surprisal(sentences[:1], by="token"),
        run.surprisal(sentences[1:], by="token", context="document"),
    )
    np.testing.assert_allclose(
        column(two, "surprisal_bits"), column([*first, *rest], "surprisal_bits"), rtol=1e-6
    )
    assert column(two, "sentence") == [0, 0, 0, 1, 1, 1, *[2] * (len(two) - 6)]


@pytest.mark.parametrize(
    "longest", [10, pytest.param(9, marks=pytest.mark.nightly)], ids=["even", "odd"]
)
def test_a_model_of_a_longest_length_reads_in_windows_that_slide_by_half(longest):
    run = small_run.small_run(
        dataclasses.replace(small_run.GPT2, positions=longest), data=ImportedData()
    )
    sentences = ["The cats sleep.", "The cat sleep.", "cats that run", "cats that sleep."]
    found = run.surprisal(sentences, unit="nats", by="token", context="document")
    stream = np.array([i for sentence in sentences for i in framed(sentence)], np.int32)
    step, pieces = longest // 2, []
    assert len(stream) > 2 * longest
    for t in range(1, len(stream)):
        if stream[t] == EOS == stream[t - 1]:
            continue
        # of the first window in which token t is predicted
        first = step * max(0, -(-(t - longest) // step))
        assert first == 0 or t - first > longest // 2
        pieces.append(stream[first : t + 1])
    expected = [-each[-1] for each in run.token_log_probs_of_ids(pieces)]
    np.testing.assert_allclose(column(found, "surprisal_nats"), expected, rtol=1e-5)
    options = {"unit": "nats", "context": "document", "whitespace": "trailing"}
    moved = run.surprisal(sentences, **options)
    assert sums(moved, len(sentences)) == pytest.approx(sums(found, len(sentences)), rel=1e-12)
    assert min(column(moved, "surprisal_nats")) > -TOLERANCE


@settings(max_examples=10, deadline=None)
@given(st.lists(st.text(st.sampled_from("The cats.,ë😀 \t"), max_size=12), max_size=3))
def test_any_text_has_whole_rows(run, sentences):
    for options in ({"by": "word"}, {"by": "token"}):
        rows = run.surprisal(sentences, unit="nats", **options)
        assert all(
            0 <= row["start"] <= row["end"] <= len(sentences[row["sentence"]]) for row in rows
        )
        assert all(
            sentences[row["sentence"]][row["start"] : row["end"]] == row[options["by"]]
            for row in rows
            if row["start"] < row["end"]
        )
        expected = np.where(
            [bool(text.strip()) for text in sentences], -run.log_probs(sentences), 0.0
        )
        np.testing.assert_allclose(sums(rows, len(sentences)), expected, rtol=1e-12)


def test_a_blank_text_is_no_sentence(document_run):
    """It has no log-probability and no rows, given as a text or as no words, and leaves the state
    as it is."""
    run = document_run
    texts = ["The cats", "", "that run", " \u3000\t"]
    np.testing.assert_array_equal(np.isnan(run.log_probs(texts)), [False, True, False, True])
    assert run.log_probs(texts)[[0, 2]].tolist() == run.log_probs(texts[::2]).tolist()
    assert run.likelihood(texts) == run.likelihood(texts[::2])
    with pytest.warns(UserWarning, match="each of the 2 sentences is read alone"):
        for options in ({}, {"eos": False}, {"by": "token"}, {"context": "document"}):
            expected = [
                row | {"sentence": 2 * row["sentence"]}
                for row in run.surprisal(texts[::2], **options)
            ]
            assert run.surprisal(texts, **options) == expected
        given = [["The", "cats"], [], ["that", "run"]]
        assert run.surprisal(given) == run.surprisal(["The cats", "", "that run"])
    run.surprisal(["The cats", ""])  # one sentence


@pytest.mark.parametrize(
    "sentences, line",
    [
        (
            [["The"], ["The", math.nan]],
            "sentence 1, word 1 is nan: give a text .*keep_default_na=False",
        ),
        ([["The", None]], "sentence 0, word 1 is None: "),
        ([["The", " "]], "sentence 0, word 1 is blank: leave it out"),
        (["The", math.nan], "sentence 1 is nan: give a text"),
    ],
)
def test_words_that_are_no_text_are_named(run, sentences, line):
    with pytest.raises(InputError, match=f"^{line}"):
        run.surprisal(sentences)


def test_spaces_say_where_words_are_joined(run):
    words = [["The", "cat", "'s", "run", "."], ["The", "cats", ",", "that", "run"]]
    spaces = [[True, False, True, False, True], [True, False, True, True, False]]
    rows = run.surprisal(words, unit="nats", space_after=spaces)
    np.testing.assert_allclose(
        sums(rows, 2), -run.log_probs(["The cat's run.", "The cats, that run"]), rtol=1e-12
    )
    assert [row["word"] for row in rows if row["sentence"] == 1] == [*words[1], "<|endoftext|>"]
    assert [(row["start"], row["end"]) for row in rows[:5]] == [
        (0, 3),
        (4, 7),
        (7, 9),
        (10, 13),
        (13, 14),
    ]
    assert run.surprisal(words, unit="nats", separator=" ", space_after=spaces) == rows
    with pytest.raises(InputError, match="^sentence 1 has 5 words, but 4 values in space_after"):
        run.surprisal(words, space_after=[spaces[0], spaces[1][:4]])


def test_a_space_before_a_word_that_takes_none_is_warned_of(run):
    words = [[".", "The", "cat", "n't", "run", "."], ["The", "cats"]]
    with pytest.warns(
        UserWarning,
        match=r"^\"n't\" \(sentence 0, word 3\) and 1 other word read with a space before",
    ):
        rows = run.surprisal(words, unit="nats")
    assert run.surprisal(words, unit="nats", separator=" ") == rows
    spaced = run.surprisal(words, unit="nats", space_after=[[True] * 6, [True] * 2])
    assert spaced == rows  # as the caller says, without a warning


def test_a_context_that_the_model_was_not_trained_on_is_warned_of(run, document_run):
    with pytest.warns(
        UserWarning, match="^context is document, but run small was trained on single sentences"
    ):
        rows = run.surprisal(["The cats", "that run"], context="document")
    assert rows == document_run.surprisal(["The cats", "that run"], context="document")
    with pytest.warns(
        UserWarning,
        match="^run small was trained on whole documents .* 2 sentences is read alone",
    ):
        rows = document_run.surprisal(["The cats", "that run"])
    assert rows == run.surprisal(["The cats", "that run"])
    document_run.surprisal(["The cats"])  # one sentence is read alone in any case


def test_a_surprisal_that_is_no_number_is_warned_of(run):
    params = run.model.params["readout"]
    broken = {"readout": params | {"bias": np.full_like(params["bias"], np.nan)}}
    other = type(run)(run.directory, run.config, 0, run.model.with_params(broken), run.tokenizer)
    with pytest.warns(
        UserWarning,
        match="1 of 1 sentences have a log-probability that is not a number: readout.bias",
    ):
        assert math.isnan(other.surprisal(["The cats"])[0]["surprisal_bits"])
