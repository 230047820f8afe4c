"""From the log-probabilities of sentences to the outcome of each item, whatever its shape."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from esnlm.evaluation import conventions, region_tests, statistics
from esnlm.evaluation.minimal_pairs import Item, Pair, wrong_of
from esnlm.evaluation.region_tests import RegionTest
from esnlm.evaluation.surprisal import tokens_of


class Judge:
    """Tells which of n items a model has right.

    Args:
        items: pairs, sets and tests of regions.
        sentences: the distinct sentences of all items.
        sequences: their ids, as the convention has them.
        tokenizer: that of the run; only tests of regions ask it where tokens lie.
        scoring: the name of the convention.
    """

    def __init__(
        self, items: Sequence[Item], sentences: list[str], sequences: list[np.ndarray], tokenizer: Any, scoring: str
    ) -> None:
        number_of = {sentence: i for i, sentence in enumerate(sentences)}
        self._items, self._number_of = items, number_of
        self._sets = {
            row: np.array([number_of[sentence] for sentence in item.bad])
            for row, item in enumerate(items)
            if isinstance(item, Pair) and not isinstance(item.bad, str)
        }
        self._tests = {row: item for row, item in enumerate(items) if isinstance(item, RegionTest)}
        # The numbers of the good and of the first wrong sentence of each item; a test of regions has neither.
        self.good, self._first_bad = np.array(
            [
                (number_of[item.good], number_of[wrong_of(item)[0]]) if isinstance(item, Pair) else (0, 0)
                for item in items
            ]
        ).T  # (n,) (n,)
        self.has_good = np.array([isinstance(item, Pair) for item in items])  # (n,)
        self.identical = self.good == self._first_bad
        for row, wrong in self._sets.items():
            self.identical[row] = self.good[row] in wrong
        self.identical[list(self._tests)] = False
        self._bos = conventions.get(scoring).bos
        texts = {condition.sentence for test in self._tests.values() for condition in test.conditions.values()}
        self._spans = {
            text: tokens_of(text, sequences[number_of[text]], tokenizer, scoring)[1] for text in sorted(texts)
        }

    @property
    def only_pairs(self) -> bool:
        """Whether every item is a pair of two sentences."""
        return not self._sets and not self._tests

    @property
    def kinds(self) -> dict[str, int]:
        """How many items there are of each kind."""
        tests, sets = len(self._tests), len(self._sets)
        return {"pairs": len(self._items) - tests - sets, "sets": sets, "region_tests": tests}

    def chances(self) -> np.ndarray:
        """Returns how often a coin would be right on each item, (n,): NaN where nobody can tell, as with a formula."""
        found = np.full(len(self._items), 0.5)
        for row, wrong in self._sets.items():
            found[row] = 1 / (1 + len(wrong))
        found[list(self._tests)] = math.nan
        return found

    def bad(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the number of the most probable wrong sentence of each item, (n,), given log p (sentences,)."""
        if not self._sets:
            return self._first_bad
        found = self._first_bad.copy()
        for row, wrong in self._sets.items():
            found[row] = wrong[np.argmax(log_prob[wrong])]  # NaN is the largest of all to NumPy
        return found

    def outcomes(self, log_prob: np.ndarray, token_log_probs: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the outcome of each item, (n,), as in `statistics.outcomes`.

        Args:
            log_prob: of each sentence, (sentences,), nats.
            token_log_probs: of the tokens of each sentence, for tests of regions.
        """
        found = statistics.outcomes(log_prob[self.good], log_prob[self.bad(log_prob)])
        for row, test in self._tests.items():
            found[row] = region_tests.outcome(test, self._surprisals(test, token_log_probs))
        return found

    def tie_worth(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns what a tie of each item is worth to a coin, (n,): one over the number of sentences at the top."""
        found = np.full(len(self._items), 0.5)
        for row, wrong in self._sets.items():
            found[row] = 1 / (1 + np.sum(log_prob[wrong] == log_prob[self.good[row]]))
        return found

    def details(self, log_prob: np.ndarray, token_log_probs: Sequence[np.ndarray]) -> dict[int, dict]:
        """Returns what a report says, beside the rest, of each item that is no pair, by its row."""
        found: dict[int, dict] = {}
        for row, wrong in self._sets.items():
            item = self._items[row]
            assert isinstance(item, Pair)
            best = int(np.argmax(log_prob[wrong]))
            found[row] = {
                "sentence_bad": wrong_of(item)[best],
                "sentences_bad": list(wrong_of(item)),
                "log_probs_bad": log_prob[wrong].tolist(),
            }
        for row, test in self._tests.items():
            surprisals = self._surprisals(test, token_log_probs)
            found[row] = {
                "formula": test.text,
                "conditions": {name: condition.sentence for name, condition in test.conditions.items()},
                "surprisals_bits": {
                    name: {str(number): bits for number, bits in its.items()} for name, its in surprisals.items()
                },
            }
        return found

    def _surprisals(self, test: RegionTest, token_log_probs: Sequence[np.ndarray]) -> dict[str, dict[int, float]]:
        """Returns the surprisal of each region of each condition of a test, in bits."""
        found = {}
        for name, condition in test.conditions.items():
            log_probs = np.asarray(token_log_probs[self._number_of[condition.sentence]], np.float64)
            spans = self._spans[condition.sentence]
            # Without BOS the first token is only a condition, and adds nothing to its region.
            nats = 0.0 - (log_probs if self._bos else np.append(0.0, log_probs))[: len(spans)]
            found[name] = region_tests.region_surprisals(condition, spans, nats)
        return found
