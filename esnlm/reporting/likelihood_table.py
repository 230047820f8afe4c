"""The likelihood of texts as a table, for people."""

from esnlm.io.screen import Screen

FIGURES = {"nll": "NLL", "nll_without_eos": "without EOS", "bits_per_byte": "bits/byte", "nats_per_word": "nats/word"}


def show(result: dict) -> None:
    """Prints the figures of `esnlm likelihood`: a row for each text and model, then the size of each text and notes."""
    screen = Screen()
    screen.line(
        f"{result['run']}, step {result['step']}: NLL in nats per predicted token, with EOS unless it says without"
    )
    rows = []
    for text in result["texts"]:
        for i, (name, figures) in enumerate(text["models"].items()):
            names = ["" if i else text["path"], result["run"] if name == "model" else name]
            rows.append([*names, *(f"{figures[key]:.4f}" for key in FIGURES), f"{figures['perplexity']:,.2f}"])
    screen.table(["text", "model", *FIGURES.values(), "perplexity"], rows, align="llr")
    for text in result["texts"]:
        counts = f"{text['sentences']:,} sentences, {text['tokens']:,} predicted tokens"
        screen.line(f"{text['path']}: {counts}, {text['words']:,} words, {text['bytes']:,} bytes")
    for note in result["notes"]:
        screen.line(note)
