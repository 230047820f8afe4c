"""The likelihood of texts as a table, for people."""

from esnlm.io.screen import Screen

HEADER = ("NLL", "without EOS", "bits/byte", "nats/word", "perplexity")


def show(result: dict) -> None:
    """Prints the figures of `esnlm likelihood`: a row for each text and model, then the size of each text and notes."""
    screen = Screen()
    screen.line(
        f"{result['run']}, step {result['step']}: NLL in nats per predicted token, EOS among them but where it says so"
    )
    rows = []
    for text in result["texts"]:
        for i, (name, figures) in enumerate(text["models"].items()):
            cells = [f"{figures[key]:.4f}" for key in ("nll", "nll_without_eos", "bits_per_byte", "nats_per_word")]
            which = result["run"] if name == "model" else name
            rows.append(["" if i else text["path"], which, *cells, f"{figures['perplexity']:,.2f}"])
    screen.table(["text", "model", *HEADER], rows, align="llr")
    for text in result["texts"]:
        counts = f"{text['sentences']:,} sentences, {text['tokens']:,} predicted tokens"
        screen.line(f"{text['path']}: {counts}, {text['words']:,} words, {text['bytes']:,} bytes")
    for note in result["notes"]:
        screen.line(note)
