"""What a person sees at the end of a run: tables on the terminal and pictures in plots/."""

from rich.console import Console
from rich.table import Table

from esnlm import loaded_run as runs
from esnlm.config import Experiment
from esnlm.data.corpus import Corpus
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.models.ngrams import BigramModel, UnigramModel
from esnlm.reporting import blimp_report, blimp_text
from esnlm.reporting.loss_plot import draw_loss
from esnlm.runs.console import clock
from esnlm.runs.directory import RunDirectory
from esnlm.training.summary import perplexity


def show_results(experiment: Experiment, directory: RunDirectory, corpus: Corpus, summary: dict) -> None:
    """Prints the losses beside what they should be measured against, and draws them.

    Of a generated corpus the run's own minimal pairs are scored too.
    """
    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    console.print(_losses(summary))
    console.print(
        f"{summary['status']}: {summary['step']:,} updates, {summary['tokens']:,} tokens in {clock(summary['seconds'])}"
        f" ({summary['tokens_per_second']:,.0f} tokens/s); {summary['trainable_params']:,} trained of"
        f" {summary['total_params']:,} parameters"
    )
    if experiment.data.has_minimal_pairs:
        bigram = BigramModel.fit(corpus.train, corpus.tokenizer.vocab_size)
        pairs = minimal_pairs.load(directory.minimal_pairs)
        evaluation = evaluate(runs.load(directory.path), pairs, baselines={"bigram": bigram})
        blimp_report.write(evaluation, directory.path / "evaluation" / "blimp-paper.json")
        console.print()
        blimp_text.show(evaluation.result, console)
    console.print(
        f"\nrun directory: {directory.path}    plots: {draw_loss(directory, summary['references'])}",
        soft_wrap=True,
        markup=False,
    )


def references(experiment: Experiment, corpus: Corpus) -> dict[str, float]:
    """NLL of the validation text, in nats per token, under what a model should be held against.

    Unigram and bigram models of the training text; of a generated corpus also the grammar, on this text and as its
    exact entropy.
    """
    store, vocab_size = corpus.validation, corpus.tokenizer.vocab_size
    if store is None:
        return {}
    found = {
        "unigram model": UnigramModel.fit(corpus.train, vocab_size).nll(store),
        "bigram model": BigramModel.fit(corpus.train, vocab_size).nll(store),
    }
    return found | experiment.data.reference_nlls(store, corpus.tokenizer)


def _losses(summary: dict) -> Table:
    table = Table("", "nats per token", "perplexity", "above the model", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    of_what = "a sample of it" if "regression" in summary else "mean over the last epoch"
    table.add_row(f"training, {of_what}", *_row(summary["train_nll"], None))
    if summary["val_nll"] is not None:
        table.add_row("[bold]validation[/]", *_row(summary["val_nll"], None))
        for name, nll in summary["references"].items():
            table.add_row(name, *_row(nll, summary["val_nll"]))
        table.add_row("validation, bits per byte", f"{summary['val_bits_per_byte']:.4f}")
    return table


def _row(nll: float, against: float | None) -> list[str]:
    gap = "" if against is None else f"{nll - against:+.4f}"
    return [f"{nll:.4f}", f"{perplexity(nll):.2f}", gap]
