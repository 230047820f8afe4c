"""The inputs of `prepare`: text files, folders, patterns of names, and datasets of Hugging Face."""

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from esnlm.data.text_files import COMPRESSED, FIELD, holds_documents, join_documents, read_chunks
from esnlm.errors import InputError
from esnlm.io.sealed_folder import file_sha256

DATASET = "hf:"  # prefix of a dataset's name


@dataclass(frozen=True)
class TextInput:
    """A text that can be read repeatedly."""

    name: str  # in the manifest: the file's name, or its path relative to the given folder
    size: int  # bytes, compressed for a compressed file
    chunks: Callable[[], Iterator[str]] = field(repr=False)  # the text, as from `read_chunks`
    path: Path | None = None  # None: a dataset
    has_documents: bool = False  # whether empty lines separate documents in chunks

    @cached_property
    def text_size(self) -> int:
        """The size of the uncompressed text in bytes of UTF-8."""
        packed = self.has_documents or (self.path is not None and self.path.suffix.lower() in COMPRESSED)
        return sum(len(text.encode()) for text in self.chunks()) if packed else self.size

    def sha256(self) -> str:
        """Returns the sha256 of a file's bytes, or of the text of a dataset."""
        if self.path is not None:
            return file_sha256(self.path)
        whole = hashlib.sha256()
        for text in self.chunks():
            whole.update(text.encode())
        return whole.hexdigest()


def find_inputs(given: str | Path | Iterable[str | Path], text_field: str = FIELD) -> list[TextInput]:
    """Returns the texts of the given inputs, in the given order.

    Args:
        given: one or more inputs: a file; a folder, for all its files except hidden ones, sorted by path; a pattern
            such as "corpus/**/*.txt"; or "hf:NAME", "hf:NAME:SPLIT" or "hf:NAME:CONFIGURATION:SPLIT" for a dataset of
            the Hugging Face Hub or in a folder (default split: train).
        text_field: the field with the text in JSON lines, Parquet and datasets.
    """
    inputs: list[TextInput] = []
    for each in [given] if isinstance(given, str | Path) else given:
        if str(each).startswith(DATASET):
            inputs.append(_dataset(str(each), text_field))
        else:
            for path, name in _files(Path(each)):
                name = os.fsencode(name).decode("utf-8", "replace")  # JSON must be UTF-8
                chunks = partial(read_chunks, path, field=text_field)
                inputs.append(TextInput(name, path.stat().st_size, chunks, path, holds_documents(path)))
    files = Counter(source.path.resolve() for source in inputs if source.path is not None)
    if twice := [path for path, count in files.items() if count > 1]:
        raise InputError(f"{twice[0]}: named twice, so its text would count twice; name it once")
    for source in inputs:
        if not any(text.strip() for text in source.chunks()):
            raise InputError(f"{source.path or source.name}: empty or all white space; leave it out")
    return inputs


def _files(given: Path) -> list[tuple[Path, str]]:
    """Returns the files of a path or a pattern, with the name of each."""
    if given.is_file():
        return [(given, given.name)]
    pattern = f"{glob.escape(str(given))}/**" if given.is_dir() else str(given)
    paths = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())
    if not paths:
        raise InputError(f"{given}: no such file, folder with files, or pattern with matches")
    root = given if given.is_dir() else Path(os.path.commonpath([path.parent for path in paths]))
    return [(path, path.relative_to(root).as_posix()) for path in paths]


def _dataset(name: str, text_field: str) -> TextInput:
    """Opens a split of a dataset: a folder that `datasets` can read, or a name on the Hub."""
    try:
        import datasets
    except ImportError:
        raise InputError(f"{name}: reading it needs datasets: pip install 'esnlm[datasets]'") from None
    path, *rest = name.removeprefix(DATASET).split(":")
    if len(rest) > 2 or not all((path, *rest)):
        raise InputError(f"{name}: give hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT")
    configuration, split = rest[0] if len(rest) == 2 else None, rest[-1] if rest else "train"
    try:
        if Path(path, "state.json").exists():
            dataset = datasets.load_from_disk(path)  # a single split
        elif Path(path, "dataset_dict.json").exists():
            dataset = datasets.load_from_disk(path)[split]
        else:
            dataset = datasets.load_dataset(path, configuration, split=split)
    except Exception as error:  # the network, the Hub and dataset builders raise any class
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{name}: cannot be loaded: {type(error).__name__}: {reason}") from None
    if text_field not in dataset.column_names:
        there = ", ".join(dataset.column_names)
        raise InputError(f"{name}: no field {text_field!r}, only {there}; name one of them with --field")
    records = dataset.select_columns([text_field])

    def chunks() -> Iterator[str]:
        return join_documents((f"{name}: record {i}", record[text_field]) for i, record in enumerate(records, start=1))

    return TextInput(name, sum(len(text.encode()) for text in chunks()), chunks, has_documents=True)
