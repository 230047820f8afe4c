"""Sums over tokens, in blocks that bound the memory."""

import numpy as np

BLOCK = 1 << 23  # entries of features that are float64 at once


def add_by_target(sums: np.ndarray, h: np.ndarray, targets: np.ndarray) -> None:
    """Adds each row of h (n, F) to the row of sums (V, F) that its target (n,) names; or targets^T h for numbers (n, V)."""
    if targets.ndim == 2:
        sums += targets.T @ h
        return
    order = np.argsort(targets, kind="stable")
    present, first = np.unique(targets[order], return_index=True)
    sums[present] += np.add.reduceat(h[order], first)


def row_blocks(count: int, width: int) -> list[slice]:
    """Cuts `count` rows of `width` entries into slices of at most BLOCK entries, or of 256 rows where those are more."""
    size = max(256, BLOCK // width)
    return [slice(start, start + size) for start in range(0, count, size)]
