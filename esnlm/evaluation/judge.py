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
        self.good = np.array([number_of[item.good] for item in items])  # (n,) the number of the right sentence
        # The numbers of the wrong sentences, (n, K). Rows with fewer repeat the first one.
        wrong = [[number_of[sentence] for sentence in wrong_of(item)] for item in items]
        self.wrong_count = np.array([len(numbers) for numbers in wrong])  # (n,) how many there are
        most = self.wrong_count.max()
        self._wrong = np.array([numbers + numbers[:1] * (most - len(numbers)) for numbers in wrong])
        self._is_real = np.arange(most) < self.wrong_count[:, None]  # (n, K)
        self.identical = (self._wrong == self.good[:, None]).any(axis=1)

    def bad(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the number of the most probable wrong sentence of each item, (n,), given log p (sentences,)."""
        most = log_prob[self._wrong].argmax(axis=1)  # NaN is the largest of all to NumPy
        return self._wrong[np.arange(len(most)), most]

    def outcomes(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the outcome of each item, (n,), as in `statistics.outcomes`, given log p (sentences,)."""
        return statistics.outcomes(log_prob[self.good], log_prob[self.bad(log_prob)])

    def tie_worth(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns what a tie of each item is worth to a coin, (n,): one over the number of sentences at the top."""
        is_equal = log_prob[self._wrong] == log_prob[self.good][:, None]
        return 1 / (1 + (is_equal & self._is_real).sum(axis=1))

    def details(self, log_prob: np.ndarray) -> dict[int, dict]:
        """Returns what a report says, beside the rest, of each set, by its row."""
        found = {}
        for row in np.flatnonzero(self.wrong_count > 1).tolist():
            wrong, log_probs = self._items[row].bad, log_prob[self._wrong[row, : self.wrong_count[row]]]
            found[row] = {
                "sentence_bad": wrong[int(log_probs.argmax())],
                "sentences_bad": list(wrong),
                "log_probs_bad": log_probs.tolist(),
            }
        return found
