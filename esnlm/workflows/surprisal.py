"""A table of the surprisals of a text under a run, from the run directory and the text to the written files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from esnlm import loaded_run
from esnlm.data.tables import read_table
from esnlm.data.text_files import read_lines
from esnlm.errors import require
from esnlm.evaluation.surprisal import Options
from esnlm.io.console import counted, warn, working
from esnlm.loaded_run import Step
from esnlm.workflows.surprisal_files import TableFiles


def tabulate(
    run: str | Path,
    text: Path | None,
    options: Options,
    files: TableFiles,
    *,
    column: str | None = None,
    document: str | None = None,
    context: str = "sentence",
    quotes: bool = True,
    step: Step = None,
) -> str | None:
    """Scores the words of a text and writes their table. All input is checked before anything is scored.

    Args:
        run: the run directory.
        text: one sentence a line, where a blank line ends a document; with `column` a TSV or CSV; None: standard input.
        options: what the rows are.
        files: where the table goes.
        column: the column of the sentences. The other columns are repeated in each row.
        document: the column that tells documents apart, for context "document".
        context: as in `Run.surprisal`.
        quotes: as in `read_table`, of a table.
        step: the checkpoint of this step; None: the newest.

    Returns:
        The text of the table, or None where it went to a file.

    Raises:
        InputError: the text, the run, a column or a file is not usable.
    """
    files.check()
    options.check()
    require(
        document is None or (column is not None and context == "document"),
        "--document names a column that tells documents apart: give --column and --context document with it",
    )
    require(quotes or column is not None, "--no-quotes is for tables: give --column or --word with it")
    sentences, documents, others = _read(text, column, document, quotes)
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
        documents=[documents[number] for number in kept] if context == "document" else None,
        progress="brief",
        **dataclasses.asdict(options),
    )
    for row in rows:
        row["sentence"] = kept[row["sentence"]]
    table = [row | others[row["sentence"]] for row in rows]
    return files.write(table, rows, f"{loaded.name}, step {loaded.step}: surprisal in {options.unit}")


def _read(
    text: Path | None, column: str | None, document: str | None, quotes: bool
) -> tuple[list[str], list[object], list[dict[str, str]]]:
    """Returns the sentences, the document of each, and what the table repeats of it."""
    if column is not None:
        table = read_table(text, quotes)
        documents: Sequence[object] = table.column(document) if document else [None] * len(table.rows)
        cells = table.texts(column)
        words_only = all(len(cell.split()) < 2 for cell in cells)  # or sentences of a language without spaces
        if len(cells) > 1 and words_only and sum(map(len, cells)) < 10 * len(cells):
            warn(
                f"{text or 'standard input'}: each row of column {column!r} has one word, which is scored as a whole sentence; to score"
                f" words in their sentence, give --word {column} in place of --column {column}"
            )
        spaced = [line for line, cell in zip(table.lines, cells, strict=True) if cell != cell.strip() and cell.strip()]
        if spaced:
            more = f", and in {counted(len(spaced) - 1, 'more row')}" * (len(spaced) > 1)
            warn(
                f"{table.name}:{spaced[0]}: white space at an end of the cell{more}, is scored as a part of the sentence; take it away where"
                " it is not meant"
            )
        return cells, list(documents), table.others([column])
    lines = read_lines(text)
    ends = 0
    numbers: list[object] = []
    for line in lines:
        ends += not line
        numbers.append(ends)
    return lines, numbers, [{} for _ in lines]
