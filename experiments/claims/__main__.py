"""Checks each claim in a file against the results of studies, and writes a page in Markdown.

    python -m experiments.claims studies/two_cores --out claims.md

DIR has a folder for each study that the claims name. A file of claims has `claims`, a list with
`claim`, `source` and `parts`, and may have an `answer`, the text on top of the page. A part is a
sentence, `says`, perhaps with the numbers of a `paper`, and one check on a `measure` of a `study`:

    falls: SELECTION               the measure falls from each cell to the next
    rises: SELECTION               it rises
    below: [SELECTION, SELECTION]  every cell of the first is below every cell of the second
    above: [SELECTION, SELECTION]
    under: {..., limit: L}         in every run of the selected cells it is finite and at most L
    over: {..., limit: L}          in every run it is above L, or not a finite number
    flat: {case: C, within: W}     all slopes of a case of a study of alignment are between -W and W
    steep: {case: C, within: W}    no slope is

A SELECTION is `{cells: [NAME, ...]}`, or `{along: AXIS, case: C, from: X, to: Y}`: the cells on an
axis, by their values. For a part without a check, `why` says where it is tested instead.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from esnlm.base.errors import InputError
from esnlm.commands.arguments import Parser
from esnlm.evaluation.statistics import seed_interval
from esnlm.machine.process import exit_with
from esnlm.reports.report import markdown_table
from esnlm.studies.table import MADE_FROM
from experiments.claims.verdicts import NOT_TESTED, Finding, combine, digits_of, examine, spell

RULES = """\
Differences are taken seed by seed, and their 95 % intervals are Student's t over seeds. A sentence **holds** if the interval of
each of its differences lies on the side that it names. It **does not hold** if one of its k differences has an interval of
100 - 5 / k percent (Bonferroni) on the other side. Otherwise, and always with fewer than three seeds, it is **not resolved**. A
sentence that counts runs holds if it is true of all of them, and does not hold if it is true of none in a cell. **Not tested**
means that these studies cannot test it. A claim holds if all its tested sentences hold, and does not hold if one of them does
not. Verdicts are not corrected for the number of sentences. NLL includes the EOS of each sentence, which is easy to
predict{papers}. The tables of the studies also give it without EOS."""
OF_PAPERS = "; the papers do not say whether theirs does"


def main() -> None:
    parser = Parser("python -m experiments.claims", description=__doc__)
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder with the folders of the studies"
    )
    default = Path(__file__).with_name("papers.yaml")
    parser.add_argument(
        "--claims",
        type=Path,
        default=default,
        metavar="FILE",
        help="the claims (default: the papers')",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page there, too")
    options = parser.parse_args()
    try:
        asked = yaml.safe_load(options.claims.read_text("utf-8"))
        studies = read_studies(options.folder, asked["claims"])
        page = render(
            asked["claims"],
            studies,
            f"{parser.prog} {shlex.join(sys.argv[1:])}",
            asked.get("answer", ""),
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise (
            error if isinstance(error, InputError) else InputError(f"{options.claims}: {error!r}")
        ) from None
    print(page, end="")
    if options.out is not None:
        options.out.write_text(page, "utf-8")


def read_studies(folder: Path, claims: Sequence[Any]) -> dict[str, Any]:
    """Returns table.json, or alignment.json of experiments/bottleneck, of each study that the
    claims name and that is there."""
    found = {}
    for name in dict.fromkeys(
        part["study"] for claim in claims for part in claim["parts"] if "study" in part
    ):
        files = [folder / name / "alignment.json", folder / name / "table.json"]
        for file in [file for file in files if file.is_file()][:1]:
            tree = json.loads(file.read_bytes())
            # at its end, and no search
            if "report" in tree or (file.stem == "table" and "trials" not in tree):
                found[name] = tree
    if not found:
        raise InputError(
            f"{folder}: has none of the studies that the claims name; name the folder in which"
            " their folders lie"
        )
    return found


def render(claims: Sequence[Any], studies: dict[str, Any], command: str, answer: str) -> str:
    """Returns the page: the answer, the verdicts, each sentence with its numbers, and how they were
    measured."""
    findings = [
        [examine(part, studies.get(part.get("study"))) for part in claim["parts"]]
        for claim in claims
    ]
    papers = (
        OF_PAPERS if any("paper" in part for claim in claims for part in claim["parts"]) else ""
    )
    lines = ["# Claims", "", *([answer.strip(), ""] if answer else [])]
    rows = []
    for i, (claim, its) in enumerate(zip(claims, findings, strict=True), start=1):
        tested = sum(finding.verdict != NOT_TESTED for finding in its)
        verdict = combine([finding.verdict for finding in its])
        rows.append([i, claim["claim"].strip(), f"**{verdict}**", f"{tested} of {len(its)}"])
    lines += markdown_table(["", "claim", "verdict", "sentences tested"], rows)
    for i, (claim, its) in enumerate(zip(claims, findings, strict=True), start=1):
        lines += ["", f"## Claim {i}", "", f"From {claim['source']}", ""]
        parts, names = claim["parts"], [f"{i}{chr(ord('a') + k)}" for k in range(len(its))]
        paper = any("paper" in part for part in parts)
        told = list(zip(names, parts, its, strict=True))
        lines += markdown_table(
            ["", "sentence", *["the paper"] * paper, "here", "verdict"],
            [_row(*each, paper) for each in told],
        )
        differences = [
            row for name, part, finding in told for row in _differences(name, part, finding)
        ]
        if differences:
            lines += [
                "",
                *markdown_table(
                    ["", "difference", "mean", "95 %", "seeds"], differences, align="llr"
                ),
            ]
    lines += [
        "",
        "## How it was measured",
        "",
        RULES.format(papers=papers),
        "",
        *_describe(studies),
    ]
    return "\n".join([*lines, "", f"Made by `{command}`"]) + "\n"


def _describe(studies: dict[str, Any]) -> list[str]:
    """Returns what the studies were made from: text, vocabulary, epochs, seeds, hours and
    machines."""
    rows, notes, commands, origins = [], dict[str, list[str]](), [], dict[str, None]()
    for name, tree in studies.items():
        runs = (
            [run for cell in tree["cells"] for run in cell["runs"]] if "report" not in tree else []
        )
        values = [
            sorted({run[key] for run in runs if run.get(key) is not None}) for key in MADE_FROM
        ]
        texts = [
            ", ".join(f"{x:,}" if isinstance(x, int) else f"{x:.10g}" for x in its)
            for its in values
        ]
        hours = f"{sum(float(run['seconds']) for run in runs) / 3600:.1f}" if runs else ""
        note = tree.get("note")
        if "report" in tree:
            texts[-1] = str(tree["study"]["seeds"])
            note = tree["study"]["note"] + (
                "" if tree["study"]["images"]["folder"] else " The images are generated."
            )
        rows.append([name, len(runs) or "", *texts, hours])
        notes.setdefault(note or "", []).append(name)
        commands += [f"- `{tree['command']}`"]
        origins |= dict.fromkeys(f"- on {run['origin']}" for run in runs)
    lines = markdown_table(
        ["study", "runs", *MADE_FROM.values(), "hours of training"], rows, align="lr"
    )
    for note, names in notes.items():
        lines += ["", f"{', '.join(names)}: {note}"] if note else []
    return [*lines, "", "Made by", "", *commands, *origins]


def _row(name: str, part: Any, finding: Finding, paper: bool) -> list[str]:
    word = f"**{finding.verdict}**" + (f": {finding.reason}" if finding.reason else "")
    study = f"{part['study']}: " if "measure" in part and finding.here else ""
    of_paper = [part.get("paper", "").strip()] * paper
    return [name, part["says"].strip(), *of_paper, study + "; ".join(finding.here), word]


def _differences(name: str, part: Any, finding: Finding) -> list[list[str]]:
    rows = []
    for title, values in finding.differences:
        digits, interval = digits_of(part["measure"]), seed_interval(values)
        mean, *ends = [
            _signed(x, digits) for x in (sum(values) / max(1, len(values)), *(interval or ()))
        ]
        rows.append([name, title, mean, " .. ".join(ends), str(len(values))])
    return rows


def _signed(value: float, digits: int) -> str:
    text = spell(value, digits)
    return text if text.startswith(("-", "n")) else f"+{text}"


if __name__ == "__main__":
    sys.exit(exit_with(main))
