"""A table of the surprisals of a text under a run, from the run directory and the text to the written files."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from esnlm import loaded_run
from esnlm.data.tables import read_table
from esnlm.data.text_files import read_lines
from esnlm.errors import InputError, require
from esnlm.evaluation.surprisal import Options
from esnlm.loaded_run import Step
from esnlm.reporting import surprisal_plot
from esnlm.reporting.row_table import table_format, table_text
from esnlm.runs.atomic import write_files
from esnlm.runs.console import warn, working


def tabulate(
    run: str | Path,
    text: Path | None,
    options: Options,
    *,
    column: str | None = None,
    document: str | None = None,
    context: str = "sentence",
    out: Path | None = None,
    format: str | None = None,
    plot: Path | None = None,
    overwrite: bool = False,
    step: Step = None,
) -> str | None:
    """Scores the words of a text and writes their table. All input is checked before anything is scored.

    Args:
        run: the run directory.
        text: one sentence a line, where a blank line ends a document; with `column` a TSV or CSV; None: standard input.
        options: what the rows are.
        column: the column of the sentences. The other columns are repeated in each row.
        document: the column that tells documents apart, for context "document".
        context: as in `Run.surprisal`.
        out: the table's file; None: the table is returned.
        format: of the table: "tsv", "csv" or "jsonl"; None: by the suffix of `out`.
        plot: a PNG file to draw the surprisals in.
        overwrite: whether to replace files.
        step: the checkpoint of this step; None: the newest.

    Returns:
        The text of the table, or None where it went to `out`.

    Raises:
        InputError: the text, the run, a column or a file is not usable.
    """
    kind = table_format(out, format)
    options.check()
    require(plot is None or plot.suffix.lower() == ".png", f"{plot}: the plot's name must end in .png")
    for file in (out, plot):
        if file is not None and file.exists() and not overwrite:
            raise InputError(f"{file}: exists: name another file, or replace it with --overwrite")
    require(
        document is None or (column is not None and context == "document"),
        "--document names a column that tells documents apart: give --column and --context document with it",
    )
    sentences, documents, others = _read(text, column, document)
    kept = [number for number, sentence in enumerate(sentences) if sentence.strip()]
    require(bool(kept), f"{text or 'standard input'}: no sentence to score: all of it is white space")
    own = options.columns()
    for name in others[0]:
        require(
            name not in own,
            f"{text or 'standard input'}: column {name!r} would stand twice in the table, which has {', '.join(own)} of its own:"
            " give it another name",
        )

    with working(f"loading {run}"):
        loaded = loaded_run.load(run, step)
    rows = loaded.surprisal(
        [sentences[number] for number in kept],
        context=context,
        documents=[documents[number] for number in kept],
        progress="brief",
        **dataclasses.asdict(options),
    )
    for row in rows:
        row["sentence"] = kept[row["sentence"]]
    table = table_text([row | others[row["sentence"]] for row in rows], kind)
    return _write(table, out, plot, rows, f"{loaded.name}, step {loaded.step}: surprisal in {options.unit}")


def _read(
    text: Path | None, column: str | None, document: str | None
) -> tuple[list[str], list[object], list[dict[str, str]]]:
    """Returns the sentences, the document of each, and what the table repeats of it."""
    if column is not None:
        table = read_table(text)
        documents: Sequence[object] = table.column(document) if document else [None] * len(table.rows)
        cells = table.column(column)
        words_only = all(len(cell.split()) < 2 for cell in cells)  # or sentences of a language without spaces
        if len(cells) > 1 and words_only and sum(map(len, cells)) < 10 * len(cells):
            warn(
                f"{text or 'standard input'}: each row of column {column!r} has one word, which is scored as a whole sentence; to score"
                " words in their sentence, join them to one row"
            )
        return cells, list(documents), table.others([column])
    lines = read_lines(text)
    ends = 0
    numbers: list[object] = []
    for line in lines:
        ends += not line
        numbers.append(ends)
    return lines, numbers, [{} for _ in lines]


def _write(table: str, out: Path | None, plot: Path | None, rows: list[dict], title: str) -> str | None:
    """Writes the files and says so. Returns the table where it goes to no file."""
    contents: dict[Path, str | bytes | None] = {}
    if out is not None:
        contents[out] = table
    notes = []
    if plot is not None:
        picture, note = surprisal_plot.plot(rows, title)
        notes += [note] if note else []
        if picture is not None:
            contents[plot] = picture
    write_files(contents)
    if contents or notes:
        notes = [f"written: {', '.join(map(str, contents))}"] * bool(contents) + notes
        print("; ".join(notes), file=sys.stderr)
    return table if out is None else None
