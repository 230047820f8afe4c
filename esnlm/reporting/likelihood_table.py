"""The likelihood of texts as a table, for people."""

import sys

from rich.console import Console
from rich.table import Table

HEADER = ("NLL", "without EOS", "bits/byte", "nats/word", "perplexity")


def show(result: dict) -> None:
    """Prints the figures of workflows/likelihood.py: a row for each text and model, then the size of each text and notes."""
    # Where there is no terminal, nothing is cut or folded: a table of no given width is as wide as its cells.
    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False)
    print(
        f"{result['run']}, step {result['step']}: NLL in nats per predicted token, EOS among them but where it says so"
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("text", overflow="fold")
    table.add_column("model", no_wrap=True)
    for name in HEADER:
        table.add_column(name, justify="right", no_wrap=True)
    for text in result["texts"]:
        for i, (name, figures) in enumerate(text["models"].items()):
            cells = [f"{figures[key]:.4f}" for key in ("nll", "nll_without_eos", "bits_per_byte", "nats_per_word")]
            which = result["run"] if name == "model" else name
            table.add_row("" if i else text["path"], which, *cells, f"{figures['perplexity']:,.2f}")
    console.print(table)
    for text in result["texts"]:
        counts = f"{text['sentences']:,} sentences, {text['tokens']:,} predicted tokens"
        print(f"{text['path']}: {counts}, {text['words']:,} words, {text['bytes']:,} bytes")
    for note in result["notes"]:
        print(note)
