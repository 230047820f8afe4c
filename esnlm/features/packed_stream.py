"""Features of many sentences under a model that reads whole batches instead of one token after
another."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.features.layout import FEWEST_STEPS, PackedBatch, pack_batch
from esnlm.machine.placement import Placement

TOKENS = 2048  # approximate number of tokens in a packed batch


class PackedStream:
    """A SentenceFeatures (features/stream.py) for such a model. It does not share prefixes."""

    def __init__(
        self,
        features: Callable[[PackedBatch], jax.Array],
        slots: int,
        placement: Placement | None = None,
    ) -> None:
        self.features, self.slots, self.placement = features, slots, placement

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Computes the features after each token of each sentence: (buffer, rows) as
        FeatureStream.read returns them."""
        order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
        parts, rows, filled = [], [np.empty(0, np.int32)] * len(sentences), 0
        devices = 1 if self.placement is None else self.placement.devices
        while len(order):
            longest = len(sentences[order[0]])
            tokens = np.cumsum([len(sentences[s]) for s in order])
            count = max(
                1,
                int(np.searchsorted(tokens, max(longest, devices * TOKENS * 7 // 8), side="right")),
            )
            here, order = order[:count], order[count:]
            own = [sentences[s] for s in here]
            nowhere = [np.zeros(len(sentence), np.uint32) for sentence in own]
            slots = TOKENS * devices // (2 * max(longest, FEWEST_STEPS))
            batch, own_rows = pack_batch(own, nowhere, slots, devices)
            if self.placement is not None:
                batch = self.placement.by_slots(batch)
            parts.append(self.features(batch)[np.concatenate(own_rows)])
            for s, sentence in zip(here, own, strict=True):
                rows[s] = np.arange(filled, filled + len(sentence), dtype=np.int32)
                filled += len(sentence)
        missing = -filled % (1024 * devices)  # few sizes, so few compilations
        return jnp.concatenate([*parts, jnp.zeros((missing, parts[0].shape[1]), jnp.float32)]), rows
