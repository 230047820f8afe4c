"""Raw text becomes the sentences, ids and counts that a plain loop gives, whatever the chunks and
workers."""

import hashlib
import multiprocessing
import os
import random
import shutil

import nltk.data
import numpy as np
import pytest
from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTokenizer

from esnlm.base.errors import InputError
from esnlm.data import inputs, text_files
from esnlm.data.encode import Encoder, encode_in_order
from esnlm.data.prepare import prepare
from esnlm.data.store import open_store
from esnlm.data.tokenizer import load_tokenizer, word_tokenizer

WORDS = [
    "a",
    "few",
    "little",
    "words",
    "of",
    "no",
    "great",
    "weight",
    "stand",
    "here",
    "and",
    "there",
]


@pytest.fixture
def spelling(tmp_path) -> str:
    """A tokenizer with one id a byte, so that lengths can be seen: BOS and EOS are 256."""
    word_tokenizer([]).save(tmp_path / "spelling")
    return str(tmp_path / "spelling")


@pytest.fixture
def no_punkt_data(monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])


def write(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def random_text(seed: int, lines: int) -> str:
    rng = random.Random(seed)

    def sentence() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 9))).capitalize() + rng.choice(".?!")

    ends = ["\n", "\n\n", "\r\n", " \n"]
    return "".join(
        " ".join(sentence() for _ in range(rng.randint(1, 4))) + rng.choice(ends)
        for _ in range(lines)
    )


def texts(store) -> list[str]:
    """The sentences of a store, without BOS and EOS."""
    tokenizer = store.tokenizer()
    for i in range(len(store)):
        assert store.sentence(i)[0] == store.sentence(i)[-1] == tokenizer.bos
    return [tokenizer.decode(store.sentence(i)[1:-1]) for i in range(len(store))]


def contents(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# ---- what is stored ----


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_is_split_as_nltk_splits_the_whole_text(tmp_path, spelling, no_punkt_data, workers):
    text = "A Heading\n\nHere it\nbegins. And this\r\nis all of\n it! The\nend\n"
    source = write(tmp_path / "a.txt", text)
    store = prepare(
        [source], tmp_path / "store", tokenizer=spelling, sentences="file", workers=workers
    )
    whole = text.replace("\r\n", "\n")
    # learned from the same text
    assert texts(store) == PunktSentenceTokenizer(whole).tokenize(whole)
    assert texts(store)[0] == "A Heading\n\nHere it\nbegins."
    assert store.words.tolist() == [5, 6, 2] and store.manifest["sentence_rule"].endswith(
        "across line ends"
    )


def test_a_line_is_a_sentence(tmp_path, spelling):
    source = write(tmp_path / "a.txt", "\ufeffOne. Two.\r\n\n  three  \nno\nfour\r\n\t\n")
    store = prepare([source], tmp_path / "store", tokenizer=spelling, sentences="line")
    assert texts(store) == ["One. Two.", "three", "four"]
    assert store.words.tolist() == [2, 1, 1]
    assert store.bytes.tolist() == [9, 5, 4]
    assert store.manifest["dropped_short"] == 1
    assert store.manifest["sentence_rule"] == "one per line"
    assert store.manifest["versions"].keys() == {"tiktoken"}


@pytest.mark.parametrize("chunk", [1, 9, 1 << 20])
def test_documents_end_at_empty_lines_and_with_a_file_or_record(
    tmp_path, spelling, monkeypatch, chunk
):
    monkeypatch.setattr(text_files, "CHUNK", chunk)
    monkeypatch.setattr(inputs, "CHUNK", chunk)
    write(tmp_path / "a.txt", "one.\ntwo.\n\n \nx\n\nthree.\n")
    write(tmp_path / "b.txt", "four.")
    write(tmp_path / "c.jsonl", '{"text": "five.\\n\\nsix."}\n{"text": "seven."}\n')
    sources = [tmp_path / name for name in ("a.txt", "b.txt", "c.jsonl")]
    store = prepare(sources, tmp_path / "store", tokenizer=spelling, sentences="line", min_length=4)
    assert texts(store) == ["one.", "two.", "three.", "four.", "five.", "six.", "seven."]
    documents = store.documents.astype(int)
    assert (np.diff(documents) > 0).tolist() == [False, True, True, True, False, True]
    assert (np.diff(documents) >= 0).all()


def test_short_sentences_are_dropped_and_long_ones_cut(tmp_path, spelling):
    # With one id a byte, a sentence of n bytes has n + 2 tokens.
    lines = ["abc", "abcd", "abcde", "ab cd ef", "ab cd ef g", "ab cdé", "ab cdeé"]
    source = write(tmp_path / "a.txt", "\n".join(lines))
    store = prepare(
        [source],
        tmp_path / "store",
        tokenizer=spelling,
        sentences="line",
        min_length=6,
        max_length=9,
    )
    # Of "ab cdeé" the cut leaves the first byte of "é".
    assert texts(store) == ["abcd", "abcde", "ab cd e", "ab cd e", "ab cdé", "ab cde\ufffd"]
    assert store.lengths.tolist() == [6, 7, 9, 9, 9, 9]
    assert store.words.tolist() == [1, 1, 3, 3, 2, 2]
    assert store.bytes.tolist() == [4, 5, 7, 7, 7, 7]
    assert (store.manifest["dropped_short"], store.manifest["cut_long"]) == (1, 3)
    assert store.manifest["filters"] == {"min_length": 6, "max_length": 9, "max_words": None}


def test_real_text_is_what_nltk_and_the_tokenizer_make_of_each_line(
    data, dev_corpus, tmp_path, monkeypatch
):
    shutil.copytree(
        data / "punkt_tab" / "english", tmp_path / "tokenizers" / "punkt_tab" / "english"
    )
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    inputs = []
    for name in ("masc.dev", "childes.dev", "wikipedia.dev"):
        text = (dev_corpus / name).read_text("utf-8")[:30_000]
        inputs.append(write(tmp_path / "input" / name, text))
    gpt2 = load_tokenizer(data / "gpt2_bpe")
    punkt = PunktTokenizer("english")

    expected, dropped, cut = [], 0, 0
    for path in inputs:
        for line in path.read_text("utf-8").splitlines():
            for sentence in punkt.tokenize(line.strip()):
                ids = gpt2.encode(sentence)
                dropped += len(ids) + 2 < 6
                cut += len(ids) + 2 > 40
                if len(ids) + 2 >= 6:
                    expected.append([50256, *ids[:38], 50256])

    store = prepare(inputs, tmp_path / "store", tokenizer=data / "gpt2_bpe", max_length=40)
    assert [store.sentence(i).tolist() for i in range(len(store))] == expected
    assert (store.manifest["dropped_short"], store.manifest["cut_long"]) == (dropped, cut)
    assert store.manifest["sentence_rule"] == "punkt pretrained english"
    assert store.tokens.dtype == np.uint16


def test_the_manifest_counts_and_names_its_sources(tmp_path, spelling):
    folder = tmp_path / "input"
    files = {"b.txt": "bbbb bbbb\n", "a/c.txt": "cccc\n", "a.txt": "aaaa\nab"}
    for name, text in files.items():
        write(folder / name, text)
    write(folder / ".hidden", "hidden\n")
    alone = write(tmp_path / "elsewhere" / "z.txt", "zzzz\n")
    store = prepare([alone, folder], tmp_path / "store", tokenizer=spelling, sentences="line")
    assert texts(store) == ["zzzz", "cccc", "aaaa", "bbbb bbbb"]
    in_order = {"z.txt": "zzzz\n"} | {name: files[name] for name in ("a/c.txt", "a.txt", "b.txt")}
    assert store.manifest["sources"] == [
        {"name": name, "bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for name, text in in_order.items()
    ]
    counts = {"sentences": 4, "tokens": 29, "words": 5, "bytes": 21, "predicted_tokens": 25}
    assert store.manifest["counts"] == counts
    assert str(tmp_path) not in (store.folder / "manifest.json").read_text("utf-8")
    assert open_store(store.folder).tokenizer().name == "words"


def test_chunks_and_workers_change_nothing(tmp_path, spelling, monkeypatch):
    inputs = [write(tmp_path / "input" / f"{i}.txt", random_text(i, 60)) for i in range(3)]
    settings = {"tokenizer": spelling, "sentences": "line", "max_length": 60}
    whole = prepare(inputs, tmp_path / "1", **settings)
    monkeypatch.setattr(text_files, "CHUNK", 500)
    for workers in (1, 3):
        store = prepare(inputs, tmp_path / f"{workers} workers", workers=workers, **settings)
        assert contents(store.folder) == contents(whole.folder)
    assert len(whole) > 100


# ---- a part of the text ----


@pytest.mark.parametrize(
    ("max_words", "chunk"), [(1, 200), (137, 200), (137, 1 << 20), (1000, 200)]
)
def test_max_words_takes_from_each_file_its_share(
    tmp_path, spelling, monkeypatch, max_words, chunk
):
    monkeypatch.setattr(text_files, "CHUNK", chunk)
    inputs = [
        write(tmp_path / "input" / f"{i}.txt", random_text(i, lines))
        for i, lines in enumerate((60, 20, 3))
    ]
    settings = {"tokenizer": spelling, "sentences": "line", "min_length": 20}

    sizes = [len(path.read_text("utf-8").split()) for path in inputs]
    ends = [max_words * sum(sizes[: i + 1]) // sum(sizes) for i in range(3)]
    expected, dropped = [], 0
    for path, share in zip(inputs, np.diff([0, *ends]), strict=False):
        for line in path.read_text("utf-8").splitlines():
            if share <= 0:
                break
            sentence = line.strip()
            if len(sentence) + 2 >= 20:
                expected.append(sentence)
                share -= len(sentence.split())
            elif sentence:
                dropped += 1

    for workers in (1, 2) if max_words == 137 else (1,):
        store = prepare(
            inputs, tmp_path / f"store{workers}", max_words=max_words, workers=workers, **settings
        )
        assert texts(store) == expected
        assert store.manifest["dropped_short"] == dropped
        assert store.manifest["filters"]["max_words"] == max_words
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs]
        assert [source["sha256"] for source in store.manifest["sources"]] == digests


# ---- what is refused ----


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_is_no_text_far_into_it(tmp_path, spelling, monkeypatch, workers):
    monkeypatch.setattr(text_files, "CHUNK", 1000)
    text = random_text(0, 300).encode()
    good = write(tmp_path / "good.txt", random_text(1, 300))
    (tmp_path / "a.txt").write_bytes(text + b"ab\xff\n" + text)
    for paths, tokenizer in (
        ([good, tmp_path / "a.txt"], spelling),
        ([tmp_path / "a.txt"], "train:260"),
    ):
        with pytest.raises(InputError, match=f"^{tmp_path}/a.txt: not "):
            prepare(
                paths,
                tmp_path / "out" / "store",
                tokenizer=tokenizer,
                sentences="line",
                workers=workers,
            )
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


def test_a_worker_that_dies_is_an_input_error():
    def chunks():
        for i in range(100):
            if i == 10:
                multiprocessing.active_children()[0].kill()
            yield i, "one two three four\n"

    with pytest.raises(
        InputError, match="^a worker process died, perhaps out of memory: try fewer workers"
    ):
        list(encode_in_order(chunks(), 2, Encoder(word_tokenizer([]))))
    assert not multiprocessing.active_children()
