"""Tokenizers give the ids they should, and come back from disk as they were or not at all."""

import json
import random

import pytest
import tiktoken.load
import tokenizers

from esnlm.base.errors import InputError
from esnlm.data import tokenizer as tokenizer_module
from esnlm.data.tokenizer import Tokenizer, load_tokenizer, train_bpe, word_tokenizer

TEXT = [
    "The cats sleep. The cat's asleep, isn't it? 1234 cats!",
    "  A  dog barks;\n\tthe dogs bark. ",
    "déjà vu, 中文",
] * 9

CHARACTERS = [
    *"aabbccdeettthhoosAT  0129.,!?'-\"\n\t\x1c\x85\u3000éß中🙂",
    "  ",
    "'s",
    "'ll",
    " the",
]


def random_texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(CHARACTERS, k=rng.randint(0, 40))) for _ in range(count)]


@pytest.fixture(scope="module")
def gpt2(data) -> Tokenizer:
    return load_tokenizer(data / "gpt2_bpe")


def test_gpt2_ids_are_those_of_another_implementation(gpt2, data):
    files = data / "gpt2_bpe"
    merges = [
        tuple(line.split()) for line in (files / "vocab.bpe").read_text("utf-8").splitlines()[1:]
    ]
    other = tokenizers.Tokenizer(
        tokenizers.models.BPE(json.loads((files / "encoder.json").read_text("utf-8")), merges)
    )
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True
    )
    for text in random_texts(1000) + TEXT:
        assert gpt2.encode(text) == other.encode(text).ids, repr(text)


def test_gpt2_of_the_network_is_gpt2_of_the_files(gpt2, data, monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    served = {"vocab.bpe": 0, "encoder.json": 0}

    def read_file(address: str) -> bytes:
        assert address.startswith("https://")
        name = address.rsplit("/", 1)[1]
        served[name] += 1
        return (data / "gpt2_bpe" / name).read_bytes()

    monkeypatch.setattr(tiktoken.load, "read_file", read_file)
    for _ in range(2):
        downloaded = load_tokenizer("gpt2")
        assert (downloaded.name, downloaded.sha256) == ("gpt2", gpt2.sha256)
    assert served == {"vocab.bpe": 1, "encoder.json": 1}


def test_endoftext_in_text_is_text(gpt2):
    for tokenizer in (gpt2, train_bpe(TEXT, 300), word_tokenizer(["the"])):
        ids = tokenizer.encode("a<|endoftext|>b")
        assert tokenizer.eos not in ids
        assert tokenizer.decode(ids) == "a<|endoftext|>b"
        assert tokenizer.decode([tokenizer.bos]) == "<|endoftext|>"


def test_every_text_comes_back(gpt2):
    for tokenizer in (gpt2, train_bpe(TEXT, 300), word_tokenizer(["the", " the", " cat"])):
        for text in random_texts(500, seed=1):
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == text
            assert tokenizer.decode_bytes(ids) == text.encode()
            assert all(0 <= i < tokenizer.bos for i in ids)


# ---- saving and loading ----


def test_a_saved_tokenizer_is_the_same(gpt2, tmp_path):
    for tokenizer in (gpt2, train_bpe(TEXT, 300), word_tokenizer(["the", " the"])):
        folder = tmp_path / tokenizer.name
        tokenizer.save(folder)
        loaded = load_tokenizer(folder)
        assert (loaded.name, loaded.sha256) == (tokenizer.name, tokenizer.sha256)
        assert (loaded.vocab_size, loaded.bos, loaded.eos) == (
            tokenizer.vocab_size,
            tokenizer.bos,
            tokenizer.eos,
        )
        assert [loaded.encode(text) for text in TEXT] == [tokenizer.encode(text) for text in TEXT]
        assert sorted(path.name for path in folder.iterdir()) == [
            "ranks.tiktoken",
            "tokenizer.json",
        ]


def test_a_word_that_is_not_in_the_list_is_spelled_with_bytes_and_the_words_in_it():
    assert word_tokenizer([" a", " an", "is"]).encode(" analysis") == [257, *b"alys", 258]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("ranks.tiktoken", lambda data: data[:-30]),
        ("ranks.tiktoken", lambda data: data.replace(b" 256\n", b" 257\n")),
        ("tokenizer.json", lambda data: data[:-30]),
        ("tokenizer.json", lambda data: data.replace(b'"pattern": "', b'"pattern": "b|')),
    ],
)
def test_a_damaged_tokenizer_is_refused(tmp_path, name, damage):
    word_tokenizer(["the", "cat"]).save(tmp_path)
    before = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(damage(before))
    assert (tmp_path / name).read_bytes() != before
    with pytest.raises(
        InputError, match=f"^{tmp_path}: tokenizer.json and ranks.tiktoken are damaged"
    ):
        load_tokenizer(tmp_path)


# ---- files in GPT-2's format ----


def write_gpt2_files(folder, merges: list[str]) -> None:
    characters = sorted(tokenizer_module.byte_of_character(), key=lambda c: (ord(c) >= 256, ord(c)))
    tokens = characters + [merge.replace(" ", "") for merge in merges]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")
    encoder = {token: i for i, token in enumerate(tokens)} | {"<|endoftext|>": len(tokens)}
    (folder / "encoder.json").write_text(json.dumps(encoder), "utf-8")


def test_other_files_in_that_format_are_named_by_their_hash(tmp_path):
    write_gpt2_files(tmp_path, ["t h", "th e"])
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.name == f"bpe-259-{tokenizer.sha256[:8]}"
    assert tokenizer.encode("the") == [257]


def test_damaged_gpt2_files_are_refused(tmp_path):
    write_gpt2_files(tmp_path, ["t h", "th e"])
    encoder, merges = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    merges.write_text(merges.read_text("utf-8").replace("th e", "th a"), "utf-8")
    with pytest.raises(
        InputError,
        match=f"^{encoder}: the library tokenizers cannot read it .Token `tha` out of voc",
    ):
        load_tokenizer(tmp_path)


# ---- training ----


def test_a_trained_bpe_gives_the_ids_of_the_library_that_trained_it():
    texts = random_texts(300, seed=2) + TEXT
    ours = train_bpe(texts, 500)
    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True
    )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=499, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    other.train_from_iterator(texts, trainer)
    byte_of = tokenizer_module.byte_of_character()
    for text in random_texts(1000, seed=3) + TEXT:
        tokens = [bytes(byte_of[c] for c in token) for token in other.encode(text).tokens]
        assert [ours.decode_bytes([i]) for i in ours.encode(text)] == tokens, repr(text)


# ---- words ----


def test_each_word_is_one_token():
    words = ["the", " the", " cat", " cats", "n't", " well-fed", " doesn't", " sleep"]
    tokenizer = word_tokenizer(words)
    assert tokenizer.vocab_size == 256 + len(words) + 1
    assert tokenizer.bos == tokenizer.eos == tokenizer.vocab_size - 1
    assert tokenizer.name == "words"
    assert tokenizer.encode("the well-fed cats doesn't sleep.") == [
        256,
        261,
        259,
        262,
        263,
        ord("."),
    ]
    assert tokenizer.encode("dog") == list(b"dog")
