"""python -m esnlm COMMAND: what goes with training and evaluation.

prepare    raw text files to a token store
score      log-probabilities of sentences under a trained run
generate   text from a trained run
import     a GPT-2 in Hugging Face's format to a run
study      the runs of a study file, and their table
diagnose   a reservoir: does it forget, and what does it hold
report     a table of several runs
"""

import shlex
import sys
from pathlib import Path

from esnlm.commands.base import Parser, exit_with


def main() -> int | None:
    parser = Parser("python -m esnlm", description="Echo state network language models at scale.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_prepare(commands)
    _add_score(commands)
    _add_generate(commands)
    _add_import(commands)
    _add_study(commands)
    _add_diagnose(commands)
    _add_report(commands)
    known, overrides = parser.parse_known_args()
    arguments = vars(known)
    if arguments.pop("command") in ("study", "diagnose"):
        arguments["overrides"] = overrides
    elif overrides:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    return arguments.pop("call")(**arguments)


def _add_prepare(commands) -> None:
    command = commands.add_parser("prepare", help="raw text files to a token store")
    add = command.add_argument
    add(
        "--input",
        dest="inputs",
        nargs="+",
        type=Path,
        required=True,
        metavar="PATH",
        help="text files, or folders of them",
    )
    add("--out", type=Path, required=True, metavar="DIR", help="the token store to make")
    add("--tokenizer", default="gpt2", help="gpt2, a folder with one, or train:8192 (default: %(default)s)")
    add("--sentences", choices=("punkt", "line"), default="punkt", help="how lines are split (default: %(default)s)")
    add("--language", default="english", help="of the Punkt model (default: %(default)s)")
    add("--punkt-data", type=Path, metavar="DIR", help="where Punkt's data lies, if not on NLTK's own path")
    add("--min-length", type=int, default=6, help="tokens with BOS and EOS; shorter are dropped (default: %(default)s)")
    add("--max-length", type=int, default=512, help="tokens with BOS and EOS; longer are cut (default: %(default)s)")
    add("--max-words", type=int, help="stop at about so many words, from each file its share")
    add("--workers", type=int, help="processes (default: one a core)")
    add("--overwrite", action="store_true", help="replace an existing store")

    def call(**options) -> None:
        from esnlm.data.prepare import prepare

        prepare(**options)

    command.set_defaults(call=call)


def _add_score(commands) -> None:
    command = commands.add_parser("score", help="log-probabilities of sentences under a trained run")
    add = command.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--input", type=Path, metavar="FILE", help="one sentence a line (default: standard input)")
    add(
        "--scoring",
        choices=("paper", "lm-eval", "babylm"),
        default="paper",
        help="the convention (default: %(default)s)",
    )
    add("--step", type=int, help="checkpoint (default: the newest that is good)")

    def call(run: str, input: Path | None, scoring: str, step: int | None) -> None:
        from esnlm import load
        from esnlm.data.sentences import read_lines

        sentences = read_lines(input)
        for sentence, log_prob in zip(sentences, load(run, step).log_probs(sentences, scoring), strict=True):
            print(f"{log_prob:.6f}\t{sentence}")

    command.set_defaults(call=call)


def _add_generate(commands) -> None:
    command = commands.add_parser("generate", help="text from a trained run")
    add = command.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--prompt", default="", help="what the text begins with (default: nothing)")
    add("--count", type=int, default=1, help="continuations (default: %(default)s)")
    add("--length", type=int, default=50, help="tokens at most (default: %(default)s)")
    add("--temperature", type=float, default=1.0, help="0 takes the most probable token (default: %(default)s)")
    add("--top-k", type=int, help="choose among so many tokens (default: all)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    add("--step", type=int, help="checkpoint (default: the newest that is good)")

    def call(run: str, prompt: str, step: int | None, **options) -> None:
        from esnlm import load

        for text in load(run, step).generate(prompt, **options):
            print((prompt + text).encode(errors="replace").decode())  # a prompt may have bytes that are no text

    command.set_defaults(call=call)


def _add_import(commands) -> None:
    command = commands.add_parser("import", help="a GPT-2 in Hugging Face's format to a run")
    command.add_argument(
        "folder", type=Path, metavar="FOLDER", help="config.json, model.safetensors and the tokenizer's files"
    )
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run directory to make")

    def call(folder: Path, out: Path) -> None:
        from esnlm.workflows.import_gpt2 import import_gpt2

        print(f"{import_gpt2(folder, out).model.title} is in {out}")

    command.set_defaults(call=call)


def _add_study(commands) -> None:
    command = commands.add_parser(
        "study", help="the runs of a study file, and their table; --section.key value is for all of them"
    )
    add = command.add_argument
    add("file", type=Path, metavar="FILE", help="a study, such as those in configs/studies")
    add("--out", type=Path, metavar="DIR", help="where runs and table go (default: the file's out)")
    add("--blimp", type=Path, metavar="PATH", help="minimal pairs to score with each run (default: the file's blimp)")
    add(
        "--plan",
        dest="only_plan",
        action="store_true",
        help="list the runs, what is done, and the time left; trains nothing",
    )

    def call(**options) -> int:
        from esnlm.studies.study import run_study

        return run_study(**options, command=shlex.join(["python", "-m", "esnlm", *sys.argv[1:]]))

    command.set_defaults(call=call)


def _add_diagnose(commands) -> None:
    command = commands.add_parser("diagnose", help="a reservoir: does it forget, and what does it hold")
    add = command.add_argument
    add("--run", metavar="DIR", help="a run directory")
    add("--config", metavar="FILE", help="a configuration, which needs no training; --section.key value wins over it")
    add("--data", type=Path, metavar="FILE", help="text that drives it, one sentence a line (default: the run's own)")
    add("--out", type=Path, metavar="DIR", help="where the report goes (default: diagnostics/ in the run directory)")

    def call(**options) -> None:
        from esnlm.diagnosis.diagnose import diagnose

        diagnose(**options, command=shlex.join(["python", "-m", "esnlm", *sys.argv[1:]]))

    command.set_defaults(call=call)


def _add_report(commands) -> None:
    command = commands.add_parser("report", help="a table of several runs")
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories")
    command.add_argument("--out", type=Path, metavar="FILE.md", help="write it there, too, and as JSON beside it")

    def call(runs: list[Path], out: Path | None) -> None:
        from esnlm.reporting.run_table import report

        print(report(runs, out), end="")

    command.set_defaults(call=call)


if __name__ == "__main__":
    sys.exit(exit_with(main))
