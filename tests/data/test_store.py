"""A token store comes back as it was written, or is refused by the name of the file that is
wrong."""

import hashlib
import json
import os

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.data.store import StoreWriter, open_store
from esnlm.data.tokenizer import WORD_PATTERN, TiktokenTokenizer, word_tokenizer

TOKENIZER = word_tokenizer(["the", " cat", " dog", " sleeps"])
EOS = TOKENIZER.eos  # 260
SENTENCES = [[EOS, 256, 257, 259, 46, EOS], [EOS, 97, EOS], [EOS, 256, 258, EOS]]
WORDS, BYTES = [3, 1, 2], [15, 1, 7]
DOCUMENTS = [0, 4, 4]
FILES = ["tokens.bin", "offsets.npy", "words.npy", "bytes.npy", "documents.npy"]


def write_store(folder, tokenizer=TOKENIZER, overwrite=False, **manifest):
    with StoreWriter(folder, tokenizer, overwrite=overwrite) as writer:
        writer.append(np.concatenate(SENTENCES[:2]), [6, 3], WORDS[:2], BYTES[:2], DOCUMENTS[:2])
        writer.append(SENTENCES[2], [4], WORDS[2:], BYTES[2:], DOCUMENTS[2:])
        return writer.finish(**manifest)


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_store_holds_what_was_written(tmp_path):
    written = write_store(tmp_path / "store", sources=["a.txt"])
    for store in (
        written,
        open_store(tmp_path / "store"),
        open_store(str(tmp_path / "store"), verify=False),
    ):
        assert len(store) == 3
        assert [store.sentence(i).tolist() for i in range(3)] == SENTENCES
        assert store.sentence(-1).dtype == np.int32
        assert store.tokens.tolist() == sum(SENTENCES, [])
        assert store.offsets.tolist() == [0, 6, 9, 13]
        assert store.lengths.tolist() == [6, 3, 4]
        assert store.words.tolist() == WORDS
        assert store.bytes.tolist() == BYTES
        with pytest.raises(IndexError):
            store.sentence(3)
        with pytest.raises(ValueError, match="read-only"):
            store.tokens[0] = 1


def test_the_files_are_laid_out_as_documented(tmp_path):
    folder = write_store(tmp_path / "store", sources=["a.txt"]).folder
    assert np.fromfile(folder / "tokens.bin", "<u2").tolist() == sum(SENTENCES, [])
    for name, dtype, values in [
        ("offsets.npy", np.int64, [0, 6, 9, 13]),
        ("words.npy", np.uint32, WORDS),
        ("bytes.npy", np.uint32, BYTES),
        ("documents.npy", np.uint32, DOCUMENTS),
    ]:
        array = np.load(folder / name)
        assert array.dtype == dtype
        assert array.tolist() == values
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    hash_of_itself = manifest["sha256"].pop("manifest.json")
    assert manifest == {
        "format": "esnlm token store",
        "version": 2,
        "tokenizer": {
            "name": "words",
            "vocab_size": 261,
            "bos": 260,
            "eos": 260,
            "sha256": TOKENIZER.sha256,
        },
        "counts": {"sentences": 3, "tokens": 13, "words": 6, "bytes": 23, "predicted_tokens": 10},
        "sources": ["a.txt"],
        "sha256": {name: digest(folder / name) for name in FILES},
    }
    assert (
        hash_of_itself == hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    )


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_535, np.uint16), (65_536, np.uint32)])
def test_ids_take_four_bytes_above_65535_of_them(tmp_path, vocab_size, dtype):
    ranks = {bytes([i]): i for i in range(256)} | {
        b"%06d" % i: i for i in range(256, vocab_size - 1)
    }
    tokenizer = TiktokenTokenizer("large", WORD_PATTERN, ranks)
    with StoreWriter(tmp_path / "store", tokenizer) as writer:
        writer.append([tokenizer.bos, 65_533, tokenizer.eos], [3], [1], [6], [0])
        store = writer.finish()
    assert store.tokens.dtype == dtype
    assert store.sentence(0).tolist() == [vocab_size - 1, 65_533, vocab_size - 1]
    assert (store.folder / "tokens.bin").stat().st_size == 3 * np.dtype(dtype).itemsize


# ---- the tokenizer in it ----


def test_another_tokenizer_is_refused(tmp_path):
    store = write_store(tmp_path / "store")
    other = word_tokenizer(["a"])
    with pytest.raises(InputError, match=f"^store {tmp_path}/store was made with tokenizer words"):
        store.check_tokenizer(other)
    other.save(store.folder / "tokenizer")
    with pytest.raises(InputError, match=f"^store {tmp_path}/store was made with tokenizer words"):
        store.tokenizer()


# ---- damage ----


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["a bit", "its end", "all of it"])
def test_a_damaged_file_is_refused_by_name(tmp_path, name, damage):
    path = write_store(tmp_path / "store").folder / name
    whole = path.read_bytes()
    if damage == "all of it":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) * (damage == "a bit"))
    for verify in (True,) if damage == "a bit" else (True, False):
        with pytest.raises(InputError, match=f"^{path}: "):
            open_store(tmp_path / "store", verify=verify)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"words": 6', '"words": 7'),
        lambda text: text[:-20],
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path, damage):
    path = write_store(tmp_path / "store").folder / "manifest.json"
    text = path.read_text("utf-8")
    path.write_text(damage(text), "utf-8")
    assert damage(text) != text
    with pytest.raises(InputError, match=f"^{path}: not the manifest of a token store"):
        open_store(tmp_path / "store")


# ---- what is there is not lost, and nothing half-written stays ----


def test_an_existing_store_is_replaced_only_when_asked(tmp_path):
    write_store(tmp_path / "store", made="first")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=f"^{tmp_path}/store: exists; name another folder"):
        write_store(tmp_path / "store")
    assert contents(tmp_path) == before
    assert (
        write_store(tmp_path / "store", overwrite=True, made="second").manifest["made"] == "second"
    )
    assert open_store(tmp_path / "store").manifest["made"] == "second"
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "name", ["thesis/chapter1.tex", "store/config.yaml", "store/checkpoints/20/metadata.json"]
)
def test_what_is_no_store_or_has_other_files_beside_it_is_never_replaced(tmp_path, name, overwrite):
    write_store(tmp_path / "store")
    other = tmp_path / name
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("important")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="holds other files than a token store"):
        write_store(tmp_path / name.partition("/")[0], overwrite=overwrite)
    assert contents(tmp_path) == before


def test_an_exception_leaves_nothing_and_keeps_the_former_store(tmp_path):
    write_store(tmp_path / "store", made="first")
    before = contents(tmp_path)
    with (
        pytest.raises(KeyboardInterrupt),
        StoreWriter(tmp_path / "store", TOKENIZER, overwrite=True) as writer,
    ):
        writer.append(SENTENCES[0], [6], [3], [15], [0])
        raise KeyboardInterrupt
    assert contents(tmp_path) == before
    with (
        pytest.raises(InputError, match="/new: no sentence to store"),
        StoreWriter(tmp_path / "new", TOKENIZER) as writer,
    ):
        writer.finish()
    assert contents(tmp_path) == before
