"""A table with a row a word, and the surprisal of each word in its sentence beside it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from esnlm import loaded_run
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.tables import Table, read_table
from esnlm.data.word_rows import find_doubts, group_rows, read_words, split_rows
from esnlm.errors import InputError, require
from esnlm.evaluation.surprisal import Options
from esnlm.io.console import counted, say, warn, working
from esnlm.loaded_run import Step
from esnlm.workflows.surprisal_files import TableFiles


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordColumns:
    """Which columns of a table say what is read."""

    word: str  # the words, one a row, in the order of reading
    sentence: Sequence[str] = ()  # neighbours that agree in all of these are one sentence; (): Punkt splits the words
    document: str | None = None  # tells documents apart; None: all is one
    language: str | None = None  # of Punkt; None: English
    quotes: bool = True  # as in `read_table`


def tabulate_words(
    run: str | Path,
    file: Path | None,
    columns: WordColumns,
    options: Options,
    files: TableFiles,
    context: str = "sentence",
    step: Step = None,
) -> str | None:
    """Scores the words of a table and writes the table again, with their surprisals. All input is checked first.

    Args:
        run: the run directory.
        file: a TSV or CSV; None: standard input, and TSV.
        columns: which of its columns say what.
        options: what a surprisal is. A row is a word of the table, so `by` is "word".
        files: where the table goes.
        context: as in `Run.surprisal`.
        step: the checkpoint of this step; None: the newest.

    Returns:
        The text of the table, or None where it went to a file. Its rows and columns are those of `file`, in their order, and
        surprisal_bits or surprisal_nats.

    Raises:
        InputError: the table, the run, a column or a file is not usable.
    """
    files.check()
    options.check()
    for name, wanted in (("by", "word"), ("punctuation", "attached")):
        value = getattr(options, name)
        require(value == wanted, f"{name} is {value!r}: with --word, a row is what a row of the table is; leave it out")
    require(
        not (columns.sentence and columns.language),
        f"language is {columns.language!r}: it says how words are split into sentences, and --sentence names these; leave one out",
    )
    table = read_table(file, columns.quotes)
    value = f"surprisal_{options.unit}"
    require(value not in table.columns, f"{table.name}: has a column {value!r} already: give it another name")
    words = read_words(table, columns.word)
    documents = table.column(columns.document) if columns.document else [""] * len(words)
    sentences = _find_sentences(table, columns, words, documents)
    say(
        f"{counted(len(words), 'word')} in {counted(len(sentences), 'sentence')}, the longest of {max(map(len, sentences))}"
    )

    with working(f"loading {run}"):
        loaded = loaded_run.load(run, step)
    rows = loaded.surprisal(
        [[words[row] for row in its] for its in sentences],
        context=context,
        documents=[documents[its.start] for its in sentences] if context == "document" else None,
        progress="brief",
        **dataclasses.asdict(dataclasses.replace(options, eos=False)),
    )
    found = [cells | {value: row[value]} for cells, row in zip(table.others([]), rows, strict=True)]
    return files.write(found, rows, f"{loaded.name}, step {loaded.step}: surprisal in {options.unit}")


def _find_sentences(table: Table, columns: WordColumns, words: Sequence[str], documents: Sequence[str]) -> list[range]:
    """Returns the rows of each sentence, and warns where they may not be what was meant."""
    keys = None
    if columns.sentence:
        keys = list(zip(documents, *(table.column(name) for name in columns.sentence), strict=True))
        sentences = group_rows(keys)
    else:
        language = columns.language or "english"
        parameters = load_punkt(language)
        if parameters is None:
            raise InputError(
                f"no pretrained Punkt data for {language} found: nltk.download('punkt_tab') gets it; or name the column that tells"
                " sentences apart with --sentence"
            )
        sentences = split_rows(words, group_rows(documents), punkt_splitter(parameters))
    for doubt in find_doubts(words, sentences, keys, table.after_blank):
        warn(f"{table.name}: {doubt}")
    return sentences
