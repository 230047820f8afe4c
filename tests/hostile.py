"""Files as an enemy would write them, and who reads them: for tests/test_hostile.py and tests/reliability/fuzz.py.

A target is a folder of good files and a call that reads them. Whatever the files become, the call succeeds or raises
InputError with one line: no other exception, no hang, no memory beyond what the files themselves take.
"""

import hashlib
import json
import random
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.numpy

from esnlm import config, config_io, loaded_run
from esnlm.compute import choose_compute
from esnlm.data import encode, prepare, store, tables, text_files, tokenizer
from esnlm.errors import InputError
from esnlm.evaluation import conventions, formula, minimal_pairs, region_tests, sequences
from esnlm.evaluation.evaluate import evaluate
from esnlm.io import json_file, yaml_file
from esnlm.models import gpt2, huggingface
from esnlm.reporting import blimp_report, run_groups, run_notes, run_table
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

LONGEST_LINE = 2005  # characters of a message: a person has to read it
Files = dict[str, bytes]

NUMBERS = (
    b"-1",
    b"0",
    b"1",
    b"7",
    b"65536",
    b"1e999",
    b"-0.0",
    b"NaN",
    b"9" * 19,
    b"1" * 5000,
    b"0.5",
    b"1_0",
    b"2001-99-99",
)
VALUES = (
    *NUMBERS,
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[" * 5000,
    b"{a: " * 3000,
    b'""',
    b'"x"',
    b'"../../x"',
    b'"/etc/passwd"',
    b"!!binary x",
)
CHARACTERS = (
    b"\0",
    b"\n",
    b"\r",
    b"\x1b[31m",
    b"\x7f",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"<|endoftext|>",
)
CONNECTED = (
    b"&a [*a]",
    b"{a: &a [x,x,x,x], b: &b [*a,*a,*a,*a], c: &c [*b,*b,*b,*b], d: &d [*c,*c,*c,*c], e: &e [*d,*d,*d,*d]}",
)
PIECE = re.compile(rb'"[^"\n]{0,40}"|-?[0-9][0-9.eE+]*|[A-Za-z_]+|[^\s\w]')


@dataclass(frozen=True)
class Target:
    """`make` writes good files; `seal` makes sums and sizes fit again, as an enemy would; `call` reads the folder."""

    modules: tuple  # those whose lines are at stake
    make: Callable[[Path], object]
    call: Callable[[Path], object]
    seal: Callable[[Files], Files] = lambda files: files

    def files(self, scratch: Path) -> Files:
        """The good files, by name."""
        self.make(scratch)
        return {
            path.relative_to(scratch).as_posix(): path.read_bytes()
            for path in sorted(scratch.rglob("*"))
            if path.is_file()
        }


def check(target: Target, files: Files, folder: Path) -> None:
    """Lets the target read these files; raises what it raises, but for an InputError of one line."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    folder.mkdir(exist_ok=True)
    try:
        target.call(folder)
    except InputError as error:
        line = str(error)
        assert line.isprintable() and len(line) <= LONGEST_LINE, f"not a line to read: {line[:200]!r}"


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One change: to a piece of text (a number, a name, a mark), to a line, or to bytes."""
    kind = rng.randrange(8)
    if kind <= 3 and (pieces := list(PIECE.finditer(data[: 1 << 16]))):
        piece = pieces[rng.randrange(len(pieces))]
        choices = (VALUES, CHARACTERS, CONNECTED, [other.group() for other in pieces[:200]])
        some = choices[rng.randrange(len(choices))]
        new = (b"", some[rng.randrange(len(some))], piece.group() + some[rng.randrange(len(some))])[rng.randrange(3)]
        return data[: piece.start()] + new + data[piece.end() :]
    if kind == 4 and len(lines := data.split(b"\n")) > 1:
        first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        return b"\n".join([*lines[:first], lines[second], *lines[first + rng.randrange(2) :]])
    at = rng.randrange(len(data) + 1)
    if kind == 5:
        return data[:at]
    if kind == 6:
        return data[:at] + CHARACTERS[rng.randrange(len(CHARACTERS))] + data[at:]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def damage(target: Target, files: Files, rng: random.Random) -> Files:
    """One to three changes to the files, mostly sealed."""
    files = dict(files)
    for _ in range(rng.randrange(1, 4)):
        names = sorted(files)
        name = names[rng.randrange(len(names))]
        files[name] = mutate(files[name], rng)
        if rng.randrange(40) == 0 and len(files) > 1:
            del files[name]
    return target.seal(files) if rng.randrange(4) else files


# ---- configuration ----

CONFIGURATION = """run: runs/x
seed: 3
data: {kind: store, train: stores/train, validation: null}
model:
  family: esn
  train_input: false
  dropout: 0.1
  reservoir: {state_size: 64, mean_degree: 8, leak_min: 0.1, activation: relu, topology: {kind: small_world, degree: 4}, continuous: null}
  readout: {rank: 8}
training: {epochs: 2, checkpoint_words: [1000, 2000], clip_norm: 1.5}
compute: {kernel: auto, batch_slots: null}
"""


def _read_configuration(folder: Path) -> None:
    lines = (
        (folder / "arguments").read_bytes().decode(errors="surrogateescape").split("\n")
        if (folder / "arguments").exists()
        else []
    )
    experiment = config_io.read(folder / "experiment.yaml", [line for line in lines if line])
    model = experiment.model
    assert model.title and model.expected_counts(300) and model.frozen_bytes(300) >= 0
    choose_compute(experiment.compute, experiment.model, "cpu")
    config_io.write(experiment, folder / "copy.yaml")
    assert config_io.read(folder / "copy.yaml") == experiment


def _make_configuration(folder: Path) -> None:
    (folder / "experiment.yaml").write_text(CONFIGURATION)
    (folder / "arguments").write_text(
        "--model.reservoir.topology.degree\n6\n--training.learning_rate=0.1\n--compute.batch_slots\n4"
    )


# ---- minimal pairs and reports ----


class _Run:
    """Scores a sentence by its ids, which is enough to write a report."""

    name, step = "hostile", 7

    def __init__(self, folder: Path):
        self.directory, self.tokenizer = folder, small_tokenizer()
        (folder / "config.yaml").write_text("seed: 0\n")

    def token_log_probs_of(self, sequences, progress):
        return [-np.log(2.0 + np.asarray(ids[1:], np.float32)) for ids in sequences]

    def unigram(self) -> None:
        pass


def _make_pairs(folder: Path) -> None:
    for name, good, bad in (("a", "The cats sleep.", "The cats sleeps."), ("b", "A dog barks.", "A dog bark.")):
        pair = {
            "sentence_good": good,
            "sentence_bad": bad,
            "field": "syntax",
            "linguistics_term": "agreement",
            "UID": name,
            "pairID": "0",
        }
        (folder / f"{name}.jsonl").write_text((json.dumps(pair) + "\n") * 2)


def _read_pairs(folder: Path) -> None:
    pairs = minimal_pairs.load(folder)
    minimal_pairs.digest(pairs)
    for scoring in conventions.CONVENTIONS:
        sequences.encode([pair.good for pair in pairs], small_tokenizer(), scoring)


def _make_items(folder: Path) -> None:
    table = 'sentence_good\tsentence_bad\tUID\nThe cats sleep.\t"The ""cats"" sleeps."\tx\nA dog.\tDog a.\tx\n'
    (folder / "table.tsv").write_text(table)
    (folder / "case-pronoun.txt").write_text("The cats sleeps.\nThe cats sleep.\nDog a.\nA dog.\n")
    (folder / "sets.jsonl").write_text('{"sentence_good": "A dog.", "sentence_bad": ["Dog a.", "Dog."]}\n' * 2)
    regions = [{"region_number": 1, "content": "The cats"}, {"region_number": 2, "content": "sleep"}]
    conditions = [{"condition_name": name, "regions": regions} for name in ("match", "mismatch")]
    suite = {
        "meta": {"name": "number", "metric": "sum"},
        "predictions": [{"formula": "[(2;%mismatch%) > (2;%match%)] & ((*;%match%) - 0.5 + 1 < 99)"}],
        "items": [{"item_number": 1, "conditions": conditions}],
    }
    (folder / "suite.json").write_text(json.dumps(suite))


def _read_items(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        if file.name == "config.yaml":
            continue
        found = minimal_pairs.load(file)
        minimal_pairs.digest(found)
        evaluation = evaluate(_Run(folder), found, scoring="babylm")
        list(blimp_report._pair_lines(evaluation))


REPORTED = [
    ("a", 0, "The cats sleep.", "The cat sleep.", "agreement", "syntax", "0"),
    ("b", 0, "A dog.", "Dog a a.", "order", "syntax", "0"),
]


def _make_report(folder: Path) -> None:
    pairs = [minimal_pairs.Pair(*fields) for fields in REPORTED]
    blimp_report.write(evaluate(_Run(folder), pairs), folder / "blimp-paper.json")
    for name in ("blimp-paper.md", "blimp-paper.png", "config.yaml"):
        (folder / name).unlink(missing_ok=True)


def _seal_report(files: Files) -> Files:
    def reseal(tree):
        _hashed(tree["pairs_file"], "sha256", files["blimp-paper.pairs.jsonl"])
        tree["sha256"] = blimp_report.seal(tree)

    return _with_json(files, "blimp-paper.json", reseal)


def _read_report(folder: Path) -> None:
    pairs = [minimal_pairs.Pair(*fields) for fields in REPORTED]
    file, data_sha256 = folder / "blimp-paper.json", minimal_pairs.digest(pairs)
    _, right = blimp_report.read_to_compare(file, "paper", data_sha256, len(pairs))
    assert right.shape == (2,) and right.dtype == bool


# ---- tokenizers and stores ----


@cache
def small_tokenizer() -> tokenizer.Tokenizer:
    return tokenizer.word_tokenizer(["The", " cats", " sleep"])


def _make_saved(folder: Path) -> None:
    small_tokenizer().save(folder)


def _seal_saved(files: Files, folder: str = "") -> Files:
    def fit(tree):
        ranks = tokenizer._parse_ranks(files[f"{folder}ranks.tiktoken"])
        tree |= tokenizer.Tokenizer(tree["name"], tree["pattern"], ranks)._description()

    return _with_json(files, f"{folder}tokenizer.json", fit)


def _make_gpt2_files(folder: Path) -> None:
    characters = [*tokenizer.byte_of_character(), "Th", "The", tokenizer.ENDOFTEXT]
    (folder / "encoder.json").write_text(json.dumps({character: i for i, character in enumerate(characters)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\nT h\nTh e\n", encoding="utf-8")


def _use_tokenizer(folder: Path) -> None:
    found = tokenizer.load_tokenizer(folder)
    text = "The cats\0 <|endoftext|>\n\u00e9\ud83d sleep"
    ids = found.encode(text)
    assert found.decode(ids) == text.replace("\ud83d", "\ufffd")
    found.encode_lines(["The cats", "sleep"])


def _make_store(folder: Path) -> None:
    folder.rmdir()
    ids = [
        [small_tokenizer().bos, *small_tokenizer().encode(text), small_tokenizer().eos]
        for text in ("The cats sleep", "The", " cats")
    ]
    with store.StoreWriter(folder, small_tokenizer()) as writer:
        writer.append(np.concatenate(ids), [len(each) for each in ids], [3, 1, 1], [14, 3, 5])
        writer.finish(sentence_rule="one per line")


def _seal_store(files: Files) -> Files:
    files = _seal_saved(files, "tokenizer/")

    def fit(tree):
        for name in ("tokens.bin", *store.ARRAYS):
            _hashed(tree["sha256"], name, files[name])
        tree["sha256"]["manifest.json"] = store._manifest_sha256(tree)

    return _with_json(files, "manifest.json", fit)


def _use_store(folder: Path) -> None:
    opened = store.open_store(folder)
    found = list(opened)
    assert sum(map(len, found)) == len(opened.tokens) == opened.lengths.sum()
    assert all(len(ids) >= 2 and 0 <= ids.min() <= ids.max() <= small_tokenizer().eos for ids in found)
    opened.tokenizer()


# ---- raw text ----


def _make_text(folder: Path) -> None:
    (folder / "text.txt").write_bytes(
        b"\xef\xbb\xbfThe cats sleep. Mr. Dog barks?\r\nA line.\n\n  <|endoftext|> \xc3\xa9 ... no.\r"
    )


@cache
def _encoders() -> tuple:
    from nltk.tokenize.punkt import PunktParameters

    return encode.chunk_encoder(None, small_tokenizer(), 3, 12), encode.chunk_encoder(
        PunktParameters(), small_tokenizer(), 3, 12
    )


def _read_text(folder: Path) -> None:
    for text in text_files.read_chunks(folder / "text.txt"):
        for encoder in _encoders():
            found = encoder(text)
            kept = found.lengths[found.lengths >= 3]
            assert len(found.tokens) == np.minimum(kept, 12).sum()
    text_files.read_lines(folder / "text.txt")


# ---- checkpoints and runs ----


def _make_checkpoint(folder: Path) -> None:
    arrays = {"params": {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.zeros((0, 3), np.int32)}}
    checkpoint.save(folder / "7", arrays, {"step": 7, "permanent": True})


def _seal_checkpoint(files: Files) -> Files:
    """Metadata and the list of files only: arrays that an enemy sealed are Orbax's to read, which is not looked at here."""
    try:
        tree, content = json.loads(files["7/manifest.json"]), files["7/metadata.json"]
        tree["files"]["metadata.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        return files | {"7/manifest.json": json_file.add_seal({key: tree[key] for key in ("files", "empty_arrays")})}
    except (ValueError, KeyError, TypeError, RecursionError):
        return files


def _restore(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays, metadata = checkpoint.restore(folder / "7")
        checkpoint.prune(folder, 1)
    assert all(isinstance(array, np.ndarray) for array in config.flatten(arrays).values()) and isinstance(
        metadata, dict
    )


RUN = "model: {family: lstm, width: 2}\n"


def _make_run(folder: Path) -> None:
    experiment = folder / "config.yaml"
    with RunDirectory(folder).begin():
        experiment.write_text(RUN)
        config_io.write(config_io.read(experiment), experiment)
    small_tokenizer().save(folder / "tokenizer")
    summary = {
        "status": "finished",
        "step": 3,
        "trainable_params": 10,
        "total_params": 10,
        "train_nll": 1.5,
        "val_nll": "nan",
    }
    (folder / "summary.json").write_text(json.dumps(summary | {"seconds": 2.5, "references": {"unigram model": 3.0}}))
    (folder / "evaluation").mkdir()
    _make_report(folder / "evaluation")
    np.save(folder / "unigram.npy", np.arange(small_tokenizer().vocab_size))


def _use_run(folder: Path) -> None:
    run_table.report([folder], folder / "table.md")
    loaded = loaded_run.load(folder, untrained=True)
    assert np.isfinite(loaded.unigram().log_p).all()


# ---- Hugging Face folders ----

TREE = {
    "model_type": "gpt2",
    "n_embd": 4,
    "n_head": 2,
    "n_layer": 1,
    "n_positions": 3,
    "vocab_size": 259,
    "n_inner": None,
    "resid_pdrop": 0.1,
}
HEADER = "model.safetensors header"


def _make_folder(folder: Path) -> None:
    _make_gpt2_files(folder)
    (folder / "encoder.json").rename(folder / "vocab.json")
    (folder / "vocab.bpe").rename(folder / "merges.txt")
    (folder / "config.json").write_text(json.dumps(TREE))
    shapes = gpt2.shapes(gpt2.GPT2Config(layers=1, heads=2, width=4, positions=3), 259)
    arrays = {name.replace("h.", "h.0.", 1) if name.startswith("h.") else name: shape for name, shape in shapes.items()}
    arrays = {
        name: np.zeros(shape[1:] if name.startswith("h.") else shape, np.float32) for name, shape in arrays.items()
    }
    content = safetensors.numpy.save(arrays)
    size = 8 + int.from_bytes(content[:8], "little")
    (folder / HEADER).write_bytes(content[8:size])
    (folder / "model.safetensors").write_bytes(content[size:])


def _seal_folder(files: Files) -> Files:
    """The header stands apart while it is changed, so that its size can be put before it."""
    header = files.get(HEADER, b"")
    framed = len(header).to_bytes(8, "little") + header + files.get("model.safetensors", b"")
    return {name: content for name, content in files.items() if name != HEADER} | {"model.safetensors": framed}


def _with_json(files: Files, name: str, change) -> Files:
    """The files with a JSON object changed; as they are where there is none that can be."""
    try:
        tree = json.loads(files[name])
        change(tree)
        return files | {name: json.dumps(tree).encode()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return files


def _hashed(tree, key, content) -> None:
    tree[key] = hashlib.sha256(content).hexdigest()


TARGETS = {
    "config": Target((config, yaml_file), _make_configuration, _read_configuration),
    "pairs": Target((minimal_pairs,), _make_pairs, _read_pairs),
    "items": Target((minimal_pairs, region_tests, formula, tables), _make_items, _read_items),
    "report": Target((blimp_report,), _make_report, _read_report, _seal_report),
    "store": Target((store, tokenizer), _make_store, _use_store, _seal_store),
    "tokenizer": Target((tokenizer,), _make_saved, _use_tokenizer, _seal_saved),
    "gpt2_files": Target((tokenizer,), _make_gpt2_files, _use_tokenizer),
    "text": Target((text_files, prepare), _make_text, _read_text),
    "checkpoint": Target((checkpoint,), _make_checkpoint, _restore, _seal_checkpoint),
    "run": Target((loaded_run, run_groups, run_notes, run_table), _make_run, _use_run),
    "huggingface": Target((huggingface,), _make_folder, huggingface.read_gpt2, _seal_folder),
}
