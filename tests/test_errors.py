"""Every way to be wrong has one line that says what to do, and status 2. docs/errors.md is made from this table:

python -m tests.test_errors > docs/errors.md
"""

import dataclasses
import gzip
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy

import esnlm
from esnlm import commands, config, config_io
from esnlm.data import store
from esnlm.data.tokenizer import word_tokenizer
from esnlm.interchange.babylm import EYE_TRACKING, FOLDERS, PROPERTIES, SELF_PACED
from esnlm.process import exit_with
from esnlm.reservoir.functions import UPDATE_RULES
from esnlm.runs.directory import FORMAT
from esnlm.signals import network
from esnlm.workflows.train import train_run
from tests import hostile
from tests.cloud import s3, s3_server  # noqa: F401  (fixtures)

ROOT = Path(__file__).parents[1]
SMALL = """run: new
data: {kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
"""


class Row(NamedTuple):
    wrong: str
    command: str
    line: str  # "…" stands for anything
    # What is done before, in a folder that holds tokenizer/, store/, run/, gpt2/, small.yaml, store.yaml and text.txt.
    begin: Callable[[], object] = lambda: None
    begins_a_run: bool = False  # what is wrong shows only where all of the text was read


def write(name: str, content: bytes | str) -> Callable[[], object]:
    return lambda: Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


def change(name: str, how: Callable[[bytes], bytes]) -> Callable[[], object]:
    return lambda: Path(name).write_bytes(how(Path(name).read_bytes()))


def weights(**other) -> Callable[[], object]:
    """Arrays of gpt2/ replaced; None takes one away."""

    def begin():
        file = Path("gpt2/model.safetensors")
        arrays = safetensors.numpy.load(file.read_bytes()) | {
            name.replace("_0_", ".0.").replace("__", "."): a for name, a in other.items()
        }
        file.write_bytes(safetensors.numpy.save({name: array for name, array in arrays.items() if array is not None}))

    return begin


def gpt2_says(**settings) -> Callable[[], object]:
    return change("gpt2/config.json", lambda content: json.dumps(json.loads(content) | settings).encode())


def babylm(name: str, content: str) -> Callable[[], object]:
    """One file of BabyLM's evaluation data."""
    file = Path("full_eval", name)
    return lambda: (file.parent.mkdir(parents=True), file.write_text(content))


def cloud(cut: str | None = None) -> Callable[[], object]:
    """A bucket with photos/cat.png, and with run/ and store/ where one of their files is to be cut to half its length."""

    def begin():
        import fsspec

        files = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
        if files.exists("bucket"):
            files.rm("bucket", recursive=True)
        files.mkdir("bucket")
        files.pipe_file("bucket/photos/cat.png", b"cat")
        if cut is not None:
            files.put(cut.split("/")[0], "bucket/", recursive=True)
            content = files.cat_file(f"bucket/{cut}")
            files.pipe_file(f"bucket/{cut}", content[: len(content) // 2])

    return begin


def damage_checkpoints() -> None:
    for file in Path("run/checkpoints").glob("*/metadata.json"):
        file.write_bytes(b"{}" + file.read_bytes()[2:])


def claim_a_billion() -> None:
    manifest = json.loads(Path("store/manifest.json").read_text())
    manifest["counts"]["sentences"] = 10**9
    manifest["sha256"]["manifest.json"] = store._manifest_sha256(manifest)
    Path("store/manifest.json").write_text(json.dumps(manifest))


def deep_readout() -> None:
    """small.yaml and store.yaml for the family deep_readout."""
    for name in ("small.yaml", "store.yaml"):
        change(name, lambda content: content.replace(b"model: {", b"model: {family: deep_readout, "))()


def many_words() -> None:
    """A store of one sentence, whose tokenizer has 32,257 ids, and store.yaml for the family deep_readout."""
    deep_readout()
    words = word_tokenizer([f"w{i}" for i in range(32000)])
    with store.StoreWriter("many", words) as writer:
        writer.append([words.bos, 300, words.eos], [3], [1], [4])
        writer.finish(sentence_rule="one per line")


def suite(formula: str, metric: str = "sum") -> Callable[[], object]:
    """A test suite of one item with one condition of one region."""
    condition = {"condition_name": "a", "regions": [{"region_number": 1, "content": "The cats"}]}
    items = [{"item_number": 1, "conditions": [condition]}]
    tree = {"meta": {"name": "suite", "metric": metric}, "predictions": [{"formula": formula}], "items": items}
    return write("suite.json", json.dumps(tree))


def diverge() -> None:
    Path("run/manifest.json").unlink()
    summary = json.loads(Path("run/summary.json").read_text())
    Path("run/summary.json").write_text(json.dumps(summary | {"status": "diverged"}))


def damage_diagnosis() -> None:
    Path("run/diagnostics").mkdir()
    Path("run/diagnostics/diagnostics.json").write_text('{"reservoirs": [{}]}')


SEARCH = (
    "{kind: search, base: small.yaml, trials: 3, search: {training.learning_rate: {low: 0.001, high: 0.01, log: true}}}"
)
CLAIMS = (
    "{kind: claims, claims: [{claim: a, source: b, parts:"
    " [{says: c, paper: d, study: size, measure: val_nll, falls: {along: epochs}}]}]}"
)
PREPARE = "python -m esnlm prepare --input text.txt --out new --tokenizer tokenizer --sentences line"
TRAIN = "python train.py --config small.yaml"
STORE = "python train.py --config store.yaml"
IMPORT = "python -m esnlm import gpt2 --out new"
EXPORT = "python -m esnlm export --run run --out new"
SETTINGS = ", ".join(field.name for field in dataclasses.fields(config.TrainingConfig))
LIKELIHOOD = "python -m esnlm likelihood --run run"
CURVE = "python -m esnlm curve --run run --store run/stores/validation"
TOKENS = "python -m esnlm score --run run --tokens"
BLIMP = "python eval_blimp.py --run run --data pairs.jsonl"
ZORRO = "python eval_blimp.py --run run --data case-pronoun.txt"
SUITE = "python eval_blimp.py --run run --data suite.json"
LM_EVAL = "python -m esnlm lm-eval --run run --data pairs.jsonl --tasks"
PAIR = '{"sentence_good": "a", "sentence_bad": "b", "UID": "wh_island"}'
BABYLM = "python -m esnlm babylm --run run --data full_eval"
COLUMNS = ["item", "word", "prev_item", "prev_word", *EYE_TRACKING, SELF_PACED, *PROPERTIES, "prev_length"]
SEVERAL = f"{TRAIN} --coordinator"
TABLE = {
    "Text and token stores": [
        Row("no such input", f"{PREPARE} --input none.txt", "none.txt: no such file or folder"),
        Row(
            "an empty file", PREPARE, "text.txt: empty, or nothing but white space; leave it out", write("text.txt", "")
        ),
        Row(
            "no UTF-8",
            PREPARE,
            "text.txt:2: not UTF-8: 0xff at byte 2; give plain text in UTF-8",
            write("text.txt", b"a\n\xff"),
        ),
        Row(
            "no text",
            PREPARE,
            "text.txt:1: not a text file: 0x00 at byte 1; give plain text in UTF-8",
            write("text.txt", b"a\0b"),
        ),
        Row(
            "a line without end",
            PREPARE,
            "text.txt:1: longer than 4 MB; put one paragraph or one sentence on a line",
            write("text.txt", b"word " * 1_100_000),
        ),
        Row("a pattern of no file", f"{PREPARE} --input *.book", "*.book: no file has a name of this pattern"),
        Row(
            "a compressed file that ends early",
            f"{PREPARE} --input text.txt.gz",
            "text.txt.gz: ends early, in the midst of the compressed text; copy it again",
            write("text.txt.gz", gzip.compress(b"The cats sleep.\n" * 50)[:-20]),
        ),
        Row(
            "a compressed file that is none",
            f"{PREPARE} --input text.txt.xz",
            "text.txt.xz: damaged, or not what its name says (Input format not supported by decoder); copy it again",
            write("text.txt.xz", "The cats sleep.\n"),
        ),
        Row(
            "a record without the field",
            f"{PREPARE} --input text.jsonl --field story",
            "text.jsonl:2: no field 'story'; there are text: esnlm prepare takes one of them with --field, other commands take 'text'",
            write("text.jsonl", '{"story": "The cats sleep."}\n{"text": "A dog."}\n'),
        ),
        Row(
            "a line that is no record",
            f"{PREPARE} --input text.jsonl",
            "text.jsonl:1: not JSON (Expecting value: line 1 column 1 (char 0)); give one object a line",
            write("text.jsonl", "The cats sleep.\n"),
        ),
        Row(
            "nothing left",
            PREPARE,
            "new: no sentence to store; give more text, or filters that let some pass",
            write("text.txt", "a\n"),
        ),
        Row(
            "the store exists",
            f"{PREPARE} --out store",
            "store: exists; name another place for the store, or ask to overwrite it (--overwrite)",
        ),
        Row(
            "no store is there",
            f"{PREPARE} --out gpt2",
            "gpt2: exists and is not a token store; name another place for the store",
        ),
        Row(
            "a store below a file",
            f"{PREPARE} --out text.txt/new",
            "text.txt/new: text.txt is a file, and no folder; name another place",
        ),
        Row(
            "no such tokenizer",
            f"{PREPARE} --tokenizer none",
            "tokenizer 'none': neither 'gpt2' nor a tokenizer.json, nor a folder with one, with vocab.bpe and encoder.json, or with a saved tokenizer",
        ),
        Row(
            "a tokenizer.json of another kind",
            f"{PREPARE} --tokenizer words.json",
            "words.json: its model is WordPiece; give a byte-level BPE with GPT-2's pattern",
            write("words.json", '{"model": {"type": "WordPiece", "vocab": {"cat": 0}}}'),
        ),
        Row(
            "a vocabulary of no size",
            f"{PREPARE} --tokenizer train:many",
            "tokenizer 'train:many': give the number of ids to train, as in train:8192",
        ),
        Row(
            "a vocabulary that the text cannot fill",
            f"{PREPARE} --tokenizer train:600",
            "vocabulary size 600: the text has merges for 261 at most; ask for fewer, or give more text",
            write("text.txt", "ab ab\n" * 1000),
        ),
        Row(
            "a damaged tokenizer",
            PREPARE,
            "tokenizer: tokenizer.json does not describe ranks.tiktoken, one is damaged: copy them again",
            change("tokenizer/ranks.tiktoken", lambda content: content[:-9]),
        ),
        Row(
            "no such store",
            f"{STORE} --data.train none",
            "none/manifest.json: missing; not a token store: make one with python -m esnlm prepare",
        ),
        Row(
            "a store cut short",
            f"{STORE} --data.train store",
            "store/tokens.bin: 20 bytes where 22 belong; prepare the store again",
            change("store/tokens.bin", lambda content: content[:-2]),
        ),
        Row(
            "a store that claims too much",
            f"{STORE} --data.train store",
            "store: 1,000,000,000 sentences: a store has at most 536,870,912: make several",
            claim_a_billion,
        ),
        Row(
            "a store changed",
            f"{STORE} --data.train store",
            "store/tokens.bin: changed since it was made (its sha256 differs); prepare the store again",
            change("store/tokens.bin", lambda content: bytes(2) + content[2:]),
        ),
    ],
    "Configurations": [
        Row(
            "no such file",
            "python train.py --config none.yaml",
            "none.yaml: No such file or directory; name a configuration file that is there",
        ),
        Row(
            "a variable that is not set",
            "python train.py --config ''",
            "argument --config: the value is empty, as that of a variable which is not set; give one (see --help)",
        ),
        Row(
            "a file without its option",
            "python train.py small.yaml",
            "small.yaml: no option stands before it; give a configuration with --config small.yaml",
        ),
        Row(
            "an unknown section",
            TRAIN,
            "small.yaml: unknown key 'trainng': choose from run, seed, data, model, training, compute, parent, tracking",
            write("small.yaml", "trainng: {epochs: 2}"),
        ),
        Row(
            "a tracker that nobody registers",
            f"{TRAIN} --tracking [tape]",
            "tracking has 'tape': choose from csv, tensorboard, …",
        ),
        Row(
            "an unknown setting",
            TRAIN,
            f"small.yaml: training.epoch: adamw has no such setting; choose from {SETTINGS}",
            write("small.yaml", "training: {epoch: 2}"),
        ),
        Row(
            "an unknown option",
            f"{TRAIN} --training.epoch 2",
            f"command line: training.epoch: adamw has no such setting; choose from {SETTINGS}",
        ),
        Row(
            "another type",
            f"{TRAIN} --training.epochs two",
            "command line: training.epochs is two: it must be a whole number",
        ),
        Row(
            "neither of two types",
            f"{TRAIN} --training.ema often",
            "command line: training.ema is often: it must be a number or null",
        ),
        Row(
            "a word where a list belongs",
            f"{TRAIN} --tracking csv",
            "command line: tracking is csv: it must be a list such as [a, b]",
        ),
        Row(
            "a number where a mapping belongs",
            f"{TRAIN} --compute.mesh 8",
            "command line: compute.mesh is 8: it must be a mapping such as {a: 1} or null",
        ),
        Row("another range", f"{TRAIN} --training.batch_size 0", "training.batch_size is 0: it must be at least 1"),
        Row(
            "no finite number",
            TRAIN,
            "training.learning_rate is inf: it must be a finite number",
            write("small.yaml", "training: {learning_rate: .inf}"),
        ),
        Row(
            "aliases without end",
            TRAIN,
            "small.yaml: more than 10,000 values, aliases counted as often as they are used: not a configuration",
            write("small.yaml", "run: &a [*a]"),
        ),
        Row(
            "a file of megabytes",
            TRAIN,
            "small.yaml: 20,000,000 bytes, and at most 65,536 are read: not a file of this kind",
            write("small.yaml", "#\n" * 10_000_000),
        ),
        Row(
            "a list of thousands",
            TRAIN,
            "training.checkpoint_words has 1,001 values: it must have at most 1,000",
            write("small.yaml", f"training: {{checkpoint_words: {[1] * 1001}}}"),
        ),
        Row(
            "a key twice",
            TRAIN,
            "small.yaml: seed stands twice in one section, at line 3: leave one of them out",
            write("small.yaml", "seed: 1\nrun: new\nseed: 2"),
        ),
        Row(
            "brackets without end",
            TRAIN,
            "small.yaml: not a YAML file: more than 50 sections within each other, at line 1",
            write("small.yaml", "data: " + "[" * 9000),
        ),
        Row(
            "an unknown model",
            f"{TRAIN} --model.family gru",
            "model.family is 'gru': choose esn, lstm, gpt2, jaeger, deep_readout",
        ),
        Row(
            "an unknown kernel",
            f"{TRAIN} --compute.kernel coo",
            "compute.kernel is 'coo': choose auto, bcoo, csr, ell, dense, fused",
        ),
        Row(
            "a GPU's kernel on a CPU",
            f"{TRAIN} --compute.kernel fused",
            "compute.kernel is fused: it is for GPUs, and JAX computes on a cpu here; choose auto",
        ),
        Row(
            "an unknown precision of states",
            f"{TRAIN} --compute.state_precision fp8",
            "compute.state_precision is 'fp8': choose float32, bf16",
        ),
        Row(
            "rounded states of a model without any",
            TRAIN,
            "compute.state_precision is bf16: LSTM 512 has no reservoir, whose states it is about; leave it out",
            write("small.yaml", "model: {family: lstm, width: 512}\ncompute: {state_precision: bf16}"),
        ),
        Row(
            "an unknown precision",
            f"{TRAIN} --compute.precision fp8",
            "compute.precision is 'fp8': choose float32, tf32, bf16",
        ),
        Row(
            "TF32 on a CPU",
            f"{TRAIN} --compute.precision tf32",
            "compute.precision is tf32: a CPU has no such products; choose float32 or bf16",
        ),
        Row(
            "an unknown cross-entropy",
            f"{TRAIN} --compute.cross_entropy flash",
            "compute.cross_entropy is 'flash': choose auto, plain, fused",
        ),
        Row(
            "a fused cross-entropy on a CPU",
            f"{TRAIN} --compute.cross_entropy fused",
            "compute.cross_entropy is fused: it is for GPUs, and JAX computes on a cpu here; choose auto",
        ),
        Row(
            "a fused cross-entropy that is too wide",
            f"{TRAIN} --compute.cross_entropy fused --model.readout.rank 600",
            "compute.cross_entropy is fused: the readout of this model has 600 columns, and the kernel takes at most 512;"
            " choose auto",
        ),
        Row(
            "a fused cross-entropy over a counted model",
            f"{TRAIN} --compute.cross_entropy fused --model.readout.counted bigram",
            "compute.cross_entropy is fused: the kernel adds no counted model to the logits; choose auto",
            deep_readout,
        ),
        Row(
            "no memory for states",
            f"{TRAIN} --compute.window_tokens 0",
            "compute.window_tokens is 0: it must be at least 1",
        ),
        Row(
            "no memory for logits",
            f"{TRAIN} --compute.chunk_tokens 0",
            "compute.chunk_tokens is 0: it must be at least 1",
        ),
        Row(
            "more than the memory",
            f"{TRAIN} --model.readout.rank 1000000000",
            "this run needs at least 6,960.0 GB of memory (what is trained 6,960.0, what is frozen 0.0, features 0.0) and this machine has … GB;"
            " choose a smaller model, or try it all the same with ESNLM_MEMORY_CHECK=off",
        ),
        Row(
            "no updates to trace",
            f"{TRAIN} --profile 10",
            "--profile 10: give the first and the last update, as in --profile 100:110",
        ),
        Row(
            "updates in the wrong order",
            f"{TRAIN} --profile 2:1",
            "--profile 2:1: updates are counted from 1, and the last is not before the first, as in --profile 100:110",
        ),
        Row(
            "updates after the last",
            f"{TRAIN} --profile 2:30",
            "--profile 2:30: this run has 2 updates; name two of these",
        ),
        Row(
            "updates of a regression",
            f"{TRAIN} --training.kind ridge --model.readout.rank null --profile 1:2",
            "--profile 1:2: a regression makes no updates; leave --profile out",
        ),
        Row(
            "no such device",
            f"{TRAIN} --plan --on h1000",
            "--on h1000: no device of that name is known; choose b200, h200, h100, h100-nvl, h100-pcie, a100, a100-pcie, a100-40gb, l40s,"
            " l4, rtx-4090, tpu-v4, tpu-v5e, tpu-v5p, tpu-v6e",
        ),
        Row(
            "no number of devices",
            f"{TRAIN} --plan --on h100:0",
            "--on h100:0: after the colon stands how many there are, as in h100:8 or h100:4x4",
        ),
        Row(
            "a mesh of more devices than are named",
            f"{TRAIN} --plan --on h100:8 --compute.mesh '{{data: 4, vocabulary: 4}}'",
            "compute.mesh is data 4 x vocabulary 4: it needs 16 devices and --on h100:8 names 8; lower it, give null, or name more"
            " devices",
        ),
        Row(
            "a device to train on",
            f"{TRAIN} --on h100",
            "--on h100: nothing is trained there; give --plan too",
        ),
        Row("no slots", f"{TRAIN} --compute.batch_slots 0", "compute.batch_slots is 0: it must be at least 1"),
        Row(
            "an axis that no mesh has",
            f"{TRAIN} --compute.mesh '{{model: 2}}'",
            "compute.mesh has the axis 'model': choose data, vocabulary, units",
        ),
        Row(
            "fewer than no devices",
            f"{TRAIN} --compute.mesh '{{data: -2}}'",
            "compute.mesh.data is -2: it must be at least 1",
        ),
        Row(
            "more devices than there are",
            f"{TRAIN} --compute.mesh '{{data: 2, vocabulary: 400}}'",
            "compute.mesh is data 2 x vocabulary 400: it needs 800 devices and there are …; lower it, or give null",
        ),
        Row(
            "more parts of a reservoir than devices",
            f"{TRAIN} --compute.mesh '{{units: 2}}'",
            "compute.mesh.units is 2: it must divide compute.mesh.vocabulary, which is 1; change one of them",
        ),
        Row(
            "units in unequal parts",
            f"{TRAIN} --compute.mesh '{{vocabulary: 3, units: 3}}'",
            "compute.mesh.units is 3: it does not divide model.reservoir.state_size, which is 16; leave it out",
        ),
        Row(
            "a reservoir in parts that is trained",
            f"{TRAIN} --compute.mesh '{{vocabulary: 2, units: 2}}' --model.train_input true",
            "compute.mesh.units is 2: ESN+i 16, rank 4 has no frozen reservoir, which alone is cut by unit; leave it out",
        ),
        Row(
            "a reservoir in parts, and an update rule of one's own",
            f"{TRAIN} --compute.mesh '{{vocabulary: 2, units: 2}}' --model.reservoir.update_rule lateral",
            "compute.mesh.units is 2: the update rule lateral is a program's own, and may read other units; leave it out",
        ),
        Row(
            "a reservoir in parts, and a shift of the units",
            f"{TRAIN} --compute.mesh '{{vocabulary: 2, units: 2}}' --model.reservoir.update_rule residual_shift",
            "compute.mesh.units is 2: the update rule residual_shift reads other units; leave it out",
        ),
    ],
    "Reservoirs and models": [
        Row(
            "a degree above the size",
            f"{TRAIN} --model.reservoir.mean_degree 17",
            "model.reservoir.mean_degree is 17.0: it must be above 0 and at most model.reservoir.state_size = 16, since connectivity = "
            "mean_degree / state_size; lower mean_degree or raise state_size",
        ),
        Row(
            "a connectivity that is no share",
            f"{TRAIN} --model.reservoir.connectivity 1.5",
            "model.reservoir.connectivity is 1.5: it must be above 1e-12 and at most 1",
        ),
        Row(
            "an unknown model under the logits",
            f"{TRAIN} --model.readout.counted trigram",
            "model.readout.counted is 'trigram': choose none, bigram",
            deep_readout,
        ),
        Row(
            "a counted model of very many tokens",
            f"{STORE} --model.readout.counted bigram --data.train many",
            "model.readout.counted is bigram: its table for 32,257 tokens would take 4.2 GB, and at most 4 GB are used; choose"
            " none, or a smaller vocabulary",
            many_words,
        ),
        Row(
            "a dropout that is no share",
            f"{TRAIN} --model.dropout 1",
            "model.dropout is 1.0: it must be at least 0 and below 1",
        ),
        Row(
            "a ring with a density",
            f"{TRAIN} --model.reservoir.topology.kind ring --model.reservoir.connectivity 0.1",
            "model.reservoir.connectivity is 0.1: topology ring has a density of its own; leave it out, and for W_in give "
            "input_connectivity",
        ),
        Row(
            "a small world of more neighbours than units",
            f"{TRAIN} --model.reservoir.topology.kind small_world --model.reservoir.topology.degree 16",
            "model.reservoir.topology.degree is 16: it must be even, at least 2 and below the state size, 16",
        ),
        Row(
            "an antisymmetric matrix of more neighbours than units",
            f"{TRAIN} --model.reservoir.topology.kind antisymmetric --model.reservoir.topology.mean_degree 16",
            "model.reservoir.topology.mean_degree is 16.0: it must be above 0 and at most 15, one less than the state size",
        ),
        Row(
            "no such spacing of the leaks",
            f"{TRAIN} --model.reservoir.leak_spacing even",
            "model.reservoir.leak_spacing is even: choose uniform or log",
        ),
        Row(
            "spaced leaks in continuous time",
            f"{TRAIN} --model.reservoir.leak_spacing log --model.reservoir.leak_min 0.1 --model.reservoir.continuous.step 0.5",
            "model.reservoir.leak_spacing is log: in continuous time all leaks are one; leave model.reservoir.continuous out, or"
            " give uniform",
        ),
        Row(
            "the logarithm of a leak of 0",
            f"{TRAIN} --model.reservoir.leak_spacing log",
            "model.reservoir.leak_min is 0.0: it must be above 0 where leak_spacing is log",
        ),
        Row(
            "a negative diffusion",
            f"{TRAIN} --model.reservoir.diffusion -1",
            "model.reservoir.diffusion is -1.0: it must not be negative",
        ),
        Row(
            "Euler's step in continuous time",
            f"{TRAIN} --model.reservoir.update_rule euler_state --model.reservoir.continuous '{{decay: 1}}'",
            "model.reservoir.update_rule is euler_state: it is a step in continuous time by itself; leave "
            "model.reservoir.continuous out",
        ),
        Row(
            "no such input weights",
            f"{TRAIN} --model.reservoir.input_weights learned",
            "model.reservoir.input_weights is learned: choose random or counted",
        ),
        Row(
            "counted input weights behind an embedding",
            f"{TRAIN} --model.reservoir.input_weights counted --model.reservoir.embedding 4",
            "model.reservoir.input_weights is counted: W_in reads no tokens behind an embedding; leave "
            "model.reservoir.embedding out",
        ),
        Row(
            "counted input weights without a training",
            "python -m esnlm diagnose --config small.yaml --out new --model.reservoir.input_weights counted",
            "model.reservoir.input_weights is counted: only a training has the text that it counts; train first, and give the run, "
            "or choose random",
        ),
        Row(
            "the radius of a matrix of zeros",
            f"{TRAIN} --model.reservoir.connectivity 1e-9",
            "model.reservoir: 100 draws of W_rec at connectivity 1e-09 all have spectral radius 0; raise mean_degree or connectivity",
        ),
    ],
    "Other readouts": [
        Row(
            "a regularisation that leaves the system singular",
            f"{TRAIN} --training.kind ridge --training.regularizations [0] --data.sentences 2 --model.reservoir.state_size 600",
            "training.regularizations: at 0 the normal equations are singular, since states depend on each other (eigenvalues from …); "
            "leave it out, or raise it",
            begins_a_run=True,
        ),
        Row(
            "a negative regularisation",
            f"{TRAIN} --training.kind ridge --training.regularizations [-1]",
            "training.regularizations is (-1.0,): it must hold numbers of at least 0",
        ),
        Row(
            "recursive least squares of low rank",
            f"{TRAIN} --training.kind rls",
            "model.readout.rank is 4: training.kind rls makes a readout of full rank; set it to null, or choose ridge or adamw",
        ),
        Row(
            "forgetting everything",
            f"{TRAIN} --training.kind rls --model.readout.rank null --training.forgetting 0",
            "training.forgetting is 0.0: it must be above 0 and at most 1",
        ),
        Row(
            "regression with dropout",
            f"{TRAIN} --training.kind ridge --model.dropout 0.1",
            "model.dropout is 0.1: training.kind ridge has none; set it to 0, or choose adamw",
        ),
        Row(
            "an unknown scaling",
            f"{TRAIN} --model.readout.scaling mup",
            "model.readout.scaling is 'mup': choose none, ntp, spectral, dynamic",
        ),
        Row(
            "a scaling of one matrix",
            f"{TRAIN} --model.readout.scaling ntp --model.readout.rank null",
            "model.readout.scaling is ntp, which is for W_out = A B: give model.readout.rank, or scaling none",
        ),
    ],
    "Studies and diagnoses": [
        Row(
            "no such study",
            "python -m esnlm study none.yaml",
            "none.yaml: No such file or directory; name a study file, such as those in configs/studies",
        ),
        Row(
            "a study behind its settings",
            "python -m esnlm study --seed 3 study.yaml",
            "3: no such file; the study file stands before all settings, as in esnlm study FILE --seed 3",
        ),
        Row(
            "no study",
            "python -m esnlm study small.yaml",
            "small.yaml: kind is None: a study is one of grid, search, alignment, coordinate_check, exponents, training_curves",
        ),
        Row(
            "two cells of one name",
            "python -m esnlm study study.yaml",
            "study.yaml: a stands twice in one section, at line 3: leave one of them out",
            write("study.yaml", "kind: grid\nbase: small.yaml\nruns: {cases: {a: {}, a: {seed: 1}}}"),
        ),
        Row(
            "a grid of very many runs",
            "python -m esnlm study study.yaml",
            "study.yaml: 1,000,000 runs: a study has at most 1,000: divide it into several",
            write(
                "study.yaml",
                "kind: grid\nbase: small.yaml\nruns: {grid: {training.epochs: &a "
                f"{list(range(100))}, training.batch_size: *a, training.log_every: *a}}}}",
            ),
        ),
        Row(
            "what the study sets",
            "python -m esnlm study study.yaml --seed 3",
            "command line: --seed is for study.yaml to set: change it there, or give a list, as --seed '[...]'",
            write("study.yaml", "kind: grid\nbase: small.yaml\nruns: {cases: {a: {}}}\nseeds: [0]"),
        ),
        Row(
            "no claims",
            "python -m esnlm claims . --claims none.yaml",
            "none.yaml: No such file or directory; name a file of claims, such as configs/studies/claims.yaml",
        ),
        Row(
            "a claim that nothing tests",
            "python -m esnlm claims . --claims claims.yaml",
            "claims.yaml: claims.1.parts.1: it has no check: give one of falls, rises, below, above, under, over, flat, steep,"
            " or why without one",
            write("claims.yaml", CLAIMS.replace(", falls: {along: epochs}", "")),
        ),
        Row(
            "claims without studies",
            "python -m esnlm claims . --claims claims.yaml",
            ".: has none of the studies size; name the folder in which their folders lie",
            write("claims.yaml", CLAIMS),
        ),
        Row(
            "no number of jobs",
            "python -m esnlm study study.yaml --jobs 0",
            "--jobs is 0: give a number from 1 up, or auto",
        ),
        Row(
            "no part of an array",
            "python -m esnlm study study.yaml --cell 3",
            "--cell is 3: give I/N, such as 0/8 for the first of 8 processes",
        ),
        Row(
            "an array counted from 1",
            "python -m esnlm study study.yaml --cell 8/8",
            "--cell is 8/8: I is counted from 0 to 7 (sbatch --array=0-7)",
        ),
        Row(
            "a part of a search",
            "python -m esnlm study search.yaml --cell 0/8",
            "search.yaml: a search builds on the results of all its trials: give --jobs in place of --cell",
            write("search.yaml", SEARCH),
        ),
        Row(
            "a search of nothing",
            "python -m esnlm study search.yaml",
            "search.yaml: search is None: it must hold settings, each with low and high, or with choices",
            write("search.yaml", "{kind: search, base: small.yaml, trials: 3}"),
        ),
        Row(
            "a search without end",
            "python -m esnlm study search.yaml",
            "search.yaml: trials is None: it must be a whole number from 1 to 1,000",
            write("search.yaml", SEARCH.replace("trials: 3, ", "")),
        ),
        Row(
            "a range from above to below",
            "python -m esnlm study search.yaml",
            "search.yaml: search.training.learning_rate: low is 0.1 and high 0.01: high must be above low",
            write("search.yaml", SEARCH.replace("0.001", "0.1")),
        ),
        Row(
            "a range of logarithms from 0",
            "python -m esnlm study search.yaml",
            "search.yaml: search.training.learning_rate: low is 0: it must be above 0 on a logarithmic scale",
            write("search.yaml", SEARCH.replace("0.001", "0")),
        ),
        Row(
            "a setting that there is not",
            "python -m esnlm study search.yaml",
            "search.yaml: rate=0.001: training.rate: adamw has no such setting; choose from …",
            write("search.yaml", SEARCH.replace("learning_rate", "rate")),
        ),
        Row(
            "an objective that there is not",
            "python -m esnlm study search.yaml",
            "search.yaml: objective is 'nll': choose val_nll, val_bits_per_byte, perplexity, train_nll, blimp",
            write("search.yaml", SEARCH.replace("trials: 3", "trials: 3, objective: nll")),
        ),
        Row(
            "an objective without its text",
            "python -m esnlm study search.yaml --data.train store --data.validation null",
            "search.yaml: objective is val_nll: name validation text, with data.validation",
            write("search.yaml", SEARCH.replace("small", "store")),
        ),
        Row(
            "what the search sets",
            "python -m esnlm study search.yaml --training.learning_rate 1",
            "command line: --training.learning_rate is for search.yaml to set: change it there",
            write("search.yaml", SEARCH),
        ),
        Row(
            "nothing to diagnose",
            "python -m esnlm diagnose",
            "nothing to diagnose: give a run directory (--run), a configuration (--config) or both",
        ),
        Row(
            "a diagnosis of a deep readout",
            "python -m esnlm diagnose --config small.yaml --out new",
            "small.yaml: ESN 16, rank 4 is a deep readout, and diagnose reads an echo state network; diagnose one with the same"
            " model.reservoir, in a configuration with model.family: esn",
            deep_readout,
        ),
        Row(
            "a diagnosis that would replace something else",
            "python -m esnlm diagnose --run run --out report",
            "report: has files of a report without its diagnostics.json; name another folder with --out, or give --overwrite",
            lambda: (Path("report").mkdir(), Path("report/diagnostics.md").write_text("mine")),
        ),
    ],
    "Signals, in Python": [
        Row(
            "feedback without the teacher's outputs",
            "network.run(network.draw(20, inputs=1, feedback_scale=1.0), u)",
            "this network has no W_out yet: train it",
        ),
        Row(
            "feedback without the teacher's outputs",
            "network.states(network.draw(20, inputs=1, feedback_scale=1.0), u)",
            "this network feeds its output back: give the teacher's outputs, or call generate for its own",
        ),
        Row(
            "no teacher",
            "network.train(network.draw(20, inputs=1), u, None, washout=5)",
            "there is no teacher: give the outputs to be learned",
        ),
        Row(
            "a washout of everything",
            "network.train(network.draw(20, inputs=1), u, y, washout=30)",
            "washout is 30: it must leave some of the 30 steps of the teacher",
        ),
        Row(
            "a teacher beyond f_out",
            "network.train(network.draw(20, inputs=1, output='tanh'), u, 3 + y, washout=5)",
            "the teacher reaches 3.5: f_out = tanh gives -1 .. 1 only; scale it, or draw with output='identity'",
        ),
        Row(
            "other lengths",
            "network.train(network.draw(20, inputs=1), u[:-1], y, washout=5)",
            "teacher has 30 steps, u has 29: give as many of both",
        ),
        Row(
            "no number", "network.states(network.draw(20, inputs=1), u * np.inf)", "u holds a number that is not finite"
        ),
    ],
    "Runs and checkpoints": [
        Row(
            "no such run",
            "python -m esnlm score --run none --input text.txt",
            "none: not a run directory: it has no config.yaml; give one that train.py wrote",
        ),
        *(
            Row(
                f"a run of another format, {what}",
                command,
                f"run: a run directory of format 1, and this version of esnlm reads format {FORMAT} only; use the version that "
                "wrote it, or train the run again in another directory",
                write("run/format.json", '{"format": 1}'),
            )
            for what, command in {
                "trained on": f"{TRAIN} --run run",
                "evaluated": "python eval_blimp.py --run run",
                "loaded": "python -m esnlm score --run run --input text.txt",
                "reported": "python -m esnlm report run",
                "diagnosed": "python -m esnlm diagnose --run run",
            }.items()
        ),
        *(
            Row(
                f"a file in place of a run, {what}",
                command,
                "text.txt: not a run directory: it has no config.yaml; give one that train.py wrote",
            )
            for what, command in {
                "scored with": "python -m esnlm score --run text.txt --input text.txt",
                "generated from": "python -m esnlm generate --run text.txt",
                "evaluated": "python eval_blimp.py --run text.txt",
                "diagnosed": "python -m esnlm diagnose --run text.txt",
            }.items()
        ),
        Row(
            "a file in place of a run, reported",
            "python -m esnlm report text.txt",
            "text.txt: no run directory; name one that train.py made",
        ),
        Row(
            "no such step",
            "python -m esnlm score --run run --input text.txt --step 9",
            "run/checkpoints: no checkpoint of step 9; there are: 2",
        ),
        Row(
            "no good checkpoint",
            "python -m esnlm score --run run --input text.txt",
            "run/checkpoints: no intact checkpoint (step 2: metadata.json: changed since it was saved); restore one from a copy, or delete "
            "this folder and the summary.json beside it to train from the start",
            damage_checkpoints,
        ),
        Row(
            "nothing to score",
            "python -m esnlm score --run run --input text.txt",
            "text.txt: empty: no sentence to score; give one a line",
            write("text.txt", ""),
        ),
        Row(
            "another configuration",
            f"{TRAIN} --run run --seed 7",
            "run/config.yaml: the run was begun with another configuration (seed 0 -> 7); give the same one (--config run/config.yaml --run run), "
            "or another run directory with --run",
        ),
        Row(
            "a token store in place of a run, trained",
            f"{TRAIN} --run store",
            "store: no run directory, and it has tokenizer, manifest.json already; choose another with --run",
        ),
        Row(
            "an empty sentence in a pair",
            "python eval_blimp.py --run run --data empty.jsonl",
            "empty.jsonl:1: field 'sentence_bad' is empty: give a sentence",
            write("empty.jsonl", '{"sentence_good": "the cat sleeps", "sentence_bad": " "}\n'),
        ),
        Row(
            "no run to report",
            "python -m esnlm report none",
            "none: no run directory; name one that train.py made",
        ),
        Row(
            "a folder that holds no run, reported",
            "python -m esnlm report none",
            "none: no run in this directory; name one that train.py made",
            lambda: Path("none").mkdir(),
        ),
        Row(
            "a table of a run that is not finished",
            "python -m esnlm report run",
            "run: not a finished run; train it to its end with train.py, or draw its losses so far: esnlm report RUN --plot FILE.png",
            lambda: (Path("run/summary.json").unlink(), Path("run/manifest.json").unlink()),
        ),
        Row(
            "a table beside a picture of runs of which none is finished",
            "python -m esnlm report run --plot losses.png --out table.md",
            "--out: none of the runs is finished, so that there is no table",
            lambda: (Path("run/summary.json").unlink(), Path("run/manifest.json").unlink()),
        ),
        Row(
            "a picture of a run that has logged no loss",
            "python -m esnlm report run --plot losses.png",
            "run/metrics.jsonl: no training loss in it is finite, or none yet: leave this run out",
            write("run/metrics.jsonl", ""),
        ),
        *(
            Row(
                f"a table that is no text, but {what}",
                f"python -m esnlm report run --out {out}",
                f"{out}: no name for a table; give one such as table.md, table.tex or table.csv, and table.json will stand beside it",
            )
            for what, out in {"JSON": "table.json", "a folder": "store"}.items()
        ),
        Row(
            "something else is there",
            "python -m esnlm report run --out table.csv",
            "table.csv: exists and is no table of runs; name another file with --out",
            write("table.csv", "word,frequency\n"),
        ),
        Row(
            "a table of another kind",
            "python -m esnlm report run --out table.xlsx",
            "table.xlsx: no name for a table; give one such as table.md, table.tex or table.csv, and table.json will "
            "stand beside it",
        ),
        Row(
            "a table in no folder",
            "python -m esnlm report run --out none/table.md",
            "none/table.md: No such file or directory; choose a folder that exists, or make it first",
        ),
        Row(
            "phenomena without a report",
            "python -m esnlm report run --by phenomenon --scoring lm-eval",
            "run: it has no report evaluation/blimp-lm-eval.json; make it with eval_blimp.py --run",
        ),
        Row(
            "nothing to overwrite",
            "python -m esnlm report run --overwrite",
            "--overwrite: tables and pages replace what is theirs without it; give it with --plot",
        ),
        Row(
            "a scoring where all are shown",
            "python -m esnlm report run --scoring lm-eval",
            "--scoring: the table by run has every report; give it with --by or --html",
        ),
        Row(
            "one seed twice",
            "python -m esnlm report run run --seeds",
            "run and run: the same settings and the same seed, 0; name one of them",
        ),
        Row(
            "a page of another kind",
            "python -m esnlm report run --html page.pdf",
            "page.pdf: no name for a page; give one such as page.html",
        ),
        Row(
            "a page in no folder",
            "python -m esnlm report run --html none/page.html",
            "none/page.html: No such file or directory; choose a folder that exists, or make it first",
        ),
        Row(
            "a page where another file is",
            "python -m esnlm report run --html index.html",
            "index.html: is there, and is no page of esnlm report: name another file with --html",
            write("index.html", "<p>Welcome</p>"),
        ),
        Row(
            "a page and a table",
            "python -m esnlm report run --html page.html --out table.md",
            "--html: a page has all tables; leave --out and --by out",
        ),
        Row(
            "a page and a picture",
            "python -m esnlm report run --html page.html --plot losses.png",
            "--html: a page has its own pictures; leave --plot out",
        ),
        Row(
            "a picture of another kind",
            "python -m esnlm report run --plot losses.pdf",
            "losses.pdf: the plot's name must end in .png",
        ),
        Row(
            "a picture where another file is",
            "python -m esnlm report run --plot losses.png",
            "losses.png: exists: name another file, or replace it with --overwrite",
            write("losses.png", "of another program"),
        ),
        Row(
            "a page of a study of an earlier version",
            "python -m esnlm report . --html page.html",
            "table.json: not as esnlm study writes it now; the study's command makes it again",
            write("table.json", '{"format": "esnlm study", "cells": []}'),
        ),
        Row(
            "a page of a study that has not begun",
            "python -m esnlm report . --html page.html",
            ".: a study without a finished run: go on with its command first",
            write(
                "table.json",
                '{"format": "esnlm study", "study": "new", "note": "", "command": "", "columns": {}, "cells": [],'
                ' "reference": {"source": "", "cells": {}}}',
            ),
        ),
        Row(
            "a page of losses that were changed",
            "python -m esnlm report run --html page.html",
            "run/metrics.jsonl: changed since it was written; restore it from a copy of the run",
            change("run/metrics.jsonl", lambda content: content.replace(b"0", b"1")),
        ),
        Row(
            "a page of a damaged diagnosis",
            "python -m esnlm report run --html page.html",
            "run/diagnostics/diagnostics.json: damaged; make it again with esnlm diagnose --run run --overwrite",
            damage_diagnosis,
        ),
        Row("no command", "python -m esnlm", "the following arguments are required: COMMAND (see --help)"),
        Row("another option", "python -m esnlm report run --seed 3", "unrecognized arguments: --seed 3 (see --help)"),
        Row(
            "no length",
            "python -m esnlm generate --run run --length 0",
            "count 1, length 0, temperature 1.0, top_k None: count, length and top_k must be at least 1, temperature at least 0",
        ),
        Row(
            "a temperature that is no number",
            "python -m esnlm generate --run run --temperature nan",
            "temperature is nan: it must be a finite number",
        ),
        Row(
            "a negative seed",
            "python -m esnlm generate --run run --seed -1",
            "seed is -1: it must be from 0 to 4294967295",
        ),
    ],
    "Likelihood of texts": [
        Row(
            "nothing to measure",
            LIKELIHOOD,
            "nothing to measure: give token stores (--store), texts (--text) or both",
        ),
        Row(
            "no such store",
            f"{LIKELIHOOD} --store none",
            "none/manifest.json: missing; not a token store: make one with python -m esnlm prepare",
        ),
        Row(
            "a store of another tokenizer",
            f"{LIKELIHOOD} --store store",
            "store store was made with tokenizer words (…), not words (…): prepare its text again with that tokenizer",
        ),
        Row(
            "no such text",
            f"{LIKELIHOOD} --text none.txt",
            "none.txt: cannot be read: No such file or directory",
        ),
        Row(
            "a text without a sentence",
            f"{LIKELIHOOD} --text text.txt",
            "text.txt: empty, or nothing but white space: no sentence in it",
            write("text.txt", " \n\n"),
        ),
        Row(
            "the figures would replace a file",
            f"{LIKELIHOOD} --text text.txt --out old.json",
            "old.json: exists; name another file with --out, or replace it with --overwrite",
            write("old.json", "{}"),
        ),
        Row(
            "figures in no folder",
            f"{LIKELIHOOD} --text text.txt --out none/new.json",
            "none/new.json: no such folder; choose a folder that exists, or make it first",
        ),
        Row(
            "figures in no JSON file",
            f"{LIKELIHOOD} --text text.txt --out table.md",
            "table.md: no name for a JSON file; give one such as dev.json",
        ),
    ],
    "Learning curves": [
        Row("an order of nothing", f"{CURVE} --order 1", "--order 1: give 2 (a bigram model) or more"),
        Row(
            "a run in the cloud",
            "python -m esnlm curve --run s3://bucket/run --store store",
            "s3://bucket/run: a learning curve reads all checkpoints; copy the run to this machine first",
        ),
        Row(
            "a convention, and nothing to score by it",
            f"{CURVE} --scoring lm-eval",
            "--scoring lm-eval: no minimal pairs are scored; name them with --data",
        ),
        Row(
            "no such pairs",
            f"{CURVE} --data none.jsonl",
            "none.jsonl: no such file or folder of minimal pairs",
        ),
        Row(
            "the figures would replace something else",
            f"{CURVE} --out old.json",
            "old.json: holds something else than this curve; name another file with --out, or give --overwrite",
            write("old.json", "{}"),
        ),
        Row(
            "figures in no JSON file",
            f"{CURVE} --out curve.md",
            "curve.md: no name for a JSON file; give one such as curve.json",
        ),
    ],
    "Surprisals": [
        Row(
            "another convention",
            f"{TOKENS} --input text.txt --scoring babylm",
            "scoring babylm does not score the first token of a sentence, so its first word has no surprisal: choose paper or no-eos or lm-eval",
        ),
        Row(
            "no text",
            f"{TOKENS} --input text.txt",
            "text.txt: no sentence to score: all of it is white space",
            write("text.txt", "\n \n"),
        ),
        Row(
            "one file for two",
            f"{TOKENS} --input text.txt --out rows.png --format tsv --plot rows.png",
            "rows.png: it is named for the table and for the plot; name two files",
        ),
        Row(
            "no such table",
            f"{TOKENS} --input none.tsv --column text",
            "none.tsv: cannot be read: No such file or directory",
        ),
        Row(
            "an empty table",
            f"{TOKENS} --input items.tsv --column text",
            "items.tsv: empty: the first line of a table names its columns",
            write("items.tsv", ""),
        ),
        Row(
            "a table without rows",
            f"{TOKENS} --input items.tsv --column text",
            "items.tsv: no row below the names of its columns",
            write("items.tsv", "item\ttext\n"),
        ),
        Row(
            "a column twice",
            f"{TOKENS} --input items.tsv --column text",
            "items.tsv:1: column 'text' stands twice: give each its own name",
            write("items.tsv", "text\ttext\na\tb\n"),
        ),
        Row(
            "no such column",
            f"{TOKENS} --input items.tsv --column sentence",
            "items.tsv: no column 'sentence': choose from item, text",
            write("items.tsv", "item\ttext\n1\tThe cats sleep.\n"),
        ),
        Row(
            "a row of too few cells",
            f"{TOKENS} --input items.csv --column text",
            "items.csv:3: 1 cells where the first line names 2 columns",
            write("items.csv", "item,text\n1,The cats sleep.\n2\n"),
        ),
        Row(
            "a quotation mark that is not closed",
            f"{TOKENS} --input items.csv --column text",
            "items.csv:2: not a row of a table (unexpected end of data): a cell that begins with a quotation mark ends with one, and "
            "marks inside it are doubled (esnlm score takes marks as they are with --no-quotes)",
            write("items.csv", 'item,text\n1,"The cats sleep.\n'),
        ),
        Row(
            "a column of ours",
            f"{TOKENS} --input items.tsv --column text",
            "items.tsv: column 'word' would stand twice in the table, which has sentence, position, word, start, end, surprisal_bits of its "
            "own: give it another name",
            write("items.tsv", "word\ttext\n1\tThe cats sleep.\n"),
        ),
        Row(
            "a row without a word",
            f"{TOKENS} --input words.csv --word word --sentence item",
            "words.csv:3: no word in column 'word': leave the row out",
            write("words.csv", "item,word\n1,The\n1,\n"),
        ),
        Row(
            "words and sentences",
            f"{TOKENS} --input words.csv --word word --column word",
            "--column has whole sentences and --word has words: give one of them",
            write("words.csv", "item,word\n1,The\n"),
        ),
        Row(
            "sentences of no words",
            f"{TOKENS} --input text.txt --sentence item",
            "--sentence: for a table with a row a word, so give --word too",
        ),
        Row(
            "words by tokens",
            f"{TOKENS} --input words.csv --word word --sentence item --by token",
            "by is 'token': with --word, a row is what a row of the table is; leave it out",
        ),
        Row(
            "a column of surprisals",
            f"{TOKENS} --input words.csv --word word --sentence item",
            "words.csv: has a column 'surprisal_bits' already: give it another name",
            write("words.csv", "item,word,surprisal_bits\n1,The,2\n"),
        ),
        Row(
            "documents without a table",
            f"{TOKENS} --input text.txt --document story",
            "--document names a column that tells documents apart: give --column and --context document with it",
        ),
        Row(
            "a table of no known format",
            f"{TOKENS} --input text.txt --out rows.xlsx",
            "rows.xlsx: its name does not say which table to write: end it in .tsv, .csv or .jsonl, or give --format",
        ),
        Row(
            "a plot that is no PNG",
            f"{TOKENS} --input text.txt --plot a.pdf",
            "a.pdf: the plot's name must end in .png",
        ),
        Row(
            "the table exists",
            f"{TOKENS} --input text.txt --out text.txt --format tsv",
            "text.txt: exists: name another file, or replace it with --overwrite",
        ),
        Row(
            "an option without the table",
            "python -m esnlm score --run run --input text.txt --by word --no-eos",
            "--by, --no-eos: for the table of surprisals, so give --tokens too",
        ),
        Row(
            "words where rows are tokens",
            f"{TOKENS} --input text.txt --by token --punctuation separate",
            "punctuation is 'separate': it says what a word is, and a row is a token; choose by 'word', or leave it out",
        ),
    ],
    "Minimal pairs": [
        Row("no such file", BLIMP, "pairs.jsonl: no such file or folder of minimal pairs"),
        Row(
            "an empty file",
            BLIMP,
            "pairs.jsonl: the file is empty: one JSON object a line is needed",
            write("pairs.jsonl", "\n"),
        ),
        Row(
            "no JSON",
            BLIMP,
            "pairs.jsonl:1: not JSON (Expecting value, column 1): one object a line",
            write("pairs.jsonl", "a"),
        ),
        Row(
            "brackets without end",
            BLIMP,
            "pairs.jsonl:1: not JSON (nested too deeply): one object a line",
            write("pairs.jsonl", "[" * 100_000),
        ),
        Row(
            "no pair",
            BLIMP,
            "pairs.jsonl:1: field 'sentence_bad' is missing",
            write("pairs.jsonl", '{"sentence_good": "a"}'),
        ),
        Row(
            "no text",
            BLIMP,
            "pairs.jsonl:1: field 'sentence_bad' has half a surrogate pair, which is no text",
            write("pairs.jsonl", r'{"sentence_good": "a", "sentence_bad": "\ud83d"}'),
        ),
        Row(
            "no such name in a folder",
            "python eval_blimp.py --run run --data run/minimal_pairs/npi_3",
            "run/minimal_pairs/npi_3: no such file or folder of minimal pairs, and no paradigm, phenomenon or field in run/minimal_pairs has "
            "this name: name one of those in its files",
        ),
        Row(
            "columns without a file",
            "python eval_blimp.py --run run --good right",
            "--good: for pairs that --data names",
        ),
        Row(
            "a missing field",
            f"{BLIMP} --bad wrong",
            "pairs.jsonl:1: field 'wrong' is missing",
            write("pairs.jsonl", '{"sentence_good": "a", "sentence_bad": "b"}'),
        ),
        Row(
            "a missing column",
            "python eval_blimp.py --run run --data pairs.tsv --group kind",
            "pairs.tsv: no column 'kind': choose from sentence_good, sentence_bad",
            write("pairs.tsv", "sentence_good\tsentence_bad\na\tb\n"),
        ),
        Row(
            "a row of too few cells",
            "python eval_blimp.py --run run --data pairs.tsv",
            "pairs.tsv:2: 1 cells where the first line names 2 columns",
            write("pairs.tsv", "sentence_good\tsentence_bad\na\n"),
        ),
        Row(
            "a set of one sentence",
            BLIMP,
            "pairs.jsonl:1: field 'sentence_bad' is an empty list: give at least one sentence",
            write("pairs.jsonl", '{"sentence_good": "a", "sentence_bad": []}'),
        ),
        Row(
            "half a pair of lines",
            ZORRO,
            "case-pronoun.txt: 3 lines, an odd number: each ungrammatical sentence is followed by its grammatical one",
            write("case-pronoun.txt", "a\nb\nc\n"),
        ),
        Row(
            "a blank line in a pair of lines",
            ZORRO,
            "case-pronoun.txt:1: a blank line in a pair: each has two sentences, the ungrammatical one first",
            write("case-pronoun.txt", "a\n\nb\nc\n"),
        ),
        Row(
            "no pair of lines",
            ZORRO,
            "case-pronoun.txt: the file is empty: two lines a pair are needed, the ungrammatical sentence first",
            write("case-pronoun.txt", ""),
        ),
        Row(
            "no test suite",
            SUITE,
            "suite.json: not a test suite: it needs meta, predictions with formulas, and items with conditions and regions, as SyntaxGym's "
            "have them",
            write("suite.json", '{"meta": {}, "predictions": []}'),
        ),
        Row(
            "a statistic of regions other than the sum",
            SUITE,
            'suite.json: meta.metric is "mean": only sum is known',
            suite("(1;%a%) > 0", metric="mean"),
        ),
        Row(
            "no formula",
            SUITE,
            "suite.json: predictions[0]: formula '(1;%a%) > * 2' cannot be read at character 11: a region such as (6;%match%), a number, an "
            "operator or a bracket is wanted there",
            suite("(1;%a%) > * 2"),
        ),
        Row(
            "a formula that compares nothing",
            SUITE,
            "suite.json: predictions[0]: formula '(1;%a%) - 2' compares nothing: it needs one of < > =",
            suite("(1;%a%) - 2"),
        ),
        Row(
            "brackets within each other",
            SUITE,
            "suite.json: predictions[0]: the formula has more than 30 brackets within each other",
            suite("(" * 40),
        ),
        Row(
            "a formula without end",
            SUITE,
            "suite.json: predictions[0]: the formula has 1002 symbols: at most 400 are read",
            suite("1+" * 500 + "1"),
        ),
        Row(
            "a missing condition",
            SUITE,
            "suite.json: item 1: no condition 'b', which the formula names: it has a",
            suite("(1;%a%) > (1;%b%)"),
        ),
        Row(
            "a missing region",
            SUITE,
            "suite.json: item 1, condition 'a': no region 7, which the formula names: it has 1",
            suite("(7;%a%) > 0"),
        ),
        Row(
            "another model's report is there",
            f"{BLIMP} --out old.json",
            "old.json: not a report of minimal pairs",
            lambda: (write("pairs.jsonl", '{"sentence_good": "a", "sentence_bad": "b"}')(), write("old.json", "{}")()),
        ),
    ],
    "lm-evaluation-harness": [
        Row(
            "no such task",
            f"{LM_EVAL} blimp_subject",
            "task 'blimp_subject': lm-evaluation-harness … has no such task: `lm-eval ls tasks` lists them",
            write("pairs.jsonl", PAIR),
        ),
        Row(
            "no pairs of a task",
            f"{LM_EVAL} blimp_passive_1",
            "task 'blimp_passive_1': the data has no pairs of the paradigm 'passive_1': give its file too",
            write("pairs.jsonl", PAIR),
        ),
        Row(
            "no document",
            f"{LM_EVAL} blimp_wh_island --limit 0",
            "limit is 0: it must be at least 1",
            write("pairs.jsonl", PAIR),
        ),
        Row(
            "something else is there",
            f"{LM_EVAL} blimp_wh_island --out old.json",
            "old.json: exists and holds something else: name another file with --out, or replace it with --overwrite",
            lambda: (write("pairs.jsonl", PAIR)(), write("old.json", "{}")()),
        ),
        Row(
            "another file is in the way",
            f"{LM_EVAL} blimp_wh_island --out new.json",
            "new.samples.jsonl: is in the way: name another file with --out, or replace it with --overwrite",
            lambda: (write("pairs.jsonl", PAIR)(), write("new.samples.jsonl", "")()),
        ),
        Row(
            "results that are no JSON file",
            f"{LM_EVAL} blimp_wh_island --out old.txt",
            "old.txt: no name for the results; give one that ends in .json",
            write("pairs.jsonl", PAIR),
        ),
    ],
    "BabyLM's evaluation data": [
        Row("no such folder", BABYLM, "full_eval: no such folder: give the pipeline's full_eval or fast_eval"),
        Row(
            "a name outside of the results",
            f"{BABYLM} --model-name ..",
            "model name '..': it names a folder of the results: give one word",
        ),
        Row(
            "another folder",
            f"{BABYLM} --data store",
            "store: none of the pipeline's sets is here: give its full_eval or fast_eval",
        ),
        Row(
            "no such set",
            f"{BABYLM} --sets glue",
            f"set 'glue' is not known: choose {', '.join([*FOLDERS, 'reading', 'aoa'])}",
            babylm("comps/comps_base.jsonl", "{}"),
        ),
        Row(
            "a set is missing",
            f"{BABYLM} --sets reading",
            "full_eval/reading/reading_data.csv: missing: the set reading lies there in the pipeline's data",
            babylm("comps/comps_base.jsonl", "{}"),
        ),
        Row(
            "a folder without files",
            BABYLM,
            "full_eval/comps: no .jsonl file in this folder: copy the pipeline's data again",
            babylm("comps/comps.txt", ""),
        ),
        Row(
            "a field is missing",
            BABYLM,
            "full_eval/comps/comps_base.jsonl:1: field 'property_phrase' is missing",
            babylm("comps/comps_base.jsonl", "{}"),
        ),
        Row(
            "no JSON",
            BABYLM,
            "full_eval/comps/comps_base.jsonl:1: not JSON (Expecting value, column 1): one object a line",
            babylm("comps/comps_base.jsonl", "a b"),
        ),
        Row(
            "one sentence to choose from",
            BABYLM,
            "full_eval/wug_past_tense/a.jsonl:1: field 'sentences' has 1 parts: it must be two, with a tab between",
            babylm("wug_past_tense/a.jsonl", '{"sentences": "a", "ratio": 0.5}'),
        ),
        Row(
            "a ratio that is no number",
            BABYLM,
            "full_eval/wug_past_tense/a.jsonl:1: field 'ratio' is missing or no number",
            babylm("wug_past_tense/a.jsonl", '{"sentences": "a\\tb"}'),
        ),
        Row(
            "no options",
            BABYLM,
            "full_eval/entity_tracking/regular.jsonl:1: field 'options' is missing, or no list of two and more texts",
            babylm("entity_tracking/regular.jsonl", '{"input_prefix": "a", "options": ["b"]}'),
        ),
        Row(
            "no number of operations",
            BABYLM,
            "full_eval/entity_tracking/regular.jsonl:1: field 'numops' is missing or no whole number",
            babylm("entity_tracking/regular.jsonl", '{"input_prefix": "a", "options": ["b", "c"]}'),
        ),
        Row(
            "a column is missing",
            BABYLM,
            "full_eval/reading/reading_data.csv: column 'prev_item' is missing: copy the pipeline's data again",
            babylm("reading/reading_data.csv", "item,word\na,b\n"),
        ),
        Row(
            "a reading time that is no number",
            BABYLM,
            "full_eval/reading/reading_data.csv: row 1: column 'RTfirstfix' is 'fast', no number",
            babylm("reading/reading_data.csv", f"{','.join(COLUMNS)}\na,b,a,b,{','.join(['fast'] * 9)}\n"),
        ),
        Row(
            "no checkpoint at a number of words",
            f"{BABYLM} --all-checkpoints",
            "run/checkpoints: no checkpoint at a number of words that BabyLM's pipeline asks for (1M, 2M, ...): save them in"
            " training with training.checkpoint_words",
            babylm("aoa/cdi_childes.json", "[]"),
        ),
        Row(
            "one checkpoint for the age of acquisition",
            f"{BABYLM} --sets aoa",
            "set 'aoa' needs the checkpoints of a training: give --all-checkpoints",
            babylm("aoa/cdi_childes.json", "{}"),
        ),
        Row(
            "predictions are there",
            f"{BABYLM} --out old",
            "old/run/main/zero_shot/causal/comps/comps/predictions.json: exists: name another folder with --out, or replace it"
            " with --overwrite",
            lambda: (
                babylm(
                    "comps/comps_base.jsonl",
                    '{"prefix_acceptable": "a", "prefix_unacceptable": "b", "property_phrase": "c"}',
                )(),
                Path("old/run/main/zero_shot/causal/comps/comps").mkdir(parents=True),
                write("old/run/main/zero_shot/causal/comps/comps/predictions.json", "{}")(),
            ),
        ),
        Row(
            "a path in place of a name",
            f"{BABYLM} --model-name a/b",
            "model name 'a/b': it names a folder of the results: give one word",
        ),
    ],
    "Folders in Hugging Face's format": [
        Row(
            "another architecture",
            IMPORT,
            "gpt2/config.json: model_type is 'llama': only gpt2 can be read",
            gpt2_says(model_type="llama"),
        ),
        Row(
            "an array is missing",
            IMPORT,
            "gpt2/model.safetensors: ln_f.bias is missing (1 in all): it does not fit its config.json",
            weights(ln_f__bias=None),
        ),
        Row(
            "an array too many",
            IMPORT,
            "gpt2/model.safetensors: score.weight is not part of a GPT-2 of 1 layers (1 such in all)",
            weights(score__weight=np.zeros(1, np.float32)),
        ),
        Row(
            "another shape",
            IMPORT,
            "gpt2/model.safetensors: ln_f.bias has shape (5,) and by config.json (4,)",
            weights(ln_f__bias=np.zeros(5, np.float32)),
        ),
        Row(
            "no number",
            IMPORT,
            "gpt2/model.safetensors: ln_f.bias holds values that are not finite: copy it again",
            weights(ln_f__bias=np.full(4, np.nan, np.float32)),
        ),
        Row(
            "another tokenizer",
            IMPORT,
            "gpt2: the tokenizer has 259 ids and config.json a vocab_size of 300: copy the tokenizer that the model was trained with",
            gpt2_says(vocab_size=300),
        ),
        Row(
            "a pickle",
            IMPORT,
            "gpt2: pytorch_model.bin is a pickle, which can run code when it is opened: convert it to model.safetensors, as transformers' "
            "save_pretrained does",
            lambda: Path("gpt2/model.safetensors").rename("gpt2/pytorch_model.bin"),
        ),
        Row("the run exists", f"{IMPORT} --out run", "run: exists; name another run directory with --out"),
    ],
    "Exports": [
        Row(
            "the folder exists",
            f"{EXPORT} --out gpt2",
            "gpt2: exists; name another folder with --out, or ask to overwrite it (--overwrite)",
        ),
        Row(
            "the folder is no export",
            f"{EXPORT} --out gpt2 --overwrite",
            "gpt2: holds merges.txt, which no export wrote; name another folder with --out, or empty this one",
        ),
        Row(
            "the folder is a file",
            f"{EXPORT} --out text.txt --overwrite",
            "text.txt: is no folder; name another with --out",
        ),
        Row(
            "the folder is inside a file",
            f"{EXPORT} --out text.txt/new",
            "text.txt/new: cannot write the folder: File exists; choose another with --out",
        ),
        Row("no such step", f"{EXPORT} --step 9", "run/checkpoints: no checkpoint of step 9; there are: 2"),
        Row(
            "no checkpoints at word counts",
            f"{EXPORT} --all-checkpoints",
            "run/checkpoints: no checkpoint was kept for good, as training.checkpoint_words asks for; leave --all-checkpoints "
            "out to export the newest one",
        ),
        Row(
            "one step of all",
            f"{EXPORT} --all-checkpoints --step 2",
            "argument --step: not allowed with argument --all-checkpoints (see --help)",
        ),
        Row(
            "no run",
            f"{EXPORT} --run none",
            "none: not a run directory: it has no config.yaml; give one that train.py wrote",
        ),
    ],
    "Going on from a run, validation and schedules": [
        Row(
            "no parent",
            f"{TRAIN} --from none",
            "none: not a run directory: it has no config.yaml; name a finished run with --from, and where a run has begun from "
            "it, go on with --config RUN/config.yaml",
        ),
        Row(
            "a parent in the cloud",
            f"{TRAIN} --from s3://bucket/run",
            "s3://bucket/run: a run goes on from a directory of this machine; copy it here first",
        ),
        Row(
            "no directory of its own",
            "python train.py --from run",
            "run is empty: name a run directory, as in --run runs/small",
        ),
        Row(
            "the parent's directory",
            "python train.py --from run --run run",
            "run: it is the run to go on from; name another run directory with --run",
        ),
        Row(
            "another tokenizer",
            f"{STORE} --data.train store --from run",
            "store store was made with tokenizer … (…), not words (…): prepare its text again with that tokenizer",
        ),
        Row(
            "a text of another kind than the parent's",
            "python train.py --from run --run new --data.train store",
            "command line: data.train: the parent's data.kind, grammar, has no such setting; give --data.kind store with it",
        ),
        Row(
            "another model",
            f"{TRAIN} --from run --model.readout.rank 5",
            "run: its model is another one (model.readout.rank 4 -> 5); a run goes on with the same model",
        ),
        Row(
            "an unfinished parent",
            f"{TRAIN} --from run",
            "run: not a finished run; train it to its end with train.py, or name another run",
            lambda: (Path("run/summary.json").unlink(), Path("run/manifest.json").unlink()),
        ),
        Row(
            "a diverged parent",
            f"{TRAIN} --from run",
            "run: it diverged; name an update before that with --parent.step",
            diverge,
        ),
        Row(
            "no such step of the parent",
            f"{TRAIN} --from run --parent.step 9",
            "run/checkpoints: no checkpoint of step 9; there are: 2",
        ),
        Row(
            "another parent than before",
            f"{TRAIN} --from run --parent.config_sha256 0123456789abcdef",
            "run: its config_sha256 is … and parent.config_sha256 is 0123456789ab: it is another run; give the one that was"
            " meant, or null to take this one",
        ),
        Row(
            "moments of another optimizer",
            f"{TRAIN} --from run --parent.keep_optimizer true --training.optimizer sgd",
            "new/initial: no moments of this training.optimizer are saved; leave parent.keep_optimizer out",
        ),
        Row(
            "a regression that goes on",
            f"{TRAIN} --from run --training.kind ridge",
            "parent.run is run: training.kind ridge fits a readout from nothing; choose adamw, or no parent",
        ),
        Row("a step of no parent", f"{TRAIN} --parent.step 2", "parent.step is 2: give parent.run too"),
        Row(
            "an average that forgets nothing",
            f"{TRAIN} --training.ema 1",
            "training.ema is 1.0: it must be above 0 and below 1",
        ),
        Row(
            "early stopping without validation text",
            f"{STORE} --data.train store --training.stop_after 3",
            "training.stop_after is 3: there is no validation text; name some with data.validation",
        ),
        Row(
            "a margin of nothing",
            f"{TRAIN} --training.stop_margin 0.01",
            "training.stop_margin is 0.01: it must be 0 unless training.stop_after is given",
        ),
        Row(
            "no best checkpoint",
            "python eval_blimp.py --run run --step best",
            "run: no best checkpoint was kept, as training.stop_after asks for; name a step",
        ),
        Row(
            "words where updates are counted",
            f"{TRAIN} --training.warmup_words 1000",
            "training.warmup_words is 1000: it must be 0 unless training.schedule_by is words",
        ),
        Row(
            "updates where words are counted",
            f"{TRAIN} --training.schedule_by words --training.warmup_updates 10",
            "training.warmup_updates is 10: it must be 0 unless training.schedule_by is updates",
        ),
        Row(
            "the end of a constant schedule",
            f"{TRAIN} --training.schedule_by words --training.schedule_words 1000",
            "training.schedule_words is 1000: a constant schedule has no end; choose linear or cosine, or give null",
        ),
        Row(
            "a schedule that is all warm-up",
            f"{TRAIN} --training.schedule_by words --training.schedule linear --training.schedule_words 10 --training.warmup_words 10",
            "training.warmup_words is 10: it must be below training.schedule_words = 10",
        ),
    ],
    "In the cloud": [
        Row(
            "an unknown service",
            f"{TRAIN} --run hdfs://bucket/run",
            "hdfs://bucket/run: hdfs:// is not known here; give a folder of this machine, or one of s3:// and gs://",
        ),
        Row(
            "a bucket without a folder",
            f"{TRAIN} --run s3://bucket",
            "s3://bucket: names no folder; name one in the bucket, as in s3://bucket/runs/first",
        ),
        Row(
            "a name that is a pattern",
            f"{TRAIN} --run 's3://bucket/run*'",
            "s3://bucket/run*: 'run*' is no name for a folder; use letters, digits and . _ - = + @",
        ),
        Row(
            "no package for it",
            f"{TRAIN} --run s3://bucket/run",
            "s3://bucket/run: s3fs is not installed, which reads and writes there: pip install s3fs",
            lambda: sys.modules.update(s3fs=None),
        ),
        Row(
            "no credentials",
            f"{TRAIN} --run s3://bucket/run",
            "s3://bucket/run: no credentials (Unable to locate credentials); give them as s3fs finds them (docs/cloud.md)",
            lambda: os.environ.pop("AWS_ACCESS_KEY_ID"),
        ),
        Row(
            "no network",
            f"{TRAIN} --run s3://bucket/run",
            "s3://bucket/run: not reached (Could not connect to the endpoint URL: …); see to the network and the endpoint, and"
            " give the same command again",
            lambda: os.environ.update(AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1"),
        ),
        Row(
            "no such bucket",
            f"{TRAIN} --run s3://nowhere/run",
            "s3://nowhere/run: there is no bucket 'nowhere'; make it first, or name another",
            cloud(),
        ),
        Row(
            "something else is there",
            f"{TRAIN} --run s3://bucket/photos",
            "s3://bucket/photos: holds other files (cat.png) and no run; choose another run with --run",
            cloud(),
        ),
        Row(
            "no run is there",
            "python eval_blimp.py --run s3://bucket/photos",
            "s3://bucket/photos: not a run directory: it has no config.yaml; give one that train.py wrote",
            cloud(),
        ),
        Row(
            "no store is there",
            f"{STORE} --data.train s3://bucket/photos",
            "s3://bucket/photos/manifest.json: missing; not a token store: make one with python -m esnlm prepare",
            cloud(),
        ),
        Row(
            "a report to a URL of its own",
            "python eval_blimp.py --run run --out gs://bucket/report.json",
            "--out gs://bucket/report.json: this is written to this machine only; name a local place",
        ),
        Row(
            "a store over something else",
            PREPARE.replace("new", "s3://bucket/photos"),
            "s3://bucket/photos: exists and is not a token store; name another place for the store",
            cloud(),
        ),
        Row(
            "a truncated file",
            "python eval_blimp.py --run s3://bucket/run",
            "s3://bucket/run/config.yaml: changed since it was written; restore it from a copy of the run",
            cloud(cut="run/config.yaml"),
        ),
        Row(
            "a truncated checkpoint",
            "python eval_blimp.py --run s3://bucket/run",
            "s3://bucket/run/checkpoints: no intact checkpoint (step 2: metadata.json: …); restore one from a copy",
            cloud(cut="run/checkpoints/2/metadata.json"),
        ),
        Row(
            "a truncated store",
            f"{STORE} --data.train s3://bucket/store",
            "s3://bucket/store/tokens.bin: not as it was made (its sha256 differs); prepare the store again, or upload it again",
            cloud(cut="store/tokens.bin"),
        ),
    ],
    "Several processes": [
        Row(
            "half of the place of a process",
            f"{SEVERAL} node1:29500",
            "--coordinator, --processes, --process belong together: give --processes and --process too",
        ),
        Row(
            "no number of a process",
            f"{SEVERAL} node1:29500 --processes 2 --process 2",
            "--process is 2: 2 processes have the numbers 0 to 1",
        ),
        Row(
            "no number of processes",
            f"{SEVERAL} node1:29500 --processes 0 --process 0",
            "--processes is 0: it must be at least 1",
        ),
        Row(
            "no address",
            f"{BLIMP} --coordinator node1 --processes 2 --process 0",
            "--coordinator is 'node1': give the name or address of the machine of process 0 and a free port there, as"
            " HOST:PORT",
        ),
        Row(
            "no time that ends",
            f"{SEVERAL} 127.0.0.1:9 --processes 2 --process 1 --wait inf",
            "--wait is inf: it must be seconds from 0 to 10,000,000",
        ),
        Row(
            "nobody at the coordinator",
            f"{SEVERAL} 127.0.0.1:9 --processes 2 --process 1 --wait 0.1",
            "--coordinator 127.0.0.1:9: process 1 did not reach process 0 there within 0.1 s (…); to run alone, give"
            " --processes 1",
        ),
        Row(
            "a process that does not come",
            f"{SEVERAL} 127.0.0.1:29817 --processes 2 --process 0 --wait 0.1",
            "--coordinator 127.0.0.1:29817: process 1 of 2 did not come within 0.1 s; to run alone, give --processes 1",
        ),
    ],
    "Reservoirs and models in Python": [
        Row(
            "a reservoir of tokens and of numbers",
            "esnlm.Reservoir.draw(8, vocabulary=9, inputs=1)",
            "give vocabulary, for tokens, or inputs, for numbers, and not both",
        ),
        Row(
            "an unknown activation",
            "esnlm.Reservoir.draw(8, inputs=1, activation='swish')",
            "activation is 'swish': choose tanh, relu, or give a function",
        ),
        Row(
            "an unknown topology",
            "esnlm.Reservoir.draw(8, inputs=1, topology='tree')",
            "topology is 'tree': choose …, or give a function",
        ),
        Row(
            "a topology of another size",
            "esnlm.Reservoir.draw(8, inputs=1, topology=lambda size, rng: np.eye(9))",
            "the matrix of topology <lambda> has the shape (9, 9): it must be (8, 8)",
        ),
        Row(
            "a matrix of another shape",
            "esnlm.Reservoir.draw(8, inputs=1).replace(w_in=np.ones((8, 2)))",
            "w_in has the shape (8, 2): it must be (8, 1)",
        ),
        Row(
            "leaks outside 0 .. 1",
            "esnlm.Reservoir.draw(8, inputs=1).replace(leak=2)",
            "leak has a value outside 0 .. 1",
        ),
        Row(
            "inputs of another width",
            "esnlm.Reservoir.draw(8, inputs=2).states(u)",
            "sequence 0 has the shape (30, 1): it must be (T, 2), of real numbers",
        ),
        Row(
            "an id outside the vocabulary",
            "esnlm.Reservoir.draw(8, vocabulary=9).states([np.array([9])])",
            "sequence 0 has an id outside 0 .. 8",
        ),
        Row(
            "a function that no other program could find",
            "esnlm.Reservoir.draw(8, inputs=1, activation=lambda x: x).__getstate__()",
            "activation is a function that is not registered, <lambda …>: it cannot be pickled; write @esnlm.activation above"
            " its def, and do the same in each program that loads it",
        ),
        Row(
            "a function under the name of another",
            "esnlm.activation(np.tanh)",
            "activation tanh: esnlm has one of this name; choose another name",
        ),
        Row(
            "a readout that is not fitted",
            "esnlm.Readout('ridge').predict(u)",
            "this readout is not fitted yet: call fit",
        ),
        Row(
            "as many states as targets",
            "esnlm.Readout('ridge').fit(u, y[1:])",
            "there are 30 states and 29 targets: give as many of both",
        ),
        Row(
            "a setting of another readout",
            "esnlm.Readout('lms', forgetting=0.9)",
            "readout lms has no setting 'forgetting': choose from epochs, batch_size, learning_rate, intercept, log_probs,"
            " held_out_tokens",
        ),
        Row(
            "another vocabulary",
            "esnlm.LanguageModel(esnlm.Reservoir.draw(8, vocabulary=9), esnlm.tokenizer('words', ['a cat']))",
            "the reservoir reads 9 token ids, and the tokenizer has 258; draw it with vocabulary=tokenizer",
        ),
        Row(
            "a tokenizer of no sentences",
            "esnlm.tokenizer('words')",
            "there are no sentences: give at least one",
        ),
        Row("no section", "esnlm.train({'sede': 3})", "experiment: unknown key 'sede': choose from …"),
        Row(
            "sentences that the run does not have",
            "esnlm.train({'run': 'new', 'data': {'kind': 'given'}})",
            "new/stores/train: missing: data.kind is given, for sentences given in Python; give them again with"
            " esnlm.train(..., sentences=...)",
        ),
        Row(
            "other sentences than those of the run",
            "esnlm.train('small.yaml', sentences=['The cats sleep.'])",
            "new/stores/train: the run was begun with other sentences; give the same, or name another run directory",
            lambda: shutil.copytree("run", "new") and None,
            begins_a_run=True,
        ),
    ],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder of good things."""
    folder = tmp_path_factory.mktemp("world")
    hostile.small_tokenizer().save(folder / "tokenizer")
    (folder / "store").mkdir()
    hostile._make_store(folder / "store")
    (folder / "gpt2").mkdir()
    files = hostile._seal_folder(hostile.TARGETS["huggingface"].files(tmp_path_factory.mktemp("gpt2")))
    for name, content in files.items():
        (folder / "gpt2" / name).write_bytes(content)
    (folder / "small.yaml").write_text(SMALL)
    (folder / "store.yaml").write_text(
        SMALL.replace("{kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}", "{kind: store}")
    )
    (folder / "text.txt").write_text("The cats sleep.\n")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        assert train_run(config_io.read("small.yaml", ["--run", "run"])) == 0
    return folder


SIGNAL = np.linspace(-0.5, 0.5, 30)[:, None]  # (T, 1)


def run(command: str) -> int:
    """The status of a command as it is typed, in this process; anything else is Python."""
    if not command.startswith("python "):
        return exit_with(
            lambda: eval(command, {"network": network, "esnlm": esnlm, "np": np, "u": SIGNAL, "y": SIGNAL}) and 0
        )
    _, program, *words = shlex.split(command)
    try:
        if program == "-m":
            return commands.main(words[1:], "python -m esnlm")
        return commands.run_command(
            {"train.py": "train", "eval_blimp.py": "blimp"}[program], words, f"python {program}"
        )
    except SystemExit as stop:
        return stop.code


ROWS = [pytest.param(row, id=f"{part}: {row.wrong}") for part, rows in TABLE.items() for row in rows]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_mistake_is_one_line_that_says_what_to_do(row, world, tmp_path, monkeypatch, capsys, request):
    if "s3://" in row.command:
        request.getfixturevalue("s3")
        for changing, name in ((os.environ, "AWS_MAX_ATTEMPTS"), (sys.modules, "s3fs")):
            monkeypatch.setitem(changing, name, changing.get(name, "5"))  # so that it is as before, at the end
    if "lateral" in row.command:  # a program has registered it
        monkeypatch.setitem(UPDATE_RULES, "lateral", UPDATE_RULES["leaky_output"])
    if row.command.startswith(LM_EVAL):
        pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install -e '.[lm-eval]'")
    here = tmp_path / "here"
    shutil.copytree(world, here)
    monkeypatch.chdir(here)
    row.begin()
    before = sorted(here.rglob("*"))
    assert run(row.command) == 2
    out, err = capsys.readouterr()
    pattern = re.escape(f"error: {row.line}").replace("…", ".+")
    assert re.fullmatch(pattern, err.splitlines()[-1]) and out == "" and err.count("error: ") == 1
    left = {path.relative_to(here).as_posix() for path in set(here.rglob("*")) - set(before)}
    assert row.begins_a_run or left <= {"new", "new/.lock", "run/.lock"}, "nothing half-written is left behind"


def page() -> str:
    lines = [
        "# Errors",
        "",
        "A mistake in input or configuration is one line on stderr, `error: ` and what stands below, and status 2;",
    ]
    lines += [
        "nothing half-written is left behind. In Python it is the message of an `esnlm.InputError`. This page is made by `python -m tests.test_errors`."
    ]
    for part, rows in TABLE.items():
        lines += ["", f"## {part}", "", "| wrong | command | line |", "| --- | --- | --- |"]
        lines += [f"| {row.wrong} | `{row.command}` | `{row.line}` |" for row in rows]
    return "\n".join(lines) + "\n"


def test_the_page_in_docs_is_this_table():
    assert (ROOT / "docs" / "errors.md").read_text() == page()


if __name__ == "__main__":
    print(page(), end="")
