"""A file that is too large for what it should be is refused before anything in it is parsed."""

import json
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from esnlm import config_io
from esnlm.data.store import open_store
from esnlm.data.tokenizer import load_tokenizer
from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.io import sealed_folder
from esnlm.io.json_file import LARGEST, read_small, require_small
from esnlm.io.yaml_file import LARGEST_FILE, read_tree
from esnlm.models.huggingface import read_gpt2
from esnlm.reporting import blimp_report
from esnlm.runs.directory import RunDirectory
from esnlm.runs.manifest import Manifest
from tests import hostile


def sparse(file, size):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.truncate(file, size)
    return file


def refused(message, call, *arguments):
    with pytest.raises(InputError) as error:
        call(*arguments)
    assert str(error.value) == message


def test_as_many_bytes_as_are_allowed_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_small(tmp_path / "a", 5) == b"12345"
    require_small(tmp_path / "a", 5)
    line = f"{tmp_path}/a: 5 bytes, and at most 4 are read: not a file of this kind"
    refused(line, read_small, tmp_path / "a", 4)
    refused(line, require_small, tmp_path / "a", 4)
    with pytest.raises(FileNotFoundError):
        read_small(tmp_path / "b")


def test_a_device_without_end_is_read_only_so_far():
    refused("/dev/zero: 5 bytes, and at most 4 are read: not a file of this kind", read_small, Path("/dev/zero"), 4)


@pytest.mark.parametrize(
    ("name", "largest", "read"),
    [
        ("store/manifest.json", LARGEST, lambda folder: open_store(folder / "store")),
        ("tokenizer/tokenizer.json", 16 << 20, lambda folder: load_tokenizer(folder / "tokenizer")),
        ("tokenizer/ranks.tiktoken", 16 << 20, lambda folder: load_tokenizer(folder / "tokenizer")),
        ("gpt2/vocab.bpe", 16 << 20, lambda folder: load_tokenizer(folder / "gpt2")),
        ("run/format.json", LARGEST, lambda folder: RunDirectory(folder / "run")),
        ("run/summary.json", LARGEST, lambda folder: RunDirectory(folder / "run").read_summary()),
        ("run/manifest.json", LARGEST, lambda folder: Manifest(folder / "run" / "manifest.json").read()),
        ("report.json", blimp_report.LARGEST, lambda folder: blimp_report.read(folder / "report.json")),
        ("pairs.jsonl", 64 << 20, lambda folder: minimal_pairs.load(folder / "pairs.jsonl")),
        ("hf/config.json", 16 << 20, lambda folder: read_gpt2(folder / "hf")),
        ("small.yaml", LARGEST_FILE, lambda folder: config_io.read(folder / "small.yaml")),
    ],
)
def test_each_reader_refuses_by_size_alone(tmp_path, monkeypatch, name, largest, read):
    """A terabyte that takes no room on the disk: the parsers are not called, and no memory is asked for."""
    if name.startswith("tokenizer/"):
        hostile.small_tokenizer().save(tmp_path / "tokenizer")
    if name.startswith("gpt2/"):
        sparse(tmp_path / "gpt2" / "encoder.json", 2)
    file = sparse(tmp_path / name, 1 << 40)
    for module, parser in ((json, "loads"), (yaml, "parse"), (yaml, "SafeLoader")):
        monkeypatch.setattr(module, parser, lambda *_, **__: pytest.fail("parsed"))
    advice = minimal_pairs.SPLIT if name == "pairs.jsonl" else "not a file of this kind"
    refused(f"{file}: 1,099,511,627,776 bytes, and at most {largest:,} are read: {advice}", read, tmp_path)


def test_the_manifest_of_a_checkpoint_is_refused_by_size(tmp_path, monkeypatch):
    sparse(tmp_path / "manifest.json", 1 << 40)
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("parsed"))
    line = f"manifest.json: 1,099,511,627,776 bytes, and at most {LARGEST:,} are read"
    assert sealed_folder.find_difference(tmp_path) == line


@pytest.mark.parametrize("content", ["# a comment\n", "\n", "a: [" + "1, " * 20 + "1]\n"])
def test_a_configuration_of_20_mb_takes_no_time(tmp_path, content):
    file = tmp_path / "small.yaml"
    file.write_text(content * (20_000_000 // len(content)))
    began = time.perf_counter()
    with pytest.raises(InputError, match="bytes, and at most 65,536 are read: not a file of this kind$"):
        config_io.read(file)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("content", ["#\n", "\n", "- \n", "[],", "a\n "])
def test_the_largest_file_that_is_parsed_takes_less_than_two_seconds(tmp_path, content):
    file = tmp_path / "small.yaml"
    file.write_text("[" * (content == "[],") + content * (LARGEST_FILE // len(content) - 1))
    began = time.process_time()
    try:
        read_tree(file, "")
    except InputError as error:
        assert re.search(r"more than 10,000 values|not a YAML file", str(error))
    assert time.process_time() - began < 2


def test_values_are_counted_before_they_are_made(tmp_path, monkeypatch):
    file = tmp_path / "small.yaml"
    file.write_text("a: [" + "1," * 10_000 + "]")
    monkeypatch.setattr(yaml.SafeLoader, "construct_document", lambda *_: pytest.fail("constructed"))
    line = f"{file}: more than 10,000 values, aliases counted as often as they are used: not a configuration"
    refused(line, read_tree, file, "")
