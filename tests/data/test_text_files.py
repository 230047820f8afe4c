"""Lines are read as they stand in the file, however it is packed."""

import bz2
import gzip
import importlib
import json
import lzma
import os
import random
import re
import sys
import threading
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from esnlm.base.errors import InputError
from esnlm.data import text_files
from esnlm.data.inputs import open_file
from esnlm.data.text_files import Oddities, read_chunks, read_lines


def write(path, data: bytes):
    path.write_bytes(data)
    return path


def chunks(path, **options):
    return list(open_file(path, **options).chunks())


def refused(path):
    """Returns the line with which a file is refused, without its path."""
    with pytest.raises(InputError) as error:
        chunks(path)
    return str(error.value).removeprefix(str(path))


def test_line_ends_and_byte_order_mark(tmp_path):
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\rthree\n\nfive\r")
    assert "".join(read_chunks(path)) == "one\ntwo\nthree\n\nfive\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_chunks_end_at_lines_and_lose_nothing(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text_files, "CHUNK", size)
    rng = random.Random(size)
    for _ in range(100):
        text = "".join(
            rng.choice(["a", "é", "中", " ", "\n", "\r\n", "\r", "\ufeff"])
            for _ in range(rng.randint(0, 30))
        )
        path = write(tmp_path / "a.txt", text.encode())
        pieces = list(read_chunks(path))
        assert "".join(pieces) == text.replace("\r\n", "\n").replace("\r", "\n").removeprefix(
            "\ufeff"
        )
        assert all(piece.endswith("\n") for piece in pieces[:-1])


@pytest.mark.parametrize(
    "data", [b"one\r\ntwo\rthr\xe9e\n", b"\xff\xfeo\x00n\x00", b"one\ntw\xc3", b"on\x00e\n"]
)
def test_what_is_no_text_is_refused(tmp_path, data):
    assert refused(write(tmp_path / "a.txt", data)).startswith(": not ")
    assert refused(write(tmp_path / "a.txt.gz", gzip.compress(data))).startswith(": not ")
    assert "No such file" in refused(tmp_path / "none.txt")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_called_so(tmp_path, encoding):
    path = write(tmp_path / "a.txt", "\ufeffThe cats sleep.\r\nA dog barks.\r\n".encode(encoding))
    assert refused(path) == ": not UTF-8 but UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"


def test_read_lines_keeps_the_numbering(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", b"one\n\n two \r\nthree")
    assert read_lines(path) == ["one", "", "two", "three"]
    assert read_lines(write(tmp_path / "b.txt", b"")) == []
    with open(path) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert read_lines(Path("-")) == ["one", "", "two", "three"]


def test_read_lines_rejects_files_that_do_not_hold_one_sentence_per_line(tmp_path):
    content = b"text,words\nThe cats sleep.,3\n"
    for name in ("a.csv", "a.tsv.gz", "a.jsonl"):
        with pytest.raises(
            InputError, match=f"{name}: holds records; give plain text with one sentence per line$"
        ):
            read_lines(write(tmp_path / name, content))
    with pytest.raises(InputError, match="a.html: not plain text; "):
        read_lines(write(tmp_path / "a.html", content))


def test_a_fifo_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(target=(tmp_path / "fifo").write_text, args=["one\ntwo\n"])
    writer.start()
    assert read_lines(tmp_path / "fifo") == ["one", "two"]
    writer.join()


# ---- compressed text ----

TEXT = "".join(f"Line {i} of a text.\r\n" for i in range(3000)).encode()
PACKED = ["a.txt.gz", "a.bz2", "a.txt.XZ", "a.txt.zst"]


def compress(name, data):
    if name.endswith(".zst"):
        module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        return importlib.import_module(module).compress(data)
    return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[
        name.rsplit(".", 1)[1].lower()
    ](data)


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_text_reads_as_the_text(tmp_path, name):
    # as `cat a.gz b.gz` makes it
    data = compress(name, TEXT) + compress(name, b"The second part.\n")
    text = "".join(read_chunks(write(tmp_path / name, data)))
    assert text.encode() == TEXT.replace(b"\r\n", b"\n") + b"The second part.\n"


@pytest.mark.parametrize("name", PACKED)
def test_a_damaged_compressed_text_is_refused(tmp_path, name):
    data = compress(name, random.Random(0).randbytes(4000).hex().encode())
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    contents = [data[: len(data) // 2], b"This is a plain text, and nobody compressed it.\n"]
    if not name.endswith(".zst"):  # whose sums are written on demand only
        contents.append(bytes(flipped))
    for content in contents:
        line = refused(write(tmp_path / name, content))
        assert line.startswith(": damaged, or not the format of its name (")


# ---- records ----

ADVICE = "records need their text in the field 'text'"


def test_the_documents_of_json_lines_are_kept_apart(tmp_path):
    records = [{"text": "One.\nTwo."}, {"id": 7, "text": "Thr\u00e9e \u4e2d."}]
    path = write(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, records)).encode())
    assert "".join(chunks(path)) == "One.\nTwo.\n\nThrée 中.\n\n"
    packed = write(tmp_path / "a.jsonl.gz", gzip.compress(path.read_bytes()))
    assert chunks(packed) == chunks(path)
    other = write(tmp_path / "b.ndjson", b'{"story": "Four."}\r\n')
    assert "".join(chunks(other, field="story")) == "Four.\n\n"
    assert refused(other) == f":1: no field 'text', only story; {ADVICE}"


def test_parquet(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["One.\nTwo.", "Three."], "id": [1, 2]}), path)
    assert chunks(path) == ["One.\nTwo.\n\nThree.\n\n"]
    advice = "records need their text in the field 'body'"
    with pytest.raises(InputError, match=f"^{path}: no field 'body', only text, id; {advice}$"):
        chunks(path, field="body")
    line = refused(write(tmp_path / "b.parquet", path.read_bytes()[:-10]))
    assert re.match(r": damaged, or not a Parquet file \(.*\); copy it again", line)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refused(path) == ": reading Parquet needs pyarrow: pip install 'esnlm[parquet]'"


@pytest.mark.parametrize("row_group_size", [700, 5000])
def test_a_null_in_parquet_has_its_row_named_in_any_batch_and_row_group(tmp_path, row_group_size):
    texts = ["One."] * 1499 + [None] + ["Three."] * 500
    parquet.write_table(
        pyarrow.table({"text": texts}), tmp_path / "a.parquet", row_group_size=row_group_size
    )
    assert refused(tmp_path / "a.parquet") == f": row 1500: no text; {ADVICE}"


def test_a_table_is_read_by_its_column_text_and_no_option_is_named_that_its_command_lacks(tmp_path):
    table = write(tmp_path / "a.csv", b"id,text\n1,One.\n2,Two.\n")
    assert "".join(chunks(table)) == "One.\n\nTwo.\n\n"
    assert refused(write(table, b"id,text\n1,One.\n2,\n")) == f":3: no text; {ADVICE}"
    assert (
        refused(write(table, b"id,story\n1,One.\n"))
        == f": no field 'text', only id, story; {ADVICE}"
    )
    assert "--" not in ADVICE


# ---- oddities ----


def noted(text: str) -> Oddities:
    oddities = Oddities()
    oddities.note(text, "a.txt")
    return oddities


def test_an_invisible_character_is_warned_of(capsys):
    noted("\ufeffThe end, and one \u200bmore.").warn()
    assert "such as U+FEFF" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (
            "The end.\n<|endoftext|>\nOnce <|endoftext|> more.\n  [SEP]\n</s>\n",
            {"<|endoftext|>": 2, "[SEP]": 1, "</s>": 1},
        ),
        ("\t</s> \u2003\n </s>x\n</s>", {"</s>": 2}),
        ("He writes </s> here.", {}),
        ("[SEP] is a token.", {}),
        ("a <| b |> c <b> [Laughs]", {}),
    ],
)
def test_marks_are_counted_where_they_are_no_text(text, marks):
    assert {mark: count for (_, mark), count in noted(text).marks.items()} == marks
