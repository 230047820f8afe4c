"""The commands and the code of the pages work, as they stand there: on less text, and with a smaller network.

A command is a line of an indented block that begins with a program. It is run in a folder that has a corpus, a few minimal pairs
and, where a page needs it, the run that own_text.md trains. Code is what stands in ```python blocks; the blocks of a page share
their names.
"""

import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from esnlm import commands
from esnlm.commands.base import Parser, find_config
from esnlm.data import grammar
from esnlm.data.tokenizer import word_tokenizer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TESTED_ELSEWHERE = {"extending", "library"}  # by a test each in tests/docs
PROGRAMS = ("esnlm", "python", "python3", "pip", "printf", "mkdocs", "ESNLM_AOT=FOLDER")
FRESH = {"README", "start", "reproduce"}  # pages that prepare and train themselves

# What is not run, as a pattern, and why. The options of esnlm's own commands are checked all the same.
NOT_RUN = {
    r"^pip install": "the network; the extras that it names are looked up",
    r"^python3 -m venv|^python -m pip": "the network",
    r"^python -m pytest": "these are the tests",
    r"^(ESNLM_AOT=\S+ )?python (benchmarks|docs)/": "minutes, or another device; the file is looked up",
    r"^mkdocs": "tests/docs/test_site.py builds the site",
    r"^esnlm import gpt2/": "no GPT-2 is here; tests/interchange has a small one",
    r"^esnlm babylm": "BabyLM's data is not here; tests/interchange has a small one",
    r"^esnlm lm-eval": "it needs all files of BLiMP, or the network; tests/interchange has some",
    r"^python -m experiments.claims": "it needs the results of studies; tests/experiments/test_claims.py has some",
    r"number_prep.json": "the suite is not ours to ship; tests/evaluation has others",
    r"\bFILE\b": "a form, not a command",
    r"\{data: 2, vocabulary: 4\}": "eight devices",
    r"\$units": "a line of a loop",
    r"\$SLURM": "a line of a SLURM script",
    r"\b(s3|gs)://": "a bucket",
}
SMALL = {
    "grammar": "--data.sentences 200 --data.validation_sentences 50 --data.pairs 2",
    "esn": "--model.reservoir.state_size 16 --model.reservoir.mean_degree 4 --model.readout.rank 4",
    "lstm": "--model.width 8",
    "deep_readout": "--model.reservoir.state_size 16 --model.reservoir.mean_degree 4 --model.readout.rank 4",
}
SHRUNK = [
    (r"train:8192", "train:300"),
    (r"--tokenizer gpt2", "--tokenizer tokenizer"),
    (r"^(?!esnlm study)(.* --model\.reservoir\.state_size) \d+", r"\1 16"),  # of a study, the plan is enough
    (r"\bDIR\b", "stores/train"),
]
NAMES = {file.stem: file for file in PAGES}
PARADIGMS = {
    "wh_island": "island_effects",
    "npi_present_1": "npi_licensing",
    "regular_plural_subject_verb_agreement_1": "subject_verb_agreement",
}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yields what can be run on a page, in order: ("python", code) and ("command", line)."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$|((?:^ {4}[^\n]*\n)+)", page.read_text(), re.MULTILINE | re.DOTALL):
        if found[1] == "python":
            yield "python", found[2]
        for line in (found[3] or "").splitlines():
            words = line.split()
            if words and words[0] in PROGRAMS:
                yield from (("command", part) for part in line.strip().split(" && ") if not part.startswith(". "))


def named(page: Path) -> list[str]:
    """Returns every command of esnlm on a page, in a block or within a line."""
    text = page.read_text()
    lines = [line for kind, line in blocks(page) if kind == "command"]
    lines += [
        line.replace("\n", " ")
        for line in re.findall(r"(?<!`)`((?:esnlm|python -m esnlm|python (?:train|eval_blimp)\.py) [^`]+)`(?!`)", text)
    ]
    return [line for line in lines if words_of(line) and not re.search(r"\.\.\.|\[--|\bCOMMAND\b", line)]


def words_of(line: str) -> list[str] | None:
    """Returns the command of esnlm in a line and its arguments; None where another program is called."""
    for start, name in {
        "esnlm ": "",
        "python -m esnlm ": "",
        "python train.py": "train",
        "python eval_blimp.py": "blimp",
    }.items():
        if line.startswith(start):
            return [*([name] if name else []), *shlex.split(line.removeprefix(start), comments=True)]
    return None


@pytest.mark.parametrize("page", sorted(NAMES.keys() - {"errors"}))
def test_every_command_that_a_page_names_has_these_options(page):
    for line in named(NAMES[page]):
        name, *rest = words_of(line)
        if name in ("--help", "lm-eval"):  # whose options are the harness's own
            continue
        assert name in commands.COMMANDS, f"{page}: {line}"
        parser = Parser(name)
        importlib.import_module(commands.COMMANDS[name]).add_arguments(parser)
        known = {option for action in parser._actions for option in action.option_strings}
        settings = parser.get_default("overrides") is not None
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
    """Fills a folder with a corpus, some minimal pairs under BLiMP's names, a text, and a tokenizer in place of GPT-2's."""
    sentences = list(grammar.sentences(1200, seed=1))
    train, dev = sentences[:1000], sentences[1000:]
    texts = {"corpus/train/book.txt": train, "corpus/dev/book.txt": dev, "babylm_data/babylm_dev/cbt.dev": dev}
    texts |= {f"babylm_data/babylm_{size}M/cbt.train": train for size in (10, 100)}
    for name, some in texts.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("\n".join(some) + "\n")
    (folder / "blimp").mkdir()
    good, bad = (
        ["The cats sleep.", "The dog jumps.", "My aunts wait."],
        ["The cats sleeps.", "The dog jump.", "My aunts waits."],
    )
    for paradigm, phenomenon in PARADIGMS.items():
        pairs = [
            {"sentence_good": g, "sentence_bad": b, "UID": paradigm, "linguistics_term": phenomenon, "field": "syntax"}
            for g, b in zip(good, bad, strict=True)
        ]
        (folder / "blimp" / f"{paradigm}.jsonl").write_text("\n".join(map(json.dumps, pairs)) + "\n")
    (folder / "text.txt").write_text("The cats sleep.\nThe dog that the girls like jumps.\n")
    (folder / "tokenizer").mkdir()
    word_tokenizer(grammar.words()).save(folder / "tokenizer")
    return folder


@pytest.fixture(scope="module")
def after_own_text(tmp_path_factory) -> Path:
    """A folder in which all that own_text.md says was done."""
    folder = make_world(tmp_path_factory.mktemp("pages"))
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        run_page("own_text")
    return folder


@pytest.fixture(scope="module")
def trained(after_own_text) -> Path:
    """The same folder with a second run and the quickstart's."""
    with pytest.MonkeyPatch.context() as here:
        here.chdir(after_own_text)
        second = "--config configs/esn_at_scale/esn.yaml --model.reservoir.state_size 1024 --run runs/second --seed 1"
        run_command(f"esnlm train {second}")
        run_command("esnlm blimp --run runs/second --data blimp/")
        run_command("esnlm train")
    return after_own_text


@pytest.mark.nightly
def test_own_text(after_own_text):
    """Every command of the page was run. What it promises is there."""
    assert (after_own_text / "runs" / "first" / "evaluation" / "blimp-paper.json").is_file()
    assert json.loads((after_own_text / "likelihood.json").read_text())


@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted(NAMES.keys() - TESTED_ELSEWHERE - {"own_text"}))
def test_a_page(page, request, monkeypatch, tmp_path):
    monkeypatch.chdir(make_world(tmp_path) if page in FRESH else request.getfixturevalue("trained"))
    run_page(page)


def run_page(name: str) -> None:
    """Runs the commands and the code of a page in the working folder."""
    names: dict = {}
    for lines, file in re.findall(
        r"((?:^ {4}[^\n]*\n|^\n)+)Save these lines as `(\S+)`", NAMES[name].read_text(), re.MULTILINE
    ):
        Path(file).write_text(textwrap.dedent(lines))
    for kind, text in blocks(NAMES[name]):
        if kind == "command":
            run_command(text)
        elif missing := [
            package for package in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE) if not there(package)
        ]:
            pytest.skip(f"needs {', '.join(missing)}")
        elif "lambada_openai" not in text:  # which would be downloaded
            exec(compile(text, name, "exec"), names)


def there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def run_command(line: str) -> None:
    """Runs one line, made smaller, unless NOT_RUN has it. Then it checks what can be checked of it."""
    for pattern, replacement in SHRUNK:
        line = re.sub(pattern, replacement, line)
    if any(re.search(pattern, line) for pattern in NOT_RUN):
        return check_names(line)
    words = words_of(line)
    if words is None:
        line = re.sub(r"^python3? ", f"{sys.executable} ", line)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(["bash", "-c", line], check=True, env=environment, stdout=subprocess.DEVNULL)
        return None
    if words[0] == "study":
        words.append("--plan")
    if words[0] in ("train", "diagnose") and "--from" not in words and (words[0] == "train" or "--config" in words):
        words += smaller(words)
    assert commands.main(words) == 0, line
    return None


def smaller(words: list[str]) -> list[str]:
    """Returns the settings that make a training small and that its command does not give."""
    file = words[words.index("--config") + 1] if "--config" in words else "configs/quickstart.yaml"
    tree = yaml.safe_load(find_config(file).read_text())
    family, kind = tree.get("model", {}).get("family", "esn"), tree.get("data", {}).get("kind", "grammar")
    settings = f"{SMALL.get(kind, '')} {SMALL[family]}"
    if "lms" in file or "rls" in file:
        settings = settings.replace("--model.readout.rank 4", "")
    pairs = zip(settings.split()[::2], settings.split()[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in words for word in pair]


def check_names(line: str) -> None:
    """Checks that the script in a line exists, and the extras that it installs."""
    for file in re.findall(r"python ((?:benchmarks|docs)/\S+)", line):
        assert (ROOT / file).is_file(), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {extra for some in re.findall(r"(?:\.|esnlm)\[([\w,-]+)\]", line) for extra in some.split(",")}
    assert extras <= project["optional-dependencies"].keys(), line
