"""What was trained: the figures that matter most, what the model is, and its whole configuration."""

import math

from esnlm.config import TrainingConfig
from esnlm.data.sources.grammar import GrammarData
from esnlm.io.console import clock, counted
from esnlm.reporting.html.markup import Child, Html, facts, join, note, tag
from esnlm.reporting.html.material import Material
from esnlm.reporting.run_notes import why_diverged

PLACE = 10
TITLE = "The model"
FIGURES = (  # of summary.json: its key, digits, name and unit
    ("val_nll", 3, "validation NLL", "nats per token"),
    ("val_nll_without_eos", 3, "NLL without EOS", "nats per token"),
    ("perplexity", 2, "perplexity", "per token"),
    ("val_bits_per_byte", 3, "bits per byte", "of the validation text"),
)


def render(run: Material) -> Html:
    summary = run.summary
    parts = [_key_figures(run), facts(_facts(run))]
    if summary["status"] != "finished":
        parts.insert(0, note(f"Status: {summary['status']}: {why_diverged(run.row)}."))
    text = run.directory.config.read_text("utf-8", errors="replace")
    parts.append(tag("details", tag("summary", "Configuration"), tag("pre", tag("code", text), tabindex=0)))
    return join(parts)


def _key_figures(run: Material) -> Html:
    """Returns what a reader looks for first, in large letters."""
    summary, report = run.summary, run.report
    found = [
        (f"{float(summary[key]):,.{digits}f}", name, unit)
        for key, digits, name, unit in FIGURES
        if summary.get(key) is not None and math.isfinite(float(summary[key]))
    ]
    if report is not None and report["overall"]["accuracy"] is not None:
        low, high = report["overall"]["interval"]
        name = "BLiMP, %" if report["anchors"] else "minimal pairs, %"
        found.append((f"{report['overall']['accuracy']:.1f}", name, f"{low:.1f} to {high:.1f}"))
    figures = (
        tag("li", tag("b", figure), tag("span", name), tag("small", unit), class_="key") for figure, name, unit in found
    )
    return tag("ul", figures, class_="keys") if found else Html("")


def _facts(run: Material) -> list[tuple[str, Child]]:
    summary, experiment = run.summary, run.experiment
    found: list[tuple[str, Child]] = [("Model", run.row["model"])]
    counts = [summary.get("trainable_params"), summary.get("total_params")]
    if None not in counts:
        trained = f"{counts[0]:,} trained of " if experiment.data.has_corpus else ""
        found.append(("Parameters", f"{trained}{counts[1]:,}"))
    fit = experiment.training.kind
    if isinstance(experiment.training, TrainingConfig):
        fit = f"{experiment.training.optimizer}, learning rate {experiment.training.learning_rate:g}"
    if experiment.data.has_corpus:
        found.append(("Fit", fit))
        data = experiment.data
        size = f"{data.sentences:,} sentences of a small grammar" if isinstance(data, GrammarData) else data.kind
        found.append(("Data", getattr(data, "train", size)))
    if "tokens" in summary:
        epochs = summary.get("epochs")
        length = f"{summary['tokens']:,} tokens, {summary['words']:,} words"
        found.append(("Read", f"{length} in {epochs} epochs" if epochs and epochs > 1 else length))
    if "step" in summary and experiment.data.has_corpus:
        found.append(("Updates", f"{summary['step']:,}"))
    if "seconds" in summary and "tokens_per_second" in summary:
        found.append(("Time", f"{clock(summary['seconds'])}, {summary['tokens_per_second']:,.0f} tokens a second"))
    if experiment.data.has_corpus:
        found.append(("Seed", str(experiment.seed)))
    if device := summary.get("device"):
        found.append(("Machine", f"{device['kind']} × {device['count']}, {counted(device['cores'], 'core')}"))
    if versions := summary.get("versions"):
        found.append(
            ("Versions", ", ".join(f"{name} {versions[name]}" for name in ("esnlm", "jax") if name in versions))
        )
    found.append(("Folder", str(run.directory.path)))
    return found
