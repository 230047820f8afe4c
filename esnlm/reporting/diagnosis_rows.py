"""What `esnlm diagnose` found, as the rows of a table for people."""

from typing import Any


def format_rows(figures: dict[str, Any]) -> dict[str, str]:
    """Returns the figures as a person reads them, by the names of the rows."""
    decided, settings = figures["theory"], figures["settings"]
    topology = [
        f"{key} {value:g}" if isinstance(value, int | float) else f"{key} {value}"
        for key, value in settings["topology"].items()
        if key != "kind"
    ]
    memory, rank, saturated = figures["memory_capacity"], figures["effective_rank"], figures["saturated"]
    rows = {
        "topology": " ".join([settings["topology"]["kind"], *topology]),
        "update rule": settings["update_rule"].replace("_", " "),
        "units": f"{settings['state_size']:,}"
        + (f" in each of {settings['layers']} layers" if settings["layers"] > 1 else ""),
        "connections": f"{figures['connections']:,}, at most {figures['longest_row']:,} a unit",
        "spectral radius of W_rec": f"{decided['radius']:.4g}",
        "largest singular value of W_rec": f"{decided['sigma_max']:.4g}",
        "radius of the linearisation at 0": "not known"
        if decided["linear_radius"] is None
        else f"{decided['linear_radius']:.4g}",
        "tokens without a column in W_in": f"{decided['empty_tokens']:,} of {figures['vocab_size']:,}",
    }
    for name in ("state contraction", "input forgetting"):
        curve = figures[name.replace(" ", "_")]
        if isinstance(curve, str):
            rows[f"{name}, nats a token"] = rows[f"{name}, distance left"] = curve
            continue
        first, last = curve["fitted"]
        rows[f"{name}, nats a token"] = (
            f"{curve['rate']:+.3g} (tokens {first} to {last}), {curve['rate_before']:+.3g} before"
        )
        rows[f"{name}, distance left"] = f"{curve['left']:.2g} after {len(curve['distance']) - 1} tokens"
    rows["saturated, |tanh| > 0.99"] = "no tanh" if saturated is None else f"{100 * saturated:.2g} %"
    rows["effective rank"] = rank if isinstance(rank, str) else f"{rank:,.1f} of {figures['sampled_states']:,} states"
    if not isinstance(memory, str):
        memory = _memory(memory, settings["state_size"] * settings["layers"])
    return rows | {"memory capacity": memory}


def _memory(found: dict[str, Any], size: int) -> str:
    """Returns the total, its spread, and what it must be read with."""
    told = f"{found['total']:.1f} of {len(found['by_delay'])} delays"
    if "sd" not in found:  # of an earlier version, which measured once
        return f"{told} (one measurement, chance {found['chance']:.1f})"
    told += f" (sd {found['sd']:.1f} over {len(found['totals'])} inputs; chance {found['chance']:.2f})"
    few = found["samples"] < 8 * size
    return told + f"; too low, since {found['samples']:,} samples are few for {size:,} units" * few
