"""What `prepare` can be given: text files, folders, patterns of names, standard input, and datasets of Hugging Face."""

import dataclasses
import glob
import os
import shutil
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from esnlm.data.text_files import (
    FIELD,
    MARKED,
    Seen,
    holds_documents,
    is_compressed,
    is_plain,
    join_documents,
    kind_of,
    looks_like_records,
    read_chunks,
    read_stream,
)
from esnlm.errors import InputError, require
from esnlm.io.console import counted, warn
from esnlm.io.json_file import LARGEST

STANDARD_INPUT = "-"
DATASET = "hf:"  # before the name of a dataset
MOST_KINDS = 8  # of files, that the summary names
MOST_NAMES = LARGEST - (1 << 20)  # bytes that the input files take in the manifest, which is to be read again


@dataclass(frozen=True)
class TextInput(ABC):
    """A text that can be read as often as it is needed."""

    name: str  # as the manifest has it: the file's name, or its path from the folder that was given
    size: int  # bytes that a reading of it shows to `seen`

    @abstractmethod
    def chunks(self, seen: Seen = lambda block: None) -> Iterator[str]:
        """Yields the text as `read_chunks` does, and raises what it raises."""

    @property
    def text_size(self) -> int:
        """The size of the text itself in bytes of UTF-8."""
        return self.size

    @property
    def has_documents(self) -> bool:
        """Whether it is a list of documents, whose chunks have an empty line between two of them."""
        return False


@dataclass(frozen=True)
class FileInput(TextInput):
    """A file, plain or packed in a way that `read_chunks` knows."""

    path: Path
    text_field: str = FIELD

    def chunks(self, seen: Seen = lambda block: None) -> Iterator[str]:
        return read_chunks(self.path, seen, self.text_field)

    @cached_property
    def text_size(self) -> int:  # read once, and only where it must be
        return self.size if is_plain(self.path) else sum(len(text.encode()) for text in self.chunks())

    @property
    def has_documents(self) -> bool:
        return holds_documents(self.path)


@dataclass(frozen=True)
class StreamInput(TextInput):
    """Standard input, kept in a file without a name, as a text is read more than once."""

    file: BinaryIO = field(repr=False)

    def chunks(self, seen: Seen = lambda block: None) -> Iterator[str]:
        self.file.seek(0)
        return read_stream(self.file, self.name, seen)


@dataclass(frozen=True)
class DatasetInput(TextInput):
    """A split of a dataset of Hugging Face's library `datasets`. A reading of it shows its text."""

    dataset: Any = field(repr=False)
    text_field: str = FIELD

    def chunks(self, seen: Seen = lambda block: None) -> Iterator[str]:
        documents = (
            (f"{self.name}: record {number}", record[self.text_field])
            for number, record in enumerate(self.dataset, start=1)
        )
        for text in join_documents(documents):
            seen(text.encode())
            yield text

    @property
    def has_documents(self) -> bool:
        return True


def find_inputs(given: str | Path | Iterable[str | Path], text_field: str = FIELD) -> list[TextInput]:
    """Returns the texts that a person names, in the order in which they are named.

    Args:
        given: one such, or several: each a file; a folder, of which all files are taken in the order of their paths (hidden ones
            not), also in folders that are links; a pattern such as "corpus/**/*.txt"; "-" for standard input, as plain text; or
            "hf:NAME", "hf:NAME:SPLIT" or "hf:NAME:CONFIGURATION:SPLIT" for a dataset of the Hugging Face Hub or a folder of one
            (split: train).
        text_field: the field of a record that holds the text, in JSON lines, Parquet and datasets.

    Raises:
        InputError: there is no such file, one is named twice, a link in a folder leads nowhere, or a text is empty, cannot be read, or is
            JSON by another name.
    """
    inputs: list[TextInput] = []
    for each in [given] if isinstance(given, str | Path) else given:
        text = str(each)
        if text == STANDARD_INPUT:
            inputs.append(_standard_input())
        elif text.startswith(DATASET):
            inputs.append(_dataset(text.removeprefix(DATASET), text_field))
        else:
            inputs += [FileInput(name, path.stat().st_size, path, text_field) for path, name in _files(Path(each))]
    if not inputs:
        raise InputError("no input: name text files, or folders of them")
    _require_each_once([source.path for source in inputs if isinstance(source, FileInput)])
    room = sum(len(os.fsencode(source.name)) + 170 for source in inputs)  # with size, sha256, keys and indentation
    if room > MOST_NAMES:
        files = f"{len(inputs):,} input files take {room:,} bytes in the manifest"
        raise InputError(f"{files}, and at most {MOST_NAMES:,} are free: join some")
    marked = [source.path for source in inputs if isinstance(source, FileInput) and kind_of(source.path) in MARKED]
    if marked:
        others = f" and {counted(len(marked) - 1, 'more file')}" * (len(marked) > 1)
        warn(
            f"{marked[0]}{others}: read as plain text, with all marks and separators; leave it out, or write its text to a .txt"
        )
    for source in inputs:
        path = source.path if isinstance(source, FileInput) else source.name
        beginning = next((text for text in map(str.lstrip, source.chunks()) if text), "")
        require(bool(beginning), f"{path}: empty, or nothing but white space; leave it out")
        if not source.has_documents:
            _require_no_records(path, beginning)
    return inputs


def describe_names(names: Sequence[str]) -> str:
    """Returns how many inputs there are, and of which kinds by their names, so that what does not belong there is seen.

    Example:
        >>> describe_names(["a.txt", "b.txt", "b.txt~"])
        '3 inputs: 2 .txt, 1 .txt~'
    """
    if len(names) == 1:
        return names[0]
    kinds = Counter(Path(name).suffix or "without a suffix" for name in names)
    shown = [f"{count:,} {kind}" for kind, count in kinds.most_common(MOST_KINDS)]
    more = [counted(len(kinds) - MOST_KINDS, "more kind")] * (len(kinds) > MOST_KINDS)
    return f"{len(names):,} inputs: {', '.join(shown + more)}"


def _require_each_once(paths: Sequence[Path]) -> None:
    """Raises InputError where a file is named twice, as by two patterns. Warns where one lies beside a compressed copy of it."""
    seen: set[Path] = set()
    for path in paths:
        require(path.resolve() not in seen, f"{path}: named twice, and its text would count twice; name it once")
        seen.add(path.resolve())
    named = set(paths)
    for path in paths:
        if is_compressed(path) and path.with_suffix("") in named:
            beside = path.with_suffix("").name
            warn(f"{path}: {beside} lies beside it and is read too; leave one out if they are the same text")


def _require_no_records(path: Path | str, beginning: str) -> None:
    """Raises InputError where what would be read as plain text is JSON.

    Args:
        path: what is read, for the message.
        beginning: of its text, without white space before it.
    """
    require(
        not looks_like_records(path if isinstance(path, Path) else None, beginning),
        f"{path}: JSON, which would be read as plain text with all its keys; name a file of JSON lines .jsonl (.jsonl.gz and so on), so"
        " that the field --field of each is read, or leave the file out",
    )


def _files(given: Path) -> list[tuple[Path, str]]:
    """Returns the files that a path or a pattern stands for, and the name of each."""
    try:
        if given.is_dir():
            paths = sorted(_walk(given, set()))
            require(bool(paths), f"{given}: no files in this folder")
            return [(path, _readable(path.relative_to(given))) for path in paths]
        if given.is_file():
            return [(given, _readable(Path(given.name)))]
        kind = "a pipe or a device; give it as standard input, -" if given.exists() else "no such file or folder"
    except OSError as error:  # such as a name that is too long
        raise InputError(f"{given}: cannot be read: {error.strerror}") from None
    require(glob.has_magic(str(given)), f"{given}: {kind}")
    found = [Path(path) for path in glob.glob(str(given), recursive=True)]
    for path in found:
        _require_no_loose_link(path)
    paths = sorted(path for path in found if path.is_file())
    require(bool(paths), f"{given}: no file has a name of this pattern")
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return [(path, _readable(path.relative_to(root))) for path in paths]


def _walk(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yields the files below a folder, each folder once, also where a link leads to it. Hidden ones are left out.

    Args:
        folder: where to look.
        seen: the folders that were looked into already; this one and those below are added.

    Raises:
        InputError: a link leads nowhere, as where the files of git-annex were not fetched, or a folder cannot be read.
    """
    seen.add(folder.resolve())
    try:
        entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder}: this folder cannot be read: {error.strerror}") from None
    # What is no link comes first, so that a folder is read under its own name.
    for path in sorted(entries, key=lambda path: (path.is_symlink(), path.name)):
        _require_no_loose_link(path)
        if path.is_dir() and path.resolve() not in seen:
            yield from _walk(path, seen)
        elif path.is_file():
            yield path


def _require_no_loose_link(path: Path) -> None:
    """Raises InputError for a link that leads nowhere."""
    loose = path.is_symlink() and not path.exists()
    require(not loose, f"{path}: a link to a file that is not there; fetch it, or remove the link")


def _readable(name: Path) -> str:
    """Returns a name that JSON can hold, also of a file whose name is not UTF-8, as an archive of another system may have it."""
    return os.fsencode(name.as_posix()).decode("utf-8", "replace")


def _standard_input() -> StreamInput:
    require(sys.stdin is not None, "standard input is closed: name a file with --input")
    kept = tempfile.TemporaryFile()  # noqa: SIM115 (closed when nobody needs the input)
    shutil.copyfileobj(sys.stdin.buffer, kept)
    source = StreamInput("standard input", kept.tell(), kept)
    weakref.finalize(source, kept.close)
    return source


def _dataset(name: str, text_field: str) -> DatasetInput:
    """Opens a split of a dataset: a folder that `datasets` saved or can read, or a name on the Hub."""
    try:
        import datasets
    except ImportError:
        raise InputError(f"hf:{name}: reading it needs datasets: pip install 'esnlm[datasets]'") from None
    path, *rest = name.split(":")
    if len(rest) > 2 or not all((path, *rest)):
        raise InputError(f"hf:{name}: give hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT")
    configuration = rest[0] if len(rest) == 2 else None
    split = rest[-1] if rest else "train"
    try:
        if Path(path, "state.json").exists() or Path(path, "dataset_dict.json").exists():
            require(
                configuration is None,
                f"hf:{name}: it was saved by save_to_disk, and has no configurations; give hf:{path}:{split}",
            )
            saved = datasets.load_from_disk(path)
            whole = not isinstance(saved, datasets.DatasetDict)
            # What was saved may be one split, which may know its name.
            require(
                not whole or not rest or str(saved.split) == split,
                f"hf:{name}: it was saved by save_to_disk, and not as the split {split!r}; give hf:{path}",
            )
            dataset = saved if whole else saved[split]
        else:
            dataset = datasets.load_dataset(path, configuration, split=split)
    except InputError:
        raise
    except Exception as error:  # of the network, of the Hub, of a builder: anything may come
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"hf:{name}: cannot be loaded: {type(error).__name__}: {reason}") from None
    if text_field not in dataset.column_names:
        there = ", ".join(dataset.column_names)
        raise InputError(f"hf:{name}: no field {text_field!r}; there are {there}: name one of them with --field")
    found = DatasetInput(f"hf:{name}", 0, dataset.select_columns([text_field]), text_field)
    return dataclasses.replace(found, size=sum(len(text.encode()) for text in found.chunks()))
