"""Measures a study, and says in Markdown and in a picture what was found: (figures, Markdown, PNG or None)."""

import numpy as np

from experiments.bottleneck import curves, images, one_step, plots
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import Curves, OneStep


def of_one_step(study: OneStep, record: Record, source: str) -> tuple[dict, str, bytes | None]:
    found, sizes = one_step.run(study, record, source), one_step.sizes(study)
    title = {"alignment": "Alignment against width", "coordinate_check": "Coordinate check"}[study.kind]
    text, panels = (
        [f"# {title}", "", *([study.note.strip(), ""] if study.note else []), images.describe(study.images), ""],
        {},
    )
    text += [
        f"Hidden widths n, m, n, m, n; {len(sizes)} widths n from {sizes[0]:,} to {sizes[-1]:,}, {study.seeds} seeds, eta"
        f" {study.learning_rate:g}, one step on one image. Slopes of the logarithm of the mean over seeds against log n, by least"
        " squares, with the standard error from the residuals; l counts layers from the first.",
        "",
    ]
    for name in one_step.OF_KIND[study.kind]:
        quantity = one_step.MEASURES[name]
        columns = " | ".join(f"l = {layer}" for layer in range(1, one_step.LAYERS + 1))
        text += [
            f"**{quantity}**",
            "",
            f"| | {columns} | the thesis |",
            "| --- " + "| ---: " * one_step.LAYERS + "| --- |",
        ]
        panels[quantity] = []
        for case in study.cases:
            fits, theory = found[case.name][name], one_step.expected(case, name)
            cells = [f"{fit.slope:+.2f} ± {fit.error:.2f}" for fit in fits]
            claim = case.claim or ", ".join("-" if slope is None else f"{slope:+.2f}" for slope in theory)
            text.append(f"| {case.name} | {' | '.join(cells)} | {claim} |")
            mean, deviation = one_step.over_seeds(record, case, sizes, name)
            panels[quantity].append({"name": case.name, "mean": mean, "deviation": deviation, "fits": fits})
        text.append("")
    picture = plots.against_width(panels, sizes)
    figures = {
        case: {name: [fit._asdict() for fit in fits] for name, fits in rows.items()} for case, rows in found.items()
    }
    return figures, "\n".join([*text, _picture(record, picture)]), picture


def of_training_curves(study: Curves, record: Record, source: str) -> tuple[dict, str, bytes | None]:
    curves.run(study, record, source)
    text = [
        "# Training curves",
        "",
        *([study.note.strip(), ""] if study.note else []),
        images.describe(study.images),
        "",
    ]
    text += [
        f"Hidden widths {study.n:,}, {study.narrow:,}, {study.n:,}, {study.narrow:,}, {study.n:,}; {study.images.train:,} training and"
        f" {study.images.test:,} test images, batch {study.batch_size}, eta {study.learning_rate:g}, momentum {study.momentum:g},"
        f" {study.epochs} epochs. Loss |y - f(x)|^2 / 2, mean and standard deviation over those of {study.seeds} seeds that stayed finite.",
        "",
        "| classes | parametrisation | training loss | test loss | lowest test loss, at epoch | not finite |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    figures, panels = {}, {}
    for pair in study.pairs:
        name = " / ".join(pair)
        panels[name] = {kind: curves.losses(study, record, pair, kind) for kind in study.parametrizations}
        for kind, losses in panels[name].items():
            finite = np.isfinite(losses["train"] + losses["test"]).all(axis=1)
            row = {"not_finite": int((~finite).sum())}
            for part, of_seeds in losses.items():
                row[part] = _mean_and_deviation(of_seeds[finite, -1])
            lowest = losses["test"][finite].mean(axis=0) if finite.any() else np.array([np.nan])
            row["lowest_test"] = {"mean": float(lowest.min()), "epoch": int(lowest.argmin())}
            figures[f"{name}, {kind}"] = row
            cells = [f"{row[part]['mean']:.4f} ± {row[part]['deviation']:.4f}" for part in ("train", "test")]
            cells.append(f"{row['lowest_test']['mean']:.4f}, {row['lowest_test']['epoch']}")
            text.append(f"| {name} | {kind} | {' | '.join(cells)} | {row['not_finite']} of {study.seeds} |")
    picture = plots.by_epoch(panels)
    return figures, "\n".join([*text, "", _picture(record, picture)]), picture


def _mean_and_deviation(values: np.ndarray) -> dict[str, float]:
    """Of seeds; the deviation as the thesis's bands have it, over their number."""
    return (
        {"mean": float(values.mean()), "deviation": float(values.std())}
        if len(values)
        else {"mean": np.nan, "deviation": np.nan}
    )


def _picture(record: Record, picture: bytes | None) -> str:
    return f"![the figures above]({record.file.stem}.png)\n" if picture else "No plot: matplotlib is not installed.\n"
