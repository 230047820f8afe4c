"""Lines are read as they stand in the file, however it is packed."""

import bz2
import gzip
import json
import lzma
import random
import re
import sys

import pytest

from esnlm.data import text_files
from esnlm.data.text_files import read_chunks, read_lines, split_lines
from esnlm.errors import InputError


def write(path, data: bytes):
    path.write_bytes(data)
    return path


def refused(path, **options):
    """Returns the line with which a file is refused, without its path."""
    with pytest.raises(InputError) as error:
        list(read_chunks(path, **options))
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(str(path))


# ---- plain text ----


def test_lines_have_no_space_around_them_and_none_is_blank():
    assert split_lines("  one \n\n\t\ntwo two\u3000\n") == ["one", "two two"]


def test_line_ends_and_byte_order_mark(tmp_path):
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\rthree\n\nfive\r")
    assert "".join(read_chunks(path)) == "one\ntwo\nthree\n\nfive\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_chunks_end_at_lines_and_lose_nothing(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text_files, "CHUNK", size)
    rng = random.Random(size)
    for _ in range(100):
        text = "".join(
            rng.choice(["a", "é", "中", " ", "\n", "\r\n", "\r", "\ufeff"]) for _ in range(rng.randint(0, 30))
        )
        path = write(tmp_path / "a.txt", text.encode())
        seen = []
        chunks = list(read_chunks(path, seen.append))
        assert "".join(chunks) == text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        assert all(chunk.endswith("\n") for chunk in chunks[:-1])
        assert b"".join(seen) == text.encode()


@pytest.mark.parametrize("size", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"one\r\ntwo\rthr\xe9e\n", "3: not UTF-8: 0xe9 at byte 12; give plain text in UTF-8"),
        (b"\xff\xfeo\x00n\x00", "1: not a text file: 0x00 at byte 3; give plain text in UTF-8"),
        (b"one\n\ntwo\x00", "3: not a text file: 0x00 at byte 8; give plain text in UTF-8"),
        (b"one\ntw\xc3", "2: not UTF-8: 0xc3 at byte 6; give plain text in UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_with_line_and_byte(tmp_path, monkeypatch, size, data, message):
    monkeypatch.setattr(text_files, "CHUNK", size)
    path = write(tmp_path / "a.txt", data)
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}:{message}')}$"):
        list(read_chunks(path))


def test_a_line_that_does_not_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 2 << 20)
    path = write(tmp_path / "a.txt", b"one\n" + b"x" * (4 << 20))
    message = f"{path}:2: longer than 2 MB; put one paragraph or one sentence on a line"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        list(read_chunks(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "none.txt"
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: cannot be read: No such file or directory$"):
        next(read_chunks(path))


def test_read_lines_keeps_the_numbering(tmp_path):
    path = write(tmp_path / "a.txt", b"one\n\n two \r\nthree")
    assert read_lines(path) == ["one", "", "two", "three"]
    assert read_lines(write(tmp_path / "b.txt", b"")) == []
    assert read_lines(write(tmp_path / "c.txt", b"one\n")) == ["one"]


@pytest.mark.parametrize("name", ["a.json", "a.txt"])
def test_json_is_no_list_of_sentences(tmp_path, name):
    file = write(tmp_path / name, b'{"text": "The cats sleep."}\n{"text": "A dog barks."}\n')
    with pytest.raises(InputError, match=f"{name}: JSON, whose keys would be read as words; write a sentence a line"):
        read_lines(file)


def test_lines_of_a_table_are_warned_of(tmp_path, capsys):
    assert read_lines(write(tmp_path / "a.tsv", b"item\tsentence\n1\tThe cats sleep.\n"))[0] == "item\tsentence"
    assert capsys.readouterr().err.startswith(
        f"warning: {tmp_path / 'a.tsv'}: each line is read as a sentence, with all marks and"
    )


def test_marks_and_decomposed_letters_are_warned_of(tmp_path, capsys):
    file = write(tmp_path / "a.txt", "Ka\u0308the schla\u0308ft.\n<|endoftext|>\n".encode())
    read_lines(file)
    marks, form = capsys.readouterr().err.splitlines()
    assert marks.endswith("it is read as any other characters, and ends no document; leave it out where it is no text")
    assert form.startswith(f"warning: {file}: not in Unicode's form NFC")


def test_documents_are_no_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "The cats sleep."}\n')
    with pytest.raises(
        InputError, match=r"a.jsonl: holds documents, and lines of plain text are read here; write a sentence"
    ):
        read_lines(tmp_path / "a.jsonl")


def test_read_lines_of_standard_input(tmp_path, monkeypatch):
    with open(write(tmp_path / "a.txt", b"one\ntwo\n")) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert read_lines(None) == ["one", "two"]


# ---- compressed text ----

TEXT = "".join(f"Line {i} of a text.\r\n" for i in range(3000)).encode()


def compress(name, data):
    if name.endswith(".zst"):
        return pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd").compress(
            data
        )
    return {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}["." + name.rsplit(".", 1)[1]](data)


PACKED = ["a.txt.gz", "a.bz2", "a.txt.xz", "a.txt.zst"]


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_text_reads_as_the_text_and_shows_its_own_bytes(tmp_path, name):
    data = compress(name, TEXT) + compress(name, b"The second part.\n")  # as `cat a.gz b.gz` makes it
    seen = []
    assert "".join(read_chunks(write(tmp_path / name, data), seen.append)).encode() == (
        TEXT.replace(b"\r\n", b"\n") + b"The second part.\n"
    )
    assert b"".join(seen) == data


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_text_that_ends_early_is_refused(tmp_path, name):
    data = compress(name, random.Random(0).randbytes(1000).hex().encode())
    line = refused(write(tmp_path / name, data[: len(data) // 2]))
    assert line == ": ends early, in the midst of the compressed text; copy it again"


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_text_that_is_none_is_refused(tmp_path, name):
    compress(name, b"")  # skips where the format is not at hand
    line = refused(write(tmp_path / name, b"This is a plain text, and nobody compressed it.\n"))
    assert line.startswith(": damaged, or not what its name says (") and line.endswith("); copy it again")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((name, "beginning of the second part") for name in PACKED),
        *((name, "middle") for name in PACKED if not name.endswith(".zst")),  # whose sums are written on demand only
    ],
)
def test_a_flipped_byte_is_noticed(tmp_path, name, part):
    """Also where a second part begins: Python's own readers of .bz2 and .xz take that for the end."""
    first = compress(name, TEXT)
    data = bytearray(first + compress(name, TEXT))
    data[len(first) // 2 if part == "middle" else len(first)] ^= 0xFF
    assert refused(write(tmp_path / name, bytes(data))).startswith(": damaged, or not what its name says (")


@pytest.mark.parametrize("name", ["a.xz", "a.bz2", "a.gz"])
def test_zeros_may_stand_behind_a_stream(tmp_path, name):
    data = compress(name, b"one\n") + bytes(8) + compress(name, b"two\n") + bytes(1 << 21)
    assert "".join(read_chunks(write(tmp_path / name, data))) == "one\ntwo\n"


# ---- records ----


def test_the_documents_of_json_lines_are_kept_apart(tmp_path):
    records = [{"text": "One.\nTwo."}, {"id": 7, "text": "Thr\u00e9e \u4e2d."}]
    path = write(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, records)).encode())
    assert "".join(read_chunks(path)) == "One.\nTwo.\n\nThrée 中.\n\n"
    packed = write(tmp_path / "a.jsonl.gz", gzip.compress(path.read_bytes()))
    assert list(read_chunks(packed)) == list(read_chunks(path))
    other = write(tmp_path / "b.ndjson", b'{"story": "Four."}\r\n')
    assert list(read_chunks(other, field="story")) == ["Four.\n\n"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"id": 1, "body": "x"}',
            "no field 'text'; there are id, body: esnlm prepare takes one of them with --field, other commands take 'text'",
        ),
        (
            b'{"text": 3}',
            "its text is a int, not a string: esnlm prepare takes another field with --field",
        ),
        (b'["text"]', "a JSON list; give one object a line"),
        (b'{"text": "x"', "not JSON (Expecting ',' delimiter: line 1 column 13 (char 12)); give one object a line"),
        (b'{"text": "a\\u0000b"}', "not a text: it has a character 0x00; give plain text"),
        (b'{"text": "\\ud800"}', "not a text: it has half a surrogate pair; give plain text"),
    ],
)
def test_a_record_without_a_text_is_refused_with_its_line(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", b'{"text": "Good."}\n\n' + line)
    assert refused(path) == f":3: {message}"


def test_many_documents_make_chunks_of_a_megabyte(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK", 100)
    path = write(tmp_path / "a.jsonl", b"".join(b'{"text": "%d"}\n' % i for i in range(1000)))
    chunks = list(read_chunks(path))
    assert len(chunks) > 10 and split_lines("".join(chunks)) == [str(i) for i in range(1000)]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["One.\nTwo.", "Three."], "id": [1, 2]}), path)
    seen = []
    assert list(read_chunks(path, seen.append)) == ["One.\nTwo.\n\nThree.\n\n"]
    assert b"".join(seen) == path.read_bytes()
    assert (
        refused(path, field="body")
        == ": no field 'body'; there are text, id: esnlm prepare takes one of them with --field, other commands take 'text'"
    )
    assert refused(path, field="id").endswith(
        "record 1: its text is a int, not a string: esnlm prepare takes another field with --field"
    )
    line = refused(write(tmp_path / "b.parquet", path.read_bytes()[:-10]))
    assert line.startswith(": damaged, or no Parquet file (") and line.endswith("); copy it again")
