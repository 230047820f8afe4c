"""The commands that the pages name are there, with these options and settings. By night those of
each page are run, on less text."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import nltk.data
import pytest

from esnlm import commands
from esnlm.data import grammar
from esnlm.data.tokenizer import word_tokenizer
from tests.commands import arguments_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = {file.stem: file for file in PAGES}
RESULTS = sorted((ROOT / "results").rglob("*.md"))
# What is not run: tests, the network, other data and machines, and lines with a name to fill in.
NOT_RUN = re.compile(
    r"^python -m (venv|pip|pytest)|nltk.download|^python benchmarks|^esnlm (babylm|lm-eval|import) "
    r"|number_prep|all_stories|en_ewt|claims|FILE|DIR\b|\.\.\.|\$|[a-z0-9]+://|vocabulary: 4|--processes"
)
SMALLER = [
    (r"train:8192", "train:300"),
    (r"--tokenizer gpt2", "--tokenizer tokenizer"),
    (r"\[1?00000, 2?00000, 4?00000\]|\[1000000, 2000000, 3000000\]", "[1000, 2000, 3000]"),
    (r"(esnlm study.*?)(?: --plan)?$", r"\1 --plan"),
]
# Settings that make a training on the quickstart's text small.
QUICKSTART = (
    "--data.sentences 200 --data.validation_sentences 50 --data.pairs 2"
    " --model.reservoir.state_size 32"
)
PARADIGMS = {
    "wh_island": "island_effects",
    "npi_present_1": "npi_licensing",
    "irregular_plural_subject_verb_agreement_1": "subject_verb_agreement",
}


def named(page: Path) -> list[str]:
    """Returns every command of esnlm on a page, in a block or within a line."""
    text = re.sub(r"\\\n *", "", page.read_text())
    lines = [
        part
        for line in re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
        for part in line.split(" && ")
    ]
    lines += [
        line.replace("\n", " ")
        for line in re.findall(
            r"(?<!`)`((?:esnlm|python -m esnlm|python (?:train|eval_blimp)\.py) [^`]+)`(?!`)", text
        )
    ]
    return [
        line for line in lines if words_of(line) and not re.search(r"\.\.\.|\[--|\bCOMMAND\b", line)
    ]


def words_of(line: str) -> list[str] | None:
    """Returns the command of esnlm in a line and its arguments; None where another program is
    called."""
    for start, name in {
        "esnlm ": "",
        "python -m esnlm ": "",
        "python train.py": "train",
        "python eval_blimp.py": "blimp",
    }.items():
        if line.startswith(start):
            return [
                *([name] if name else []),
                *shlex.split(line.removeprefix(start), comments=True),
            ]
    return None


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_has_these_options(page):
    for line in named(page):
        name, *rest = words_of(line)
        if name in ("--help", "lm-eval"):  # whose options are the harness's own
            continue
        assert name in commands.COMMANDS, f"{page}: {line}"
        known = {option for argument in arguments_of(name) for option in argument.names}
        settings = commands.parser_of(name, "esnlm").get_default("overrides") is not None
        unknown = [word for word in rest if word.startswith("--") and word not in known]
        assert all(settings and is_setting(word) for word in unknown), f"{page}: {line}: {unknown}"


def is_setting(word: str) -> bool:
    """Says whether a word is --KEY of a setting that docs/settings.md has."""
    key = word.removeprefix("--")
    kinds = (
        "data.kind",
        "model.family",
        "training.kind",
        "model.reservoir.topology.kind",
        "model.reservoir.continuous",
    )
    return key in kinds or f"\n| `{key}` |" in NAMES["settings"].read_text()


def make_world(folder: Path) -> Path:
    """Fills a folder with a corpus, minimal pairs, a text, and a tokenizer in place of GPT-2's."""
    sentences = list(grammar.sentences(700, seed=1))
    train, dev = "\n".join(sentences[100:]) + "\n", "\n".join(sentences[:100]) + "\n"
    texts = {f"corpus/{part}": dev if part == "dev" else train for part in ("train", "dev", "more")}
    texts |= {
        f"babylm_data/babylm_{part}": dev if part == "dev" else train
        for part in ("10M", "100M", "dev")
    }
    for name, text in texts.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "book.txt").write_text(text)
    (folder / "text.txt").write_text("The cats sleep.\n")
    (folder / "blimp").mkdir()
    for paradigm, phenomenon in PARADIGMS.items():
        pair = {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}
        lines = (
            json.dumps(pair | {"UID": paradigm, "linguistics_term": phenomenon, "field": "syntax"})
            + "\n"
        )
        (folder / "blimp" / f"{paradigm}.jsonl").write_text(3 * lines)
    (folder / "tokenizer").mkdir()
    word_tokenizer(grammar.words()).save(folder / "tokenizer")
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder in which the first two pages were followed, with a second run."""
    folder = make_world(tmp_path_factory.mktemp("pages"))
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        for page in ("start", "own_text"):
            run_commands(page)
        run_command("esnlm train --config configs/esn_at_scale/esn.yaml --run runs/second --seed 1")
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted(NAMES.keys() - {"start", "own_text", "settings"}))
def test_the_commands_of_a_page_run(page, request, tmp_path, monkeypatch):
    prepares = page in ("README", "reproduce")
    monkeypatch.chdir(make_world(tmp_path) if prepares else request.getfixturevalue("world"))
    run_commands(page)


@pytest.mark.nightly
def test_the_code_of_the_page_about_states_runs(world, monkeypatch):
    monkeypatch.chdir(world)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", NAMES["states"].read_text(), re.M | re.S):
        exec(compile(block, "docs/states.md", "exec"), names)
    assert len(names["words"].rows) == 5


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page, archive", [("reading_times", "natural_stories"), ("probing", "ud_english_ewt")]
)
def test_the_research_of_a_page_runs(page, archive, world, data, tmp_path, monkeypatch, capsys):
    """On the real data, with the small runs of the other pages: its block and its commands."""
    pytest.importorskip("statsmodels", reason="needs statsmodels: pip install statsmodels")
    shutil.copytree(data / "punkt_tab" / "english", tmp_path / "tokenizers/punkt_tab/english")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    with tarfile.open(data / f"{archive}.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / archive)
    Path("runs").symlink_to(world / "runs")
    Path("stores").symlink_to(world / "stores")
    Path("examples").symlink_to(ROOT / "examples")
    text = NAMES[page].read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    exec(compile(block, f"docs/{page}.md", "exec"), {})
    assert all(
        math.isfinite(float(number)) for number in re.findall(r"[-\d.e]+", capsys.readouterr().out)
    )
    for line in re.findall(r"^ {4}((?:esnlm|python) .*)$", text, re.M):
        run_command(line)


def run_commands(page: str) -> None:
    """Runs the commands in the indented blocks of a page."""
    text = NAMES[page].read_text()
    for lines, file in re.findall(
        r"((?:^ {4}.*\n)+)\nSave these lines as `(\S+)`", text, re.MULTILINE
    ):
        Path(file).write_text(textwrap.dedent(lines).replace("100000", "200"))
    for line in re.findall(r"^ {4}((?:esnlm|printf|python) .*)$", text, re.MULTILINE):
        if not NOT_RUN.search(line):
            run_command(line)


def run_command(line: str) -> None:
    for pattern, replacement in SMALLER:
        line = re.sub(pattern, replacement, line)
    words = words_of(line)
    if words is None:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        line = re.sub("^python ", f"{sys.executable} ", line)
        subprocess.run(["bash", "-c", line], check=True, env=environment, stdout=subprocess.DEVNULL)
        return
    if words[0] == "train" and not {"--config", "--from"} & {*words}:
        given = QUICKSTART.split()
        pairs = zip(given[::2], given[1::2], strict=True)
        words += [word for key, value in pairs if key not in words for word in (key, value)]
    assert commands.main(words) == 0, line
