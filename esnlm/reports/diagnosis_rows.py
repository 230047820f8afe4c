"""Formats the results of `esnlm diagnose` as the rows of a table."""

from typing import Any


def format_rows(figures: dict[str, Any]) -> dict[str, str]:
    """Returns the figures as text, by row name."""
    known, settings = figures["theory"], figures["settings"]
    memory, rank, saturated = (
        figures["memory_capacity"],
        figures["effective_rank"],
        figures["saturated"],
    )
    kind, *others = settings["topology"].items()
    topology = [kind[1], *(f"{key} {value}" for key, value in others)]
    layers = f" in each of {settings['layers']} layers" if settings["layers"] > 1 else ""
    linear = known["linear_radius"]
    rows = {
        "topology": " ".join(topology),
        "update rule": settings["update_rule"].replace("_", " "),
        "units": f"{settings['state_size']:,}{layers}",
        "connections": f"{figures['connections']:,}, at most {figures['longest_row']:,} per unit",
        "spectral radius of W_rec": f"{known['radius']:.3f}",
        "largest singular value of W_rec": f"{known['sigma_max']:.4g}",
        "radius of the linearisation at 0": "not known" if linear is None else f"{linear:.3f}",
        "tokens without a column in W_in": (
            f"{known['empty_tokens']:,} of {figures['vocab_size']:,}"
        ),
    }
    for name in ("state contraction", "input forgetting"):
        curve = figures[name.replace(" ", "_")]
        rate, left = f"{name}, nats per token", f"{name}, distance left"
        if isinstance(curve, str):
            rows[rate] = rows[left] = curve
        else:
            first, last = curve["fitted"]
            rows[rate] = (
                f"{curve['rate']:+.3g} (tokens {first} to {last}), {curve['rate_before']:+.3g}"
                " before"
            )
            rows[left] = f"{curve['left']:.2g} after {len(curve['distance']) - 1} tokens"
    rows["largest Lyapunov exponent"] = f"{figures['lyapunov_exponent']:+.3g} nats per token"
    rows["saturated, |tanh| > 0.99"] = (
        "no tanh" if saturated is None else f"{100 * saturated:.2g} %"
    )
    rows["effective rank"] = (
        rank if isinstance(rank, str) else f"{rank:,.1f} of {figures['sampled_states']:,} states"
    )
    if isinstance(memory, str):
        return rows | {"memory capacity": memory}
    size = settings["state_size"] * settings["layers"]
    text = f"{memory['total']:.1f} of {len(memory['by_delay'])} delays (sd {memory['sd']:.1f} over"
    text += f" {len(memory['totals'])} inputs; chance {memory['chance']:.2f})"
    if memory["samples"] < 8 * size:
        text += f"; too low, since {memory['samples']:,} samples are few for {size:,} units"
    return rows | {"memory capacity": text}
