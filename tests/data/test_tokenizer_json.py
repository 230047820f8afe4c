"""Byte-level BPE in Hugging Face's files: the ids that `tokenizers` gives, or a line that says what
cannot be read."""

import json
import pickle

import pytest
import tokenizers

from esnlm.data import tokenizer as tokenizer_module
from esnlm.data.encode import encode_sentences
from esnlm.data.tokenizer import load_tokenizer
from esnlm.evaluation.words import token_spans
from esnlm.interchange.huggingface.conversion import tokenizer_files

CORPUS = [
    f"The cats' {word} number {i} don't sleep, and née {word}s do!"
    for i in range(30)
    for word in ("bed", "sofa")
]
TEXTS = [
    *CORPUS[:3],
    "",
    " ",
    "  two  spaces\n\nand lines ",
    "unseen: 中文 \U0001f600 ½, NFD: ne\u0301e",
    "'s 123abc__",
    "<|endoftext|> <s>",
]


def trained(special=("<s>", "<pad>", "</s>"), prefix=False, normalizer=None):
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.normalizer = normalizer
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(special),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    return bpe


NFC, REGEX = tokenizers.normalizers.NFC(), tokenizers.Regex(r"\d| ?\p{L}+|\s+|[^\s\d\p{L}]+")
KINDS = {
    "special tokens first": {},
    "one special token": {"special": ["<|endoftext|>"]},
    "no special token": {"special": []},
    "a space before each text": {"prefix": True},
    "NFC": {"normalizer": NFC},
    "NFC and a space": {"normalizer": tokenizers.normalizers.Sequence([NFC]), "prefix": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["tokenizer.json", "vocab.json"])
def test_it_gives_the_ids_that_tokenizers_gives(kind, layout, tmp_path):
    bpe = trained(**KINDS[kind])
    if layout == "tokenizer.json":
        bpe.save(str(tmp_path / layout))
    else:
        bpe.model.save(str(tmp_path))
        bpe.normalizer = None  # which these files do not have
        settings = {"add_prefix_space": KINDS[kind].get("prefix", False)}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = load_tokenizer(tmp_path)
    named = {token: bpe.token_to_id(token) for token in ("<s>", "</s>", "<|endoftext|>")}
    size = bpe.get_vocab_size()
    end = size if named["<|endoftext|>"] is None else named["<|endoftext|>"]
    assert (ours.bos, ours.eos) == (
        (end, end) if named["<s>"] is None else (named["<s>"], named["</s>"])
    )
    assert ours.vocab_size == (size if size > ours.bos else size + 1)
    bpe.encode_special_tokens = True
    ours.save(tmp_path / "saved")
    for each in (ours, load_tokenizer(tmp_path / "saved"), pickle.loads(pickle.dumps(ours))):
        assert (each.name, each.sha256) == (ours.name, ours.sha256)
        assert [each.encode(text) for text in TEXTS] == [bpe.encode(text).ids for text in TEXTS]
        assert each.encode_batch(TEXTS) == [each.encode(text) for text in TEXTS]
    for text in TEXTS:
        assert ours.decode(ours.encode(text)) == bpe.decode(
            bpe.encode(text).ids, skip_special_tokens=False
        )
    assert ours.encode("a\ud800") == bpe.encode("a\ufffd").ids
    text = "Ne\u0301e cats sleep"
    spans = token_spans(text, ours.encode(text), ours)
    assert {start for start, _ in spans} >= {0, 4, 9} and spans[-1][1] == len(text)
    assert encode_sentences([text], ours).bytes.tolist() == [len(text.encode())]


@pytest.mark.parametrize("kind", ["special tokens first", "NFC and a space"])
def test_an_export_gives_these_ids_too(kind, tmp_path):
    trained(**KINDS[kind]).save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    files = tokenizer_files(ours, pad_is_eos=False)
    theirs = tokenizers.Tokenizer.from_str(files["tokenizer.json"])
    assert theirs.token_to_id("<|pad|>") == ours.vocab_size
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == "</s>"
    for text in TEXTS[:-1]:
        assert theirs.encode(text).ids == [ours.bos, *ours.encode(text)]


def test_what_stands_beside_the_files_counts(tmp_path):
    """The names of BOS and EOS, and for transformers' class of GPT-2 the space before each text."""
    bpe = trained(["[A]", "[B]"])
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(REGEX, "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.enable_truncation(3)
    bpe.add_tokens(["1234"])  # It is not special, so a text may have it.
    bpe.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": {"content": "[B]"}, "eos_token": "[A]"})
    )
    ours = load_tokenizer(tmp_path, vocab_size=512)
    assert (ours.bos, ours.eos, ours.vocab_size) == (1, 0, 512)
    bpe.no_truncation()
    assert ours.encode("cats 1234") == bpe.encode("cats 1234").ids
    assert ours.decode([300, 511]) == bpe.decode([300])
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert load_tokenizer(tmp_path).encode("cats") == bpe.encode(" cats").ids


def test_gpt2s_own_is_known_by_name(tmp_path, data):
    folder = data / "gpt2_bpe"
    vocabulary = json.loads((folder / "encoder.json").read_text())
    merges = (folder / "vocab.bpe").read_text().split("\n")[1:-1]
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    special = [{"id": 50256, "content": "<|endoftext|>", "special": True}]
    tree = {"model": model, "added_tokens": special, "normalizer": None}
    tree["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert (ours.name, ours.sha256) == ("gpt2", tokenizer_module.GPT2_SHA256)
