"""What a person sees at the end of a run: tables on the terminal and pictures in plots/."""

from typing import Any

from rich.console import Console
from rich.table import Table

from esnlm import loaded_run
from esnlm.data.corpus import Corpus
from esnlm.data.sources import DataSource
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.evaluation.likelihood import perplexity
from esnlm.models.ngrams import BigramModel, UnigramModel
from esnlm.reporting import blimp_report, blimp_text
from esnlm.reporting.loss_plot import plot_loss
from esnlm.runs.console import clock
from esnlm.runs.directory import RunDirectory


def show_results(directory: RunDirectory, corpus: Corpus, summary: dict[str, Any]) -> None:
    """Prints the losses of a run beside what they should be compared with, and plots them.

    A run whose directory holds minimal pairs is scored on them, too.

    Args:
        summary: of training/summary.py, with `references` as below.
    """
    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    console.print(_loss_table(summary))
    console.print(
        f"{summary['status']}: {summary['step']:,} updates, {summary['tokens']:,} tokens in {clock(summary['seconds'])}"
        f" ({summary['tokens_per_second']:,.0f} tokens/s); {summary['trainable_params']:,} trained of"
        f" {summary['total_params']:,} parameters{_usage(summary)}"
    )
    if directory.minimal_pairs.exists():
        bigram = BigramModel.fit(corpus.train, corpus.tokenizer.vocab_size)
        pairs = minimal_pairs.load(directory.minimal_pairs)
        evaluation = evaluate(loaded_run.load(directory.path), pairs, baselines={"bigram": bigram})
        blimp_report.write(evaluation, directory.evaluation / "blimp-paper.json")
        console.print()
        blimp_text.show(evaluation.result, console)
    plots = plot_loss(directory, summary["references"])
    console.print(f"\nrun directory: {directory.path}    plots: {plots}", soft_wrap=True, markup=False)


def _usage(summary: dict[str, Any]) -> str:
    """Returns the share of the device's highest speed, where it is known, and the peak of the memory in use."""
    share = "" if summary["mfu"] is None else f"; MFU {100 * summary['mfu']:.1f} %"
    return f"{share}; memory {summary['peak_memory_bytes'] / 1e9:.2f} GB"


def references(source: DataSource, corpus: Corpus) -> dict[str, float]:
    """Returns what a model's validation NLL should be compared with: other models' NLL, in nats per token, by name.

    They are a unigram and a bigram model of the training text, and what the source knows of its corpus itself. Empty where
    there is no validation text.
    """
    store, vocab_size = corpus.validation, corpus.tokenizer.vocab_size
    if store is None:
        return {}
    return {
        "unigram model": UnigramModel.fit(corpus.train, vocab_size).nll(store),
        "bigram model": BigramModel.fit(corpus.train, vocab_size).nll(store),
        **source.reference_nlls(store, corpus.tokenizer),
    }


def _loss_table(summary: dict[str, Any]) -> Table:
    table = Table("", "nats per token", "perplexity", "above the model", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    of_what = "a sample of it" if "regression" in summary else "mean over the last epoch"
    table.add_row(f"training, {of_what}", *_row(summary["train_nll"], None))
    if summary["val_nll"] is not None:
        table.add_row("[bold]validation[/]", *_row(summary["val_nll"], None))
        for name, nll in summary["references"].items():
            table.add_row(name, *_row(nll, summary["val_nll"]))
        table.add_row("validation, without EOS", *_row(summary["val_nll_without_eos"], None))
        table.add_row("validation, bits per byte", f"{summary['val_bits_per_byte']:.4f}")
    return table


def _row(nll: float, against: float | None) -> list[str]:
    gap = "" if against is None else f"{nll - against:+.4f}"
    return [f"{nll:.4f}", f"{perplexity(nll):.2f}", gap]
