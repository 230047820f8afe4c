"""Raw text becomes the sentences, ids and counts that a plain loop gives, whatever the chunks and workers."""

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys

import nltk.data
import numpy as np
import pytest
from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTokenizer

from esnlm.data import prepare as prepare_module
from esnlm.data import text_files
from esnlm.data.encode import encode_in_order
from esnlm.data.inputs import find_inputs
from esnlm.data.prepare import prepare
from esnlm.data.store import open_store
from esnlm.data.tokenizer import load_tokenizer, word_tokenizer
from esnlm.errors import InputError

WORDS = ["a", "few", "little", "words", "of", "no", "great", "weight", "stand", "here", "and", "there"]


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
    return "".join(" ".join(sentence() for _ in range(rng.randint(1, 4))) + rng.choice(ends) for _ in range(lines))


def texts(store) -> list[str]:
    """The sentences of a store, without BOS and EOS."""
    tokenizer = store.tokenizer()
    for i in range(len(store)):
        assert store.sentence(i)[0] == store.sentence(i)[-1] == tokenizer.bos
    return [tokenizer.decode(store.sentence(i)[1:-1]) for i in range(len(store))]


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- what is stored ----


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_is_split_as_nltk_splits_the_whole_text(tmp_path, spelling, no_punkt_data, workers):
    text = "A Heading\n\nHere it\nbegins. And this\r\nis all of\n it! The\nend\n"
    source = write(tmp_path / "a.txt", text)
    store = prepare([source], tmp_path / "store", tokenizer=spelling, sentences="file", workers=workers)
    whole = text.replace("\r\n", "\n")
    assert texts(store) == PunktSentenceTokenizer(whole).tokenize(whole)  # learned from the same text
    assert texts(store)[0] == "A Heading\n\nHere it\nbegins."
    assert store.words.tolist() == [5, 6, 2] and store.manifest["sentence_rule"].endswith("across line ends")


def test_a_file_of_documents_is_not_split_across_them(tmp_path, spelling):
    source = write(tmp_path / "a.jsonl", '{"text": "One."}\n')
    message = "a.jsonl: holds documents, and sentences 'file' is for plain text; give 'punkt'"
    refused(tmp_path, message, tokenizer=spelling, sentences="file", inputs=[source])


def test_a_line_is_a_sentence(tmp_path, spelling):
    source = write(tmp_path / "a.txt", "\ufeffOne. Two.\r\n\n  three  \nno\nfour\r\n\t\n")
    store = prepare([source], tmp_path / "store", tokenizer=spelling, sentences="line")
    assert texts(store) == ["One. Two.", "three", "four"]
    assert store.words.tolist() == [2, 1, 1]
    assert store.bytes.tolist() == [9, 5, 4]
    assert store.manifest["dropped_short"] == 1
    assert store.manifest["sentence_rule"] == "one per line"
    assert store.manifest["versions"].keys() == {"tiktoken"}


def test_short_sentences_are_dropped_and_long_ones_cut(tmp_path, spelling):
    # With one id a byte, a sentence of n bytes has n + 2 tokens.
    lines = ["abc", "abcd", "abcde", "ab cd ef", "ab cd ef g", "ab cdé", "ab cdeé"]
    source = write(tmp_path / "a.txt", "\n".join(lines))
    store = prepare([source], tmp_path / "store", tokenizer=spelling, sentences="line", min_length=6, max_length=9)
    # Of "ab cdeé" the cut leaves the first byte of "é".
    assert texts(store) == ["abcd", "abcde", "ab cd e", "ab cd e", "ab cdé", "ab cde\ufffd"]
    assert store.lengths.tolist() == [6, 7, 9, 9, 9, 9]
    assert store.words.tolist() == [1, 1, 3, 3, 2, 2]
    assert store.bytes.tolist() == [4, 5, 7, 7, 7, 7]
    assert (store.manifest["dropped_short"], store.manifest["cut_long"]) == (1, 3)
    assert store.manifest["filters"] == {"min_length": 6, "max_length": 9, "max_words": None}


def test_real_text_is_what_nltk_and_the_tokenizer_make_of_each_line(data, dev_corpus, tmp_path, monkeypatch):
    shutil.copytree(data / "punkt_tab" / "english", tmp_path / "tokenizers" / "punkt_tab" / "english")
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
    again = prepare(inputs, tmp_path / "2", tokenizer=data / "gpt2_bpe", max_length=40, punkt_data=data, workers=2)
    assert contents(again.folder) == contents(store.folder)


def test_the_manifest_counts_and_names_its_sources(tmp_path, spelling):
    folder = tmp_path / "input"
    files = {"b.txt": "bbbb bbbb\n", "a/c.txt": "cccc\n", "a.txt": "aaaa\nab"}
    for name, text in files.items():
        write(folder / name, text)
    write(folder / ".hidden", "hidden\n")
    write(folder / ".git" / "config", "hidden\n")
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
        assert contents(prepare(inputs, tmp_path / str(workers + 1), workers=workers, **settings).folder) == contents(
            whole.folder
        )
    assert len(whole) > 100


# ---- a part of the text ----


@pytest.mark.parametrize("max_words", [1, 10, 137, 1000])
@pytest.mark.parametrize("chunk", [200, 1 << 20])
def test_max_words_takes_from_each_file_its_share(tmp_path, spelling, monkeypatch, max_words, chunk):
    monkeypatch.setattr(text_files, "CHUNK", chunk)
    inputs = [write(tmp_path / "input" / f"{i}.txt", random_text(i, lines)) for i, lines in enumerate((60, 20, 3))]
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
        store = prepare(inputs, tmp_path / f"store{workers}", max_words=max_words, workers=workers, **settings)
        assert texts(store) == expected
        assert store.manifest["dropped_short"] == dropped
        assert store.manifest["filters"]["max_words"] == max_words
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs]
        assert [source["sha256"] for source in store.manifest["sources"]] == digests


def test_training_sees_the_first_share_of_each_file_to_the_end_of_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK", 8)
    inputs = [write(tmp_path / name, text) for name, text in [("a", "1234\n" * 10), ("b", "12345678\n12345678\n")]]
    sources = find_inputs(inputs)
    for share, lines in [(0.5, [5, 1]), (0.51, [6, 2]), (1.0, [10, 2]), (0.001, [1, 1])]:
        read = "".join(
            text if text.endswith("\n") else text + "\n" for text in prepare_module._first_share(sources, share)
        )
        assert (read.count("1234\n"), read.count("12345678\n")) == tuple(lines)


# ---- trained on the input ----


def test_a_vocabulary_trained_on_the_input(tmp_path):
    source = write(tmp_path / "a.txt", random_text(0, 200))
    for out in ("1", "2"):
        store = prepare([source], tmp_path / out, tokenizer="train:300", sentences="line")
    assert store.manifest["tokenizer"]["name"] == "bpe-300"
    assert store.manifest["tokenizer"]["vocab_size"] == 300
    assert store.manifest["versions"].keys() == {"tiktoken", "tokenizers"}, "the latter chose the merges"
    assert max(store.tokens) == 299
    lines = [line.strip() for line in source.read_text("utf-8").splitlines()]
    assert set(texts(store)) <= set(lines)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_punkt_trained_on_the_input_is_said(tmp_path, spelling, no_punkt_data, monkeypatch, capfd):
    source = write(tmp_path / "a.txt", random_text(0, 200))
    store = prepare([source], tmp_path / "1", tokenizer=spelling)
    assert store.manifest["sentence_rule"] == "punkt trained on this input"
    assert store.manifest["versions"].keys() == {"tiktoken", "nltk"}
    said = capfd.readouterr().err
    assert said.startswith("warning: no pretrained Punkt data for english found")
    assert "  sentences  punkt trained on this input\n" in said
    assert f"{tmp_path}/1: {len(store)} sentences, {len(store.tokens):,} tokens with BOS and EOS" in said
    monkeypatch.setattr(prepare_module, "PUNKT_SAMPLE", 10_000)
    store = prepare([source], tmp_path / "2", tokenizer=spelling, language="german")
    assert store.manifest["sentence_rule"] == "punkt trained on this input (0.0 MB of it)"


# ---- what is refused ----


def refused(tmp_path, message: str, **settings):
    """Checks the message, and that there is no trace of a store."""
    settings = {"sentences": "line"} | settings
    with pytest.raises(InputError) as error:
        prepare(settings.pop("inputs", [tmp_path / "a.txt"]), tmp_path / "out" / "store", **settings)
    assert str(error.value).startswith(message)
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_is_no_text_far_into_it(tmp_path, spelling, monkeypatch, workers):
    monkeypatch.setattr(text_files, "CHUNK", 1000)
    text = random_text(0, 300).encode()
    good = write(tmp_path / "good.txt", random_text(1, 300))
    for wrong in (b"\xff", b"\0"):
        (tmp_path / "a.txt").write_bytes(text + b"ab" + wrong + b"\n" + text)
        message = f"{tmp_path}/a.txt: not "
        refused(tmp_path, message, tokenizer=spelling, workers=workers, inputs=[good, tmp_path / "a.txt"])
        refused(tmp_path, message, tokenizer="train:260", workers=workers)


def test_settings_that_make_no_sense(tmp_path, spelling):
    write(tmp_path / "a.txt", random_text(0, 3))
    refused(tmp_path, "sentence lengths from 6 to 5: give 3 <=", tokenizer=spelling, max_length=5)
    refused(tmp_path, "max_words 0: give at least 1", tokenizer=spelling, max_words=0)
    refused(tmp_path, "tokenizer 'train:big': give the number of ids to train, as in train:8192", tokenizer="train:big")
    refused(tmp_path, "tokenizer 'gpt9': neither 'gpt2' nor", tokenizer="gpt9")
    asked = {"tokenizer": spelling, "sentences": "punkt", "language": "klingon", "punkt_data": str(tmp_path)}
    refused(tmp_path, f"{tmp_path}: no Punkt data for language 'klingon'", **asked)


def test_a_store_that_exists_is_refused_before_any_work(tmp_path, spelling):
    source = write(tmp_path / "a.txt", random_text(0, 3))
    settings = {"tokenizer": spelling, "sentences": "line"}
    prepare([source], tmp_path / "store", **settings)
    before = contents(tmp_path / "store")
    with pytest.raises(InputError, match=f"^{tmp_path}/store: exists; "):
        prepare([tmp_path / "not there"], tmp_path / "store", **settings)
    assert contents(tmp_path / "store") == before
    other = write(tmp_path / "b.txt", "another text\n")
    assert texts(prepare([other], tmp_path / "store", overwrite=True, **settings)) == ["another text"]


# ---- killed ----

PROGRAM = """
import sys, time
from esnlm.data import prepare as module

take_words = module._take_words

def slow(*arguments):
    print("working", flush=True)
    time.sleep(60)
    return take_words(*arguments)

module._take_words = slow
if __name__ == "__main__":
    module.prepare([sys.argv[1]], sys.argv[2], tokenizer=sys.argv[3], sentences="line", workers=2)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_preparation_leaves_no_workers_and_the_next_one_cleans_up(tmp_path, spelling, how):
    source = write(tmp_path / "a.txt", random_text(0, 100))
    program = write(tmp_path / "program.py", PROGRAM)
    out = tmp_path / "out" / "store"
    process = subprocess.Popen(
        [sys.executable, program, source, out, spelling],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "working\n"
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as Ctrl-C does
    else:
        process.kill()
    process.communicate(timeout=60)  # ends when the last process of the session has closed its output
    left = os.listdir(out.parent)
    assert [name.startswith(".store.partial-") for name in left] == ([True] if how == signal.SIGKILL else [])
    prepare([source], out, tokenizer=spelling, sentences="line")
    assert os.listdir(out.parent) == ["store"]


def test_a_worker_that_dies_is_an_input_error():
    def chunks():
        for i in range(100):
            if i == 10:
                multiprocessing.active_children()[0].kill()
            yield i, "one two three four\n"

    with pytest.raises(InputError, match="^a worker process died, perhaps for want of memory: try fewer workers"):
        list(encode_in_order(chunks(), 2, None, word_tokenizer([]), 3, 99))
    assert not multiprocessing.active_children()
