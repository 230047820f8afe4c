"""What `prepare` can be given, each kind beside the same text in a plain file."""

import csv
import gzip
import json
import os

import pytest

from esnlm.base.errors import InputError
from esnlm.data import inputs
from esnlm.data.inputs import find_inputs
from esnlm.data.prepare import prepare
from esnlm.data.tokenizer import word_tokenizer

LINES = ["The cats sleep.", "A dog sees the cat.", "The dog sleeps."]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus" / "deep").mkdir(parents=True)
    (tmp_path / "corpus" / "b.txt").write_text(LINES[0] + "\n")
    (tmp_path / "corpus" / "a.txt").write_text(LINES[1] + "\n")
    (tmp_path / "corpus" / "deep" / "c.txt").write_text(LINES[2] + "\n")
    word_tokenizer(["The", " cats", " sleep", "A", " dog"]).save(tmp_path / "tokenizer")
    return tmp_path


def texts(*given, **options):
    return {
        source.name: "".join(source.chunks()).strip() for source in find_inputs(given, **options)
    }


def test_files_folders_and_patterns_in_the_order_of_their_paths(folder):
    assert list(texts("corpus/b.txt", "corpus/a.txt")) == ["b.txt", "a.txt"]
    assert (
        list(texts("corpus")) == list(texts("corpus/**/*.txt")) == ["a.txt", "b.txt", "deep/c.txt"]
    )
    assert list(texts("corpus/[a]*.txt", "corpus/deep")) == ["a.txt", "c.txt"]


def test_no_inputs_are_rejected(folder):
    with pytest.raises(InputError, match="^no inputs; give at least one$"):
        prepare([], "store", tokenizer="tokenizer", sentences="line")


def test_a_file_is_read_once(folder):
    for given in (["corpus", "corpus/a.txt"], ["corpus/a.txt", "corpus/../corpus/a.txt"]):
        with pytest.raises(
            InputError, match="a.txt: named twice, so its text would count twice; name it once"
        ):
            find_inputs(given)


def test_a_folder_with_files_that_are_no_text_lists_them_before_reading_any(folder):
    for name in ("README", "deep/tree.conllu", "page.html.gz", "photo.png"):
        (folder / "corpus" / name).write_bytes(b"\x89not read")
    with pytest.raises(InputError) as error:
        find_inputs("corpus")
    first = "corpus/README (leave it out)"
    second = "corpus/deep/tree.conllu (write its sentences as plain text, one per line)"
    third = "corpus/page.html.gz (write its text to a plain text file)"
    assert str(error.value) == f"not running text: {first}, {second}, {third} and 1 other file"
    assert list(texts("corpus/**/*.txt")) == ["a.txt", "b.txt", "deep/c.txt"]


@pytest.mark.parametrize("name", ["README", "ReadMe.rst", "LICENSE", "licence.md", "License.txt"])
def test_a_readme_or_licence_is_read_only_if_it_is_named_itself(folder, name):
    (folder / "corpus" / name).write_text("About the corpus.\n")
    for item in ("corpus", "corpus/*"):
        with pytest.raises(
            InputError, match=rf"^not running text: corpus/{name} \(leave it out\)$"
        ):
            find_inputs(item)
    assert texts(f"corpus/{name}") == {name: "About the corpus."}


def test_a_text_whose_name_begins_or_ends_like_that_of_a_readme_or_licence_is_read(folder):
    names = [
        "RTS_README",
        "license_plates.txt",
        "licensed_books.txt",
        "readme_texts.txt",
        "threadmessages.txt",
    ]
    (folder / "named").mkdir()
    for name in names:
        (folder / "named" / name).write_text("A text.\n")
    assert texts("named") == dict.fromkeys(names, "A text.")


def test_what_macos_adds_to_an_archive_is_not_read(folder):
    (folder / "corpus" / "__MACOSX").mkdir()
    for name in ("._a.txt", "a.txt"):
        (folder / "corpus" / "__MACOSX" / name).write_bytes(b"\0\5\26\7")
    assert list(texts("corpus")) == ["a.txt", "b.txt", "deep/c.txt"]


def test_what_can_be_read_only_once_is_refused(folder):
    os.mkfifo("fifo")
    reading, writing = os.pipe()
    for item in ("fifo", "-", f"/dev/fd/{reading}"):
        with pytest.raises(
            InputError,
            match=f"^{item}: can be read only once, and prepare needs to read it again; write",
        ):
            find_inputs(item)
    os.close(reading)
    os.close(writing)


def test_a_dataset_that_was_saved_or_is_a_folder_of_files(folder):
    datasets = pytest.importorskip("datasets")
    records = datasets.Dataset.from_dict({"story": LINES, "id": [1, 2, 3]})
    records.save_to_disk("saved")
    assert texts("hf:saved", text_field="story") == {"hf:saved": "\n\n".join(LINES)}
    [source] = find_inputs(["hf:saved"], "story")
    assert source.describe()["bytes"] == sum(len(text.encode()) for text in source.chunks())
    datasets.DatasetDict({"dev": records}).save_to_disk("split")
    assert texts("hf:split:dev", text_field="story") == {"hf:split:dev": "\n\n".join(LINES)}
    with pytest.raises(InputError, match="^hf:saved: no field 'text', only story, id"):
        find_inputs(["hf:saved"])


@pytest.mark.parametrize("max_words", [None, 8])
def test_a_store_is_the_same_however_the_text_is_packed(folder, max_words):
    text = "\n".join(LINES * 20) + "\n"
    (folder / "plain.txt").write_text(text)
    (folder / "packed.txt.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "records.jsonl").write_text(
        "".join(json.dumps({"text": line}) + "\n" for line in LINES * 20)
    )
    for name, delimiter in (("table.csv", ","), ("table.tsv", "\t")):
        with open(folder / name, "w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows(
                [["id", "text"], *enumerate(LINES * 20)]
            )
    options = {
        "tokenizer": "tokenizer",
        "sentences": "line",
        "min_length": 3,
        "max_words": max_words,
    }
    names = ("plain.txt", "packed.txt.gz", "records.jsonl", "table.csv", "table.tsv")
    stores = [prepare([name], f"{name}.store", **options) for name in names]
    assert len({(store.folder / "tokens.bin").read_bytes() for store in stores}) == 1
    [source] = stores[1].manifest["sources"]
    assert source["bytes"] == (folder / "packed.txt.gz").stat().st_size


def test_a_vocabulary_and_punkt_are_trained_on_the_text_itself_not_on_its_packed_bytes(folder):
    text = "".join(f"The cats sleep and the dog number {i} sees them.\n" for i in range(500))
    (folder / "plain.txt").write_text(text)
    (folder / "packed.txt.gz").write_bytes(gzip.compress(text.encode()))
    options = {"tokenizer": "train:270", "sentences": "line", "max_words": 3000}
    plain, packed = (
        prepare([name], f"{name}.store", **options) for name in ("plain.txt", "packed.txt.gz")
    )
    assert plain.manifest["tokenizer"]["sha256"] == packed.manifest["tokenizer"]["sha256"]


def test_a_table_is_read_by_its_column(folder):
    rows = [["book", "story"], ["1", 'He said "yes",\nand left.'], ["2", "The end."]]
    with open(folder / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert texts("table.csv", text_field="story") == {
        "table.csv": 'He said "yes",\nand left.\n\nThe end.'
    }
    advice = "name another field with --field, or leave this input out"
    with pytest.raises(
        InputError, match=f"^table.csv: no field 'text', only book, story; {advice}$"
    ):
        texts("table.csv")


def test_rows_that_a_quotation_mark_joins_are_refused(folder):
    (folder / "table.tsv").write_text(
        'id\ttext\n1\t"Hello there.\n2\tThe cats sleep.\n3\tShe said no."\n'
    )
    with pytest.raises(
        InputError, match="^table.tsv:4: .*'Hello there.*: if quotation marks are part of the text"
    ):
        texts("table.tsv")


def test_quotation_marks_that_a_table_drops_are_warned_of_once(folder, capfd):
    (folder / "table.tsv").write_text('id\ttext\n1\tThe cats sleep.\n2\t"Stop that now!"\n')
    prepare(["table.tsv"], "store", tokenizer="tokenizer", sentences="line", min_length=3)
    [warning] = [
        line for line in capfd.readouterr().err.splitlines() if line.startswith("warning: ")
    ]
    assert warning.startswith("warning: table.tsv:3: quotation marks around 'Stop that now!'")


@pytest.fixture
def with_nulls(folder):
    """The same records in each format, some without text, as pandas writes them; and the reader of
    each."""
    rows = list(enumerate([LINES[0], None, LINES[1], None, None]))
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in rows)
    )
    (folder / "a.csv").write_text("id,text\n" + "".join(f"{i},{text or ''}\n" for i, text in rows))
    # In a single column pandas writes "", since a blank line would not be a row.
    (folder / "a.tsv").write_text("text\n" + "".join((text or '""') + "\n" for _, text in rows))
    return {"a.jsonl": "read_chunks", "a.csv": "read_table", "a.tsv": "read_table"}


def test_records_without_text_are_counted_when_they_are_left_out(with_nulls, capsys):
    options = {"tokenizer": "tokenizer", "sentences": "line", "min_length": 3}
    for name in with_nulls:
        store = prepare([name], f"{name}.store", skip_missing=True, **options)
        assert len(store) == 2 and store.manifest["skipped_missing"] == 3
        assert "\n  skipped    3 records without text\n" in "".join(capsys.readouterr())


def test_the_first_record_without_text_has_its_place_named(with_nulls):
    advice = "name another field with --field, or leave such records out with --skip-missing"
    for name in with_nulls:
        line = 2 if name == "a.jsonl" else 3  # after the names of the columns
        with pytest.raises(InputError, match=f"^{name}:{line}: no text; {advice}$"):
            texts(name)


def test_records_are_read_once_for_their_size_and_once_to_encode_them(with_nulls, monkeypatch):
    options = {"tokenizer": "tokenizer", "sentences": "line", "min_length": 3, "skip_missing": True}
    for name, reader in with_nulls.items():
        read, times = getattr(inputs, reader), []
        monkeypatch.setattr(
            inputs, reader, lambda *args, read=read, times=times: times.append(1) or read(*args)
        )
        prepare([name], f"{name}.store", **options)
        assert len(times) == 2
