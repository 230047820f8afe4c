"""From the log-probabilities of sentences to the outcome of each minimal pair or set of sentences."""

from collections.abc import Sequence

import numpy as np

from esnlm.evaluation import statistics
from esnlm.evaluation.minimal_pairs import Pair, wrong_of


class Judge:
    """Tells which of n pairs and sets a model has right.

    Args:
        items: pairs and sets.
        sentences: their distinct sentences.
    """

    def __init__(self, items: Sequence[Pair], sentences: list[str]) -> None:
        number_of = {sentence: i for i, sentence in enumerate(sentences)}
        self._items = items
        # The numbers of the wrong sentences of each set.
        self._sets = {
            row: np.array([number_of[sentence] for sentence in item.bad])
            for row, item in enumerate(items)
            if not isinstance(item.bad, str)
        }
        # The numbers of the good and of the first wrong sentence of each item.
        numbers = [(number_of[item.good], number_of[wrong_of(item)[0]]) for item in items]
        self.good, self._first_bad = np.array(numbers).T  # (n,) (n,)
        self.identical = self.good == self._first_bad
        for row, wrong in self._sets.items():
            self.identical[row] = self.good[row] in wrong

    @property
    def kinds(self) -> dict[str, int]:
        """How many items there are of each kind."""
        return {"pairs": len(self._items) - len(self._sets), "sets": len(self._sets)}

    def chances(self) -> np.ndarray:
        """Returns how often a coin would be right on each item, (n,)."""
        found = np.full(len(self._items), 0.5)
        for row, wrong in self._sets.items():
            found[row] = 1 / (1 + len(wrong))
        return found

    def bad(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the number of the most probable wrong sentence of each item, (n,), given log p (sentences,)."""
        found = self._first_bad.copy()
        for row, wrong in self._sets.items():
            found[row] = wrong[np.argmax(log_prob[wrong])]  # NaN is the largest of all to NumPy
        return found

    def outcomes(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the outcome of each item, (n,), as in `statistics.outcomes`, given log p (sentences,)."""
        return statistics.outcomes(log_prob[self.good], log_prob[self.bad(log_prob)])

    def tie_worth(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns what a tie of each item is worth to a coin, (n,): one over the number of sentences at the top."""
        found = np.full(len(self._items), 0.5)
        for row, wrong in self._sets.items():
            found[row] = 1 / (1 + np.sum(log_prob[wrong] == log_prob[self.good[row]]))
        return found

    def details(self, log_prob: np.ndarray) -> dict[int, dict]:
        """Returns what a report says, beside the rest, of each set, by its row."""
        return {
            row: {
                "sentence_bad": self._items[row].bad[int(np.argmax(log_prob[wrong]))],
                "sentences_bad": list(self._items[row].bad),
                "log_probs_bad": log_prob[wrong].tolist(),
            }
            for row, wrong in self._sets.items()
        }
