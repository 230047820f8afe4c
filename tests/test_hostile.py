"""Whatever is in a file or a sentence, it is read or refused in one line; nothing is run, written elsewhere, or waited for.

tests/reliability/fuzz.py looks for what is missing here, for as long as one likes.
"""

import json
import os
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import esnlm
from esnlm import commands, config_io
from esnlm.data.prepare import prepare
from esnlm.data.store import open_store
from esnlm.errors import InputError
from esnlm.evaluate_run import evaluate_run
from esnlm.evaluation import conventions, minimal_pairs, scoring
from esnlm.io.atomic import write_file
from esnlm.reporting import blimp_report
from esnlm.runs.directory import RunDirectory
from esnlm.workflows.train import train_run
from tests import hostile


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The good files of a target, by its name."""
    made = {}

    def files(name):
        if name not in made:
            made[name] = hostile.TARGETS[name].files(tmp_path_factory.mktemp(name))
        return made[name]

    return files


@pytest.mark.parametrize("name", hostile.TARGETS)
@settings(max_examples=80, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**64 - 1))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_of_an_enemy_are_read_or_refused_in_one_line(good, tmp_path_factory, name, seed):
    target = hostile.TARGETS[name]
    damaged = hostile.damage(target, good(name), random.Random(seed))
    hostile.check(target, damaged, tmp_path_factory.getbasetemp() / f"bad-{name}")


@pytest.mark.parametrize("name", hostile.TARGETS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_good_files_are_read_so_that_the_test_above_says_something(good, tmp_path, name):
    for file, content in hostile.TARGETS[name].seal(good(name)).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    hostile.TARGETS[name].call(tmp_path)


# ---- what an enemy would try ----


def test_a_message_is_one_line_whatever_is_in_it():
    error = InputError("runs/\n\x1b[2Jx: " + "\ud83d" * 5000)
    assert str(error).startswith(r"runs/\n\x1b[2Jx: \ud83d") and len(str(error)) == 2005
    assert str(error).isprintable() and str(InputError("caf\u00e9")) == "caf\u00e9"


def test_aliases_of_yaml_cannot_fill_the_memory(tmp_path):
    file = tmp_path / "bomb.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(
        InputError, match="bomb.yaml: more than 10,000 values, aliases counted as often as they are used: not a config"
    ):
        config_io.read(file)


@pytest.mark.parametrize("pattern", ["(?=(a+)+b)", r"(a|aa)+$(?!x)", "", "["])
def test_a_saved_tokenizer_brings_no_pattern_of_its_own(tmp_path, pattern):
    """One that looks around can take for ever, and one that is none stops the process."""
    hostile.small_tokenizer().save(tmp_path)
    tree = json.loads((tmp_path / "tokenizer.json").read_text()) | {"pattern": pattern}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match="tokenizer.json: not a tokenizer saved by this version of esnlm$"):
        hostile.tokenizer.load_tokenizer(tmp_path)


def test_ids_beyond_the_vocabulary_and_bounds_that_are_none_are_refused_though_the_sums_agree(good, tmp_path):
    target, files = hostile.TARGETS["store"], good("store")
    for name, content, line in [
        (
            "tokens.bin",
            np.full(len(files["tokens.bin"]) // 2, 65_000, "<u2").tobytes(),
            "tokens.bin: has the id 65000 of 260 ids",
        ),
        ("offsets.npy", files["offsets.npy"][:-8] + bytes(8), "offsets.npy: not the bounds of sentences in tokens.bin"),
        (
            "offsets.npy",
            files["offsets.npy"].replace(b"<i8", b"|O8"),
            "damaged: offsets.npy is not the array that belongs there",
        ),
    ]:
        for file, data in target.seal(files | {name: content}).items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_bytes(data)
        with pytest.raises(InputError, match=line):
            open_store(tmp_path)


def test_links_laid_in_a_folder_are_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".summary.json.partial-00000000", "summary.json"):
        (folder / name).symlink_to(tmp_path / "mine")
    write_file(folder / "summary.json", "{}")
    assert (tmp_path / "mine").read_text() == "mine" and (folder / "summary.json").read_text() == "{}"
    assert not (folder / "summary.json").is_symlink() and os.listdir(folder) == ["summary.json"]


def test_a_lock_that_is_a_link_does_not_empty_what_it_leads_to(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "mine")
    with RunDirectory(tmp_path / "run").locked():
        pass
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["../mine", "/etc/passwd", "", "a/b"])
def test_a_report_names_no_file_elsewhere(good, tmp_path, name):
    for file, content in good("report").items():
        (tmp_path / file).write_bytes(content)
    tree = json.loads((tmp_path / "blimp-paper.json").read_text())
    tree["pairs_file"]["name"] = name
    tree["sha256"] = blimp_report.seal(tree)
    (tmp_path / "blimp-paper.json").write_text(json.dumps(tree))
    with pytest.raises(
        InputError, match="blimp-paper.json: damaged, not as it was written: score the run again with --overwrite$"
    ):
        hostile.TARGETS["report"].call(tmp_path)


# ---- what may stand in a sentence ----

SMALL = """
data: {kind: grammar, sentences: 40, validation_sentences: 10, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
"""
SENTENCES = {
    "nothing": "",
    "one token": ".",
    "the end of text, written out": "The <|endoftext|> cats",
    "a null": "a\0b",
    "controls": "a\x01\x1b[31m\x7f\x85b",
    "line ends": "a\r\nb\u2028c",
    "half a surrogate pair": "The \ud83d cats",
    "a byte of no character": "The \udcff cats",
    "white space": " \t\u3000 ",
}
LONG = "." * 100_000  # each a token


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(f"run: {folder / 'run'}\n{SMALL}")
    assert train_run(config_io.read(folder / "small.yaml")) == 0
    return esnlm.load(folder / "run")


def esnlm_command(*arguments):
    return commands.main([str(argument) for argument in arguments])


@pytest.mark.filterwarnings("ignore:1 of 2 sentences are empty.*does not score")
@pytest.mark.parametrize("text", SENTENCES.values(), ids=SENTENCES.keys())
def test_any_sentence_is_encoded_and_scored(run, text):
    ids = run.tokenizer.encode(text)
    readable = (
        text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if "\ud83d" in text or "\udcff" in text
        else text
    )
    assert run.tokenizer.eos not in ids
    assert run.tokenizer.decode(ids).replace("\ufffd", "") == readable.replace("\ufffd", "")
    for convention in conventions.CONVENTIONS:
        log_prob = run.log_probs([text, "The cats sleep."], convention)
        assert np.isfinite(log_prob).all() and (log_prob <= 0).all()
    assert run.log_probs([text])[0] == pytest.approx(float(run.token_log_probs([text])[0].sum()), rel=1e-6)


@pytest.mark.parametrize("text", SENTENCES.values(), ids=SENTENCES.keys())
def test_any_prompt_is_continued(run, text, capsys):
    assert len(run.generate(text, length=3)) == 1
    assert not esnlm_command("generate", "--run", run.directory, "--prompt", text, "--length", 2)
    capsys.readouterr().out.encode()


def test_lines_of_a_file_are_scored_or_the_first_bad_one_is_named(run, tmp_path, capsys):
    file = tmp_path / "sentences.txt"
    lines = [
        text
        for name, text in SENTENCES.items()
        if name in ("nothing", "one token", "the end of text, written out", "controls")
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    esnlm_command("score", "--run", run.directory, "--input", file)
    assert capsys.readouterr().out.count("\t") == len(lines)
    for content, line in [
        (b"fine\na\0b\n", ":2: not a text file: 0x00 at byte 6"),
        (b"\xed\xa0\xbd\n", ":1: not UTF-8: 0xed at byte 0"),
    ]:
        file.write_bytes(content)
        assert esnlm_command("score", "--run", run.directory, "--input", file) == 2
        assert capsys.readouterr().err == f"error: {file}{line}; give plain text in UTF-8\n"


def test_pairs_of_any_sentences_are_scored_or_the_first_bad_one_is_named(run, tmp_path):
    file = tmp_path / "[red] odd.jsonl"
    whole = {
        name: text
        for name, text in SENTENCES.items()
        if name not in ("half a surrogate pair", "a byte of no character") and text.strip()
    }
    pairs = [
        {"sentence_good": text, "sentence_bad": "The cats sleep.", "UID": "[/x]\x1b[2J $a_b$"}
        for text in whole.values()
    ]
    file.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    found = evaluate_run(run.directory, [file], out=tmp_path / "odd.json")
    assert found.result["status"] == "ok" and found.result["data"]["pairs"] == len(whole)
    file.write_text(
        json.dumps(pairs[0]) + "\n" + json.dumps(pairs[0] | {"sentence_bad": SENTENCES["half a surrogate pair"]})
    )
    with pytest.raises(InputError) as error:
        minimal_pairs.load(file)
    assert str(error.value) == f"{file}:2: field 'sentence_bad' has half a surrogate pair, which is no text"
    for blank in (text for text in SENTENCES.values() if not text.strip()):
        file.write_text(json.dumps(pairs[0] | {"sentence_good": blank}))
        with pytest.raises(InputError, match=":1: field 'sentence_good' is empty: give a sentence$"):
            minimal_pairs.load(file)


def test_any_text_is_prepared_or_refused(run, tmp_path):
    (tmp_path / "text.txt").write_text(
        "The <|endoftext|> cats sleep\x01.\n" + ". " * 100_000 + "\n\u2028\n.\n", encoding="utf-8"
    )
    run.tokenizer.save(tmp_path / "tokenizer")
    options = {"tokenizer": tmp_path / "tokenizer", "sentences": "line", "progress": False}
    store = prepare([tmp_path / "text.txt"], tmp_path / "store", **options)
    assert store.lengths.max() == 512 and store.manifest["cut_long"] == 1 and len(store) == 2
    assert all(ids[0] == ids[-1] == run.tokenizer.eos and (ids[1:-1] < run.tokenizer.eos).all() for ids in store)
    (tmp_path / "text.txt").write_bytes(b"a\0b\n")
    with pytest.raises(InputError, match=r"text.txt:1: not a text file: 0x00 at byte 1; give plain text in UTF-8$"):
        prepare([tmp_path / "text.txt"], tmp_path / "other", **options)
    assert not (tmp_path / "other").exists()


def test_what_is_scored_together_fits_a_window_or_is_one_sentence():
    keys = [bytes(4 * length) for length in (3, 3, 3, 9, 1, 1, 1, 1)]
    assert [len(block) for block in scoring._groups(keys, size=4 * 7, most=3)] == [2, 1, 1, 3, 1]
    assert [key for block in scoring._groups(keys, 28, most=3) for key in block] == keys


@pytest.mark.slow
def test_a_sentence_of_100_000_tokens_is_scored_in_the_memory_of_one(run):
    assert len(run.tokenizer.encode(LONG)) == 100_000
    texts = [LONG, LONG + "!", LONG + "?", "The cats sleep."]
    found = run.log_probs(texts)
    assert np.isfinite(found).all() and found[3] == pytest.approx(run.log_probs(["The cats sleep."])[0], rel=1e-5)
    assert len(run._stream.buffer) < 101_000 + run.config.compute.window_tokens + run._stream.slots
    [states] = run.states([LONG])
    assert states.shape == (100_002, 16)


def test_a_sentence_whose_states_are_too_large_is_refused(run, monkeypatch):
    monkeypatch.setattr("esnlm.loaded_run.MAX_STATE_BYTES", 1000)
    with pytest.raises(InputError) as error:
        run.log_probs(["." * 20])
    assert (
        str(error.value)
        == "sequence 0 has 22 ids: its states would take 0.0 GB, and at most 0.0 GB are used; split it. It begins"
        " '...........'"
    )
