"""Shows the results at the end of a run: tables on the terminal and plots in plots/."""

from typing import Any

from esnlm import loaded_run
from esnlm.base.console import clock, info
from esnlm.base.screen import Screen
from esnlm.data.corpus import Corpus
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.evaluation.likelihood import perplexity
from esnlm.models.ngrams import NgramModel
from esnlm.reports import blimp_report, blimp_text
from esnlm.reports.loss_plot import plot_losses
from esnlm.runs.directory import RunDirectory


def show_results(directory: RunDirectory, corpus: Corpus, summary: dict[str, Any]) -> None:
    """Prints the losses of a run with reference values, plots them, and scores its own minimal
    pairs.

    Args:
        summary: from training/summary.py.
    """
    screen = Screen()
    screen.table(
        ["", "nats per token", "perplexity", "above the model"],
        _losses(summary),
        bold={"validation"},
    )
    screen.line(
        f"{summary['status']}: {summary['step']:,} updates, {summary['tokens']:,} tokens in"
        f" {clock(summary['seconds'])} ({summary['tokens_per_second']:,.0f} tokens/s);"
        f" {summary['trainable_params']:,} trained of {summary['total_params']:,} parameters;"
        f" memory {summary['peak_memory_bytes'] / 1e9:.2f} GB"
    )
    if directory.minimal_pairs.exists():
        bigram = NgramModel.fit(corpus.train, corpus.tokenizer.vocab_size, order=2)
        pairs = minimal_pairs.load(directory.minimal_pairs)
        evaluation = evaluate(loaded_run.load(directory.path), pairs, baselines={"bigram": bigram})
        report = directory.evaluation / "blimp-paper.json"
        data_sha256 = evaluation.result["data"]["sha256"]
        if others := report.exists() and blimp_report.read(report)["data"]["sha256"] != data_sha256:
            report = directory.evaluation / "blimp-paper-own.json"
        blimp_report.write(evaluation, report)
        screen.line()
        blimp_text.show(evaluation.result, screen)
        if others:
            screen.line(
                f"this report is {report.name}: blimp-paper.json is on other pairs, and stays"
            )
    drawn = plot_losses([directory.path], directory.plots / "loss.png", ended=summary)
    if summary.get("best_step") is not None:
        info(
            f"{summary['ended_because']}; best validation: {summary['best_val_nll']:.4f} nats per"
            f" token at update {summary['best_step']} (load it with --step best)"
        )
    screen.line()
    print(f"run directory: {directory.path}    {drawn}")  # without line breaks, to be copied


def _losses(summary: dict[str, Any]) -> list[list[str]]:
    """Returns the rows of the loss table."""

    def row(name: str, nll: float, against: float | None = None) -> list[str]:
        return [
            name,
            f"{nll:.4f}",
            f"{perplexity(nll):.2f}",
            "" if against is None else f"{nll - against:+.4f}",
        ]

    mean = f"mean over {summary.get('train_nll_of', 'the last epoch')}"
    rows = [
        row(f"training, {'a sample' if 'regression' in summary else mean}", summary["train_nll"])
    ]
    if summary["val_nll"] is not None:
        rows.append(row("validation", summary["val_nll"]))
        rows.append(row("validation, without EOS", summary["val_nll_without_eos"]))
        rows += [row(name, nll, summary["val_nll"]) for name, nll in summary["references"].items()]
        rows.append(["validation, bits per byte", f"{summary['val_bits_per_byte']:.4f}"])
    return rows
