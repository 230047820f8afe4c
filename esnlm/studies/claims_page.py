"""The page of claims: each sentence beside our numbers, the paper's if a paper says it, and a verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from esnlm.errors import InputError, require
from esnlm.io.atomic import require_writable, write_file
from esnlm.reporting.mean_text import format_value
from esnlm.reporting.tables import markdown_table
from esnlm.studies import made_from, outcomes, verdict
from esnlm.studies.claims import Finding, digits_of, examine
from esnlm.studies.claims_file import Claim, read_claims
from esnlm.studies.outcomes import Outcome
from esnlm.studies.verdict import Difference, Verdict

RULES = """\
A difference is taken seed by seed, and its interval is Student's t over seeds, of 95 %. A sentence **holds** if each of its
differences has its interval on the side that it says. It **does not hold** if one of k differences has an interval of
100 - 5 / k percent (Bonferroni) on the other side. Otherwise it is **not resolved**, and always with fewer than three seeds.
Runs that are counted must all be as the sentence says; if none of a cell is, it does not hold. **Not tested** is what no
study here can say. Of the sentences of a claim that were tested, all must hold for it to hold; one that does not is enough for
it not to. Sentences are judged one by one, without a correction over them. NLL here counts the EOS of each sentence, which is
easily predicted; the papers do not say whether theirs does. The tables of the studies have it without EOS, too.
"""
OF_PAPERS = "; the papers do not say whether theirs does"  # a part of RULES, where a paper makes a claim


def write_page(folder: Path, file: Path, out: Path | None, command: str) -> str:
    """Returns the page in Markdown.

    Args:
        folder: where the folders of the studies lie, each of the name that the claims call it by.
        file: the claims.
        out: a file to write the page to, which an earlier page there gives way to.
        command: the command, to stand on the page.

    Raises:
        InputError: the claims or a study cannot be read, no study is there, or `out` cannot be written.
    """
    claims = read_claims(file)
    names = list(dict.fromkeys(part.study for claim in claims for part in claim.parts if part.study))
    require(folder.is_dir(), f"{folder}: no such folder; name the one in which the folders of the studies lie")
    found = {name: outcome for name in names if (outcome := outcomes.read(folder / name)) is not None}
    if not found:
        require(folder.resolve().name not in names, f"{folder}: the folder of one study; name the one in which it lies")
        message = f"has none of the studies {', '.join(names)}; name the folder in which their folders lie"
        raise InputError(f"{folder}: {message}")
    page = render(claims, found, command)
    if out is not None:
        require_writable(out)
        if out.exists() and not out.read_bytes().startswith(TITLES):
            raise InputError(f"{out}: exists and is no page of claims; name another file with --out")
        write_file(out, page)
    return page


TITLE = "# Claims"
TITLES = (f"{TITLE}\n".encode(), b"# The papers' claims\n")  # of a page; the second is that of earlier versions


def render(claims: Sequence[Claim], found: Mapping[str, Outcome], command: str) -> str:
    """Returns the page for the studies that were found, by name."""
    tested = [[examine(part, found.get(part.study)) for part in claim.parts] for claim in claims]
    verdicts = [verdict.combine([finding.verdict for finding in findings]) for findings in tested]
    rules = RULES if any(part.paper for claim in claims for part in claim.parts) else RULES.replace(OF_PAPERS, "")
    lines = [TITLE, "", *_describe(list(found.values())), "", *rules.splitlines(), ""]
    rows = [
        [number, claim.says, f"**{word}**", f"{_count_tested(findings)} of {len(findings)}"]
        for number, (claim, word, findings) in enumerate(zip(claims, verdicts, tested, strict=True), start=1)
    ]
    lines += markdown_table(["", "claim", "verdict", "sentences tested"], rows)
    for number, (claim, findings) in enumerate(zip(claims, tested, strict=True), start=1):
        lines += ["", f"## Claim {number}", "", f"{claim.says} ({claim.source})", ""]
        named = [(f"{number}{chr(ord('a') + i)}", finding) for i, finding in enumerate(findings)]
        of_paper = any(finding.part.paper for finding in findings)
        header = ["", "sentence", *(["the paper"] if of_paper else []), "here", "verdict"]
        lines += markdown_table(header, [_row(name, finding, of_paper) for name, finding in named])
        differences = [_difference_row(name, finding, each) for name, finding in named for each in finding.differences]
        if differences:
            lines += ["", *markdown_table(["", "difference", "mean", "95 %", "seeds"], differences, align="llr")]
    return "\n".join([*lines, "", f"Made by `{command}`"]) + "\n"


def _count_tested(findings: Sequence[Finding]) -> int:
    return sum(finding.verdict != Verdict.NOT_TESTED for finding in findings)


def _describe(studies: Sequence[Outcome]) -> list[str]:
    """Returns what the studies were made from: text, vocabulary, epochs, seeds, hours and machines."""
    rows = []
    for study in studies:
        runs = study.runs()
        figures = made_from.figures(runs)
        if study.seeds is not None:
            figures["seeds"] = str(study.seeds)
        rows.append([study.name, len(runs) or "", *figures.values()])
    lines = markdown_table(["study", "runs", *made_from.figures([])], rows, align="lr")
    notes: dict[str, list[str]] = {}
    for study in studies:
        notes.setdefault(study.note, []).append(study.name)
    for note, names in notes.items():
        lines += ["", f"{', '.join(names)}: {note}"] if note else []
    origins = dict.fromkeys(f"- on {run['origin']}" for study in studies for run in study.runs())
    commands = [f"- `{study.command}`" for study in studies if study.command]
    return [*lines, "", "Made by", "", *commands, *origins]


def _row(name: str, finding: Finding, of_paper: bool) -> list[str]:
    word = f"**{finding.verdict}**" + (f": {finding.reason}" if finding.reason else "")
    here = "; ".join(finding.here)
    if finding.part.measure and here:
        here = f"{finding.part.study}: {here}"
    return [name, finding.part.says, *([finding.part.paper] if of_paper else []), here, word]


def _difference_row(name: str, finding: Finding, difference: Difference) -> list[str]:
    digits = digits_of(finding.part.measure)
    interval = difference.interval()
    shown = "" if interval is None else f"{_signed(interval[0], digits)} .. {_signed(interval[1], digits)}"
    return [name, difference.name, _signed(difference.mean, digits), shown, str(len(difference.values))]


def _signed(value: float, digits: int) -> str:
    text = format_value(value, digits)
    return text if text.startswith(("-", "n")) else f"+{text}"
