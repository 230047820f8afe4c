"""Reports the results of a study: (values for JSON, Markdown, PNG or None if matplotlib is not
installed)."""

import math
from typing import Any

import numpy as np

from esnlm.reports import plots
from esnlm.reports.plots import COLOURS
from esnlm.reports.report import markdown_table
from experiments.bottleneck import curves, images, one_step
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import CurvesSettings, OneStepSettings

Report = tuple[dict[str, Any], str, bytes | None]

TITLES = {
    "alignment": "Alignment against width",
    "coordinate_check": "Coordinate check",
    "exponents": "Exponents of the Dynamic Parametrization",
    "training_curves": "Training curves",
}


def report_one_step(study: OneStepSettings, record: Record) -> Report:
    """Reports slopes against width, layer by layer, next to those of the thesis."""
    sizes = one_step.sizes(study)
    lines = _opening(study)
    lines += [
        (
            f"Hidden widths n, m, n, m, n; {len(sizes)} widths n from {sizes[0]:,} to"
            f" {sizes[-1]:,}, {study.seeds} seeds, eta {study.learning_rate:g}, one step on one"
            " image. Slopes of the logarithm of the mean over seeds against log n, by least"
            " squares, with the 95 % interval of a bootstrap over seeds; l counts layers from the"
            " first."
        ),
        "",
    ]
    header = ["", *(f"l = {layer}" for layer in range(1, one_step.LAYERS + 1)), "the thesis"]
    figures: dict[str, Any] = {case.name: {} for case in study.cases}
    panels: dict[str, list[dict[str, Any]]] = {}
    for name, quantity in one_step.MEASURES.items():
        rows, panel = [], []
        for case in study.cases:
            values = one_step.values_of_seeds(record, case, sizes, name)
            mean, deviation = values.mean(axis=1), values.std(axis=1)  # both (widths, layers)
            fits = [one_step.fit_power(sizes, layer) for layer in np.moveaxis(values, 2, 0)]
            figures[case.name][name] = [fit._asdict() for fit in fits]
            panel.append({"name": case.name, "mean": mean, "deviation": deviation, "fits": fits})
            expected = one_step.expected_slopes(case, name)
            claim = case.claim or ", ".join(
                "-" if slope is None else f"{slope:+.2f}" for slope in expected
            )
            cells = [f"{fit.slope:+.2f} [{fit.low:+.2f}, {fit.high:+.2f}]" for fit in fits]
            rows.append([case.name, *cells, claim])
        if name in one_step.MEASURES_OF_KIND[study.kind]:
            table = markdown_table(header, rows, align="l" + "r" * one_step.LAYERS + "l")
            lines += [f"**{quantity}**", "", *table, ""]
            panels[quantity] = panel
    picture, _ = plots.render(lambda: plot_against_width(panels, sizes))
    return figures, "\n".join([*lines, _picture_line(record, picture)]), picture


def report_training_curves(study: CurvesSettings, record: Record) -> Report:
    """Reports the losses at the end and the lowest test loss, for each pair of classes and
    parametrization."""
    lines = _opening(study)
    lines += [
        (
            f"Hidden widths {study.n:,}, {study.narrow:,}, {study.n:,}, {study.narrow:,},"
            f" {study.n:,}; {study.images.train:,} training and {study.images.test:,} test images,"
            f" batch {study.batch_size}, eta {study.learning_rate:g}, momentum {study.momentum:g},"
            f" {study.epochs} epochs. Loss |y - f(x)|^2 / 2, mean and standard deviation over those"
            f" of {study.seeds} seeds that stayed finite."
        ),
        "",
    ]
    rows = []
    figures: dict[str, Any] = {}
    panels: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for pair in study.pairs:
        name = " / ".join(pair)
        _, most = images.spectrum(images.load(study.images, pair, "images")[0].x)
        panels[name] = {
            kind: curves.losses_over_seeds(study, record, pair, kind)
            for kind in study.parametrizations
        }
        for kind, losses in panels[name].items():
            finite = np.isfinite(losses["train"] + losses["test"]).all(axis=1)
            row: dict[str, Any] = {"not_finite": int((~finite).sum()), "components": most}
            for part, values in losses.items():
                row[part] = _mean_and_deviation(values[finite, -1])
            lowest = losses["test"][finite].mean(axis=0) if finite.any() else np.array([np.nan])
            row["lowest_test"] = {"mean": float(lowest.min()), "epoch": int(lowest.argmin())}
            figures[f"{name}, {kind}"] = row
            cells = [
                f"{row[part]['mean']:.4f} ± {row[part]['deviation']:.4f}"
                for part in ("train", "test")
            ]
            cells.append(f"{row['lowest_test']['mean']:.4f}, {row['lowest_test']['epoch']}")
            rows.append([name, most, kind, *cells, f"{row['not_finite']} of {study.seeds}"])
    header = ["classes", "components for 95 %", "parametrisation", "training loss", "test loss"]
    lines += markdown_table(
        [*header, "lowest test loss, at epoch", "not finite"], rows, align="lrlr"
    )
    picture, _ = plots.render(lambda: plot_by_epoch(panels))
    return figures, "\n".join([*lines, "", _picture_line(record, picture)]), picture


def _opening(study: OneStepSettings | CurvesSettings) -> list[str]:
    """Returns the first lines of a page: its title, the study's note and the images."""
    note = [study.note.strip(), ""] if study.note else []
    classes = study.pairs[0] if isinstance(study, CurvesSettings) else study.classes
    return [f"# {TITLES[study.kind]}", "", *note, images.describe(study.images, classes), ""]


def _mean_and_deviation(values: np.ndarray) -> dict[str, float]:
    """Returns mean and deviation over seeds; the deviation divides by their number, as in the
    thesis's bands."""
    if not len(values):
        return {"mean": np.nan, "deviation": np.nan}
    return {"mean": float(values.mean()), "deviation": float(values.std())}


def _picture_line(record: Record, picture: bytes | None) -> str:
    return (
        f"![the figures above]({record.file.stem}.png)\n"
        if picture
        else "No plot: matplotlib is not installed.\n"
    )


# ---- the pictures


def plot_against_width(panels: dict[str, list[dict[str, Any]]], sizes: list[int]) -> "plots.Figure":
    """Plots rows of panels for each quantity: mean over seeds with its standard deviation, and the
    fits, dashed.

    A panel has the name of a case, its mean and deviation (widths, layers), and the fits.
    """
    most = max(map(len, panels.values()))
    columns = most if most <= 3 else 2  # a picture of three is still read at the width of a page
    shown = [
        (quantity, cases[i : i + columns])
        for quantity, cases in panels.items()
        for i in range(0, len(cases), columns)
    ]
    figure, rows = plots.figure(
        3 * columns + 0.6, 3.9 * len(shown) + 0.3, len(shown), columns, sharey="row"
    )
    for row, (quantity, cases) in zip(rows, shown, strict=True):
        for axes, case in zip(row, cases, strict=False):
            for i, fit in enumerate(case["fits"]):
                colour, mean, deviation = (
                    COLOURS[i % len(COLOURS)],
                    case["mean"][:, i],
                    case["deviation"][:, i],
                )
                label = f"l = {i + 1}, n^{fit.slope:+.2f} [{fit.low:+.2f}, {fit.high:+.2f}]"
                axes.plot(sizes, mean, "o", markersize=3, color=colour, label=label)
                _plot_band(axes, sizes, mean, deviation, colour)
                fitted = np.exp(fit.constant) * np.array(sizes, float) ** fit.slope
                axes.plot(sizes, fitted, "--", color=colour, linewidth=1)
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(
                [sizes[0], sizes[-1]], [f"{size:,}" for size in (sizes[0], sizes[-1])], fontsize=9
            )
            axes.set_xticks([], minor=True)
            axes.set_title(case["name"].replace(", sigma_1", ",\nsigma_1"), fontsize=10)
            axes.set_xlabel("n", fontsize=10)
            # below the curves
            axes.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        row[0].set_ylabel(quantity)
    return _without_empty(figure)


def plot_by_epoch(panels: dict[str, dict[str, dict[str, np.ndarray]]]) -> "plots.Figure":
    """Plots a panel for each pair of classes: mean and standard deviation of the losses, training
    solid, test dashed.

    They are panels[pair][parametrization]["train" or "test"], (seeds, epochs + 1).
    """
    down, across = math.ceil(len(panels) / 2), min(2, len(panels))
    figure, rows = plots.figure(4.6 * across + 0.6, 3.2 * down + 0.3, down, across, sharey="row")
    for axes, (pair, kinds) in zip(rows.flat, panels.items(), strict=False):
        for colour, (kind, parts) in zip(COLOURS, kinds.items(), strict=False):
            for (part, losses), style in zip(parts.items(), ("-", "--"), strict=True):
                finite = losses[np.isfinite(losses).all(axis=1)]
                if not len(finite):
                    continue
                epochs, mean = np.arange(losses.shape[1]), finite.mean(axis=0)
                fewer = (
                    "" if len(finite) == len(losses) else f" ({len(finite)} of {len(losses)} seeds)"
                )
                axes.plot(
                    epochs, mean, style, color=colour, linewidth=1.4, label=f"{kind}, {part}{fewer}"
                )
                _plot_band(axes, epochs, mean, finite.std(axis=0), colour)
        axes.set(yscale="log", xlabel="epoch", ylabel="loss", title=pair)
        axes.legend(fontsize=7, frameon=False)
    return _without_empty(figure)


def _plot_band(axes: Any, x: Any, mean: np.ndarray, deviation: np.ndarray, colour: str) -> None:
    """Shades one standard deviation on either side, above a tenth of the mean: the axis is
    logarithmic."""
    low = np.maximum(mean - deviation, mean / 10)
    axes.fill_between(x, low, mean + deviation, color=colour, alpha=0.12, linewidth=0)


def _without_empty(figure: "plots.Figure") -> "plots.Figure":
    for axes in figure.axes:
        axes.set_visible(axes.has_data())
    return figure
