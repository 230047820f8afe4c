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
from esnlm.reports import blimp_report
from esnlm.reports.figures import FIGURES, NATS, format_figure
from esnlm.reports.loss_plot import plot_losses
from esnlm.reports.report import Report
from esnlm.runs.directory import RunDirectory


def show_results(directory: RunDirectory, corpus: Corpus, summary: dict[str, Any]) -> None:
    """Prints and plots the losses of a run, and scores its own minimal pairs.

    Args:
        summary: from training/run.py.
    """
    screen = Screen()
    header = ["", NATS, FIGURES["perplexity"].title, "above the model"]
    screen.table(header, _losses(summary), bold={"validation"})
    speed = format_figure("tokens_per_second", summary["tokens_per_second"])
    screen.line(
        f"{summary['status']}: {summary['step']:,} updates, {summary['tokens']:,} tokens in"
        f" {clock(summary['seconds'])} ({speed} tokens/s);"
        f" {summary['trainable_params']:,} trained of {summary['total_params']:,} parameters;"
        f" memory {summary['peak_memory_bytes'] / 1e9:.2f} GB"
    )
    if directory.minimal_pairs.exists():
        bigram = NgramModel.fit(corpus.train, corpus.tokenizer.vocab_size, order=2)
        pairs = minimal_pairs.load(directory.minimal_pairs)
        evaluation = evaluate(loaded_run.load(directory.path), pairs, baselines={"bigram": bigram})
        file = directory.evaluation / "blimp-paper.json"
        has_other_pairs = file.exists() and (
            blimp_report.read(file)["data"]["sha256"] != evaluation.result["data"]["sha256"]
        )
        if has_other_pairs:
            file = directory.evaluation / "blimp-paper-own.json"
        blimp_report.write(evaluation, Report(file))
        screen.line()
        blimp_report.show(evaluation.result, screen)
        if has_other_pairs:
            screen.line(
                f"this report is {file.name}: blimp-paper.json is on other pairs, and stays"
            )
    plotted = plot_losses([directory.path], directory.plots / "loss.png", ended=summary)
    if summary.get("best_step") is not None:
        info(
            f"{summary['ended_because']}; best validation:"
            f" {format_figure('nll', summary['best_val_nll'])} {NATS} at update"
            f" {summary['best_step']} (load it with --step best)"
        )
    screen.line()
    print(f"run directory: {directory.path}    {plotted}")  # without line breaks, to be copied


def _losses(summary: dict[str, Any]) -> list[list[str]]:
    """Returns the rows of the table of losses."""
    basis = f"mean over {summary.get('train_nll_of', 'the last epoch')}"
    if "regression" in summary:
        basis = "a sample"
    nlls, val_nll, references = {f"training, {basis}": summary["train_nll"]}, summary["val_nll"], {}
    if val_nll is not None:
        references = summary["references"]
        nlls |= {"validation": val_nll, "validation, without EOS": summary["val_nll_without_eos"]}
    rows = [
        [
            name,
            format_figure("nll", nll),
            format_figure("perplexity", perplexity(nll)),
            f"{nll - val_nll:+.3f}" if name in references else "",
        ]
        for name, nll in {**nlls, **references}.items()
    ]
    if val_nll is not None:
        bits = format_figure("val_bits_per_byte", summary["val_bits_per_byte"])
        rows.append(["validation, bits per byte", bits])
    return rows
