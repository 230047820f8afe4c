"""A cache: the tokens that a document has had so far are more probable in the rest of it.

The logit o_w of each token becomes

    o_w + e log(1 + c_w / (1000 p_1(w)))

c_w counts w among the tokens of the document so far, and p_1 is its add-one-smoothed share of the
training text (after Kuhn and De Mori 1990, and Kneser, Peters and Klakow 1997). The weight e
depends on the distance from the beginning of the document; it is fitted to the validation text of
the run and stored in the run directory.

The counted tokens are the predicted ones. BOS is read, not predicted and not counted; but if BOS is
the same token as EOS, the one at the beginning of a document counts, as the end of an earlier text.

**Cost.** With f_w = (1 + c_w / (1000 p_1(w)))^e, the new log p(w) is

    log p(w) + log f_w - log sum_v p(v) f_v

The sum is computed for blocks of R successive predictions: a product of p (R, V) and f before the
block, and the growth of f within the block, in which at most R tokens take part.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from esnlm.base.console import Progress, ShowProgress, counted, info
from esnlm.base.errors import InputError
from esnlm.base.files import add_seal, remove_seal, write_file, writing
from esnlm.data.store import TokenStore
from esnlm.evaluation.scoring import TextWindow, text_windows
from esnlm.features.stream import SentenceFeatures
from esnlm.machine import xla
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.matmul import einsum, matmul
from esnlm.readout import linear

# The first distance of each range that has a weight, in predicted tokens of the document.
RANGES = [0, 32, 128, 512, 2048]
PRIOR = 1000  # weight of p_1 beside the counts, in tokens
GRID = np.arange(41) / 20  # of e
ROWS = 256  # R, predictions of a block
FITTED = (
    "the weights of the cache were fitted to this very text, so its NLL with the cache is too low:"
    " measure another text"
)


@dataclass(frozen=True)
class CountedText:
    """The P predicted tokens of a text, in order. Their counts begin anew at each document."""

    tokens: np.ndarray  # (P,) int32
    firsts: np.ndarray  # (P,) int64, number of the first prediction of the same document
    beginning: int | None  # the token before a document, if it is counted

    @classmethod
    def of(cls, text: TokenStore, tokenizer: Any) -> Self:
        """Returns the tokens of a store, without the first one of each sentence."""
        is_predicted = np.ones(len(text.tokens), bool)
        is_predicted[text.offsets[:-1]] = False
        begins = np.diff(text.documents.astype(np.int64), prepend=-1) != 0  # (sentences,)
        first = text.offsets[:-1] - np.arange(len(text))  # (sentences,), numbers of predictions
        return cls(
            tokens=text.tokens[is_predicted].astype(np.int32),
            firsts=np.repeat(first[begins][np.cumsum(begins) - 1], text.lengths - 1),
            beginning=tokenizer.bos if tokenizer.bos == tokenizer.eos else None,
        )

    def ranges(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the index of the range of distances of predictions, both (n,)."""
        return np.searchsorted(RANGES, numbers - self.firsts[numbers], side="right") - 1

    def blocks(self, numbers: np.ndarray) -> Iterator[slice]:
        """Yields blocks of ascending numbers, (n,). Only the first prediction of a block may
        continue a document whose last token is not in the block."""
        begins = self.firsts[numbers] == numbers
        continues = np.diff(numbers, prepend=-1) == 1
        starts = np.flatnonzero(~begins & ~continues)
        for first, end in zip([0, *starts], [*starts, len(numbers)], strict=True):
            for start in range(first, end, ROWS):
                yield slice(start, min(start + ROWS, end))

    def counts_before(self, number: int, vocab_size: int) -> np.ndarray:
        """Returns the counts before a prediction, and before any that begins a document, (2, V)
        float32."""
        counts = np.zeros((2, vocab_size), np.float32)
        if self.beginning is not None:
            counts[:, self.beginning] = 1
        before = self.tokens[self.firsts[number] : number]
        counts[0] += np.bincount(before, minlength=vocab_size)
        return counts


class Predictions(NamedTuple):
    """Predictions of a text that are made together, with each of E weights."""

    numbers: np.ndarray  # (n,), of the predictions in the order of the text
    ranges: np.ndarray  # (n,), indices of their distances in RANGES
    log_probs: np.ndarray  # (n, E) float32, in nats


@dataclass(frozen=True)
class CachedModel:
    """A model whose predictions a cache changes, on one device."""

    stream: SentenceFeatures  # of the model
    params: dict  # arrays of its readout
    unigram: np.ndarray  # p_1, (V,)
    tokenizer: Any
    compute: ResolvedCompute

    def fit(self, text: TokenStore, by_document: bool, step: int, model_sha256: str) -> "CacheFit":
        """Chooses the weight of each range that minimises the NLL of a text, among those of GRID.

        Raises InputError if no document has several sentences or the NLL is not finite.

        Args:
            by_document: carry the state, too, over the sentences of a document.
            step, model_sha256: of the model, for the result.
        """
        documents = len(np.unique(text.documents))
        if documents == len(text):
            raise InputError(
                f"{text.folder}: each document is one sentence, so the cache cannot be fitted to"
                " this validation text: train with text that has documents (docs/own_text.md)"
            )
        info(
            f"fitting the cache at step {step} to {len(text.tokens) - len(text):,} tokens in"
            f" {counted(documents, 'document')} of {text.folder}"
        )
        nats, tokens = np.zeros((len(RANGES), len(GRID))), np.zeros(len(RANGES), np.int64)
        for _, ranges, log_probs in self.predict(text, by_document, GRID, "brief"):
            np.subtract.at(nats, ranges, log_probs)
            tokens += np.bincount(ranges, minlength=len(RANGES))
        if not np.isfinite(nats).all():
            raise InputError(
                f"step {step} has no finite NLL on its validation text, so no cache can be fitted:"
                " give another step"
            )
        best = nats.argmin(axis=1)
        for k in np.flatnonzero(tokens == 0):
            best[k] = best[k - 1]
        fit = CacheFit(
            step=step,
            model_sha256=model_sha256,
            store_sha256=text.tokens_sha256,
            ranges=RANGES,
            tokens=tokens.tolist(),
            weights=GRID[best].tolist(),
            nll=float(nats.min(axis=1).sum() / tokens.sum()),
            nll_without=float(nats[:, 0].sum() / tokens.sum()),
        )
        info(fit.describe())
        return fit

    def log_probs(
        self,
        text: TokenStore,
        by_document: bool,
        weights: ArrayLike,
        progress: ShowProgress = False,
        group: np.ndarray | None = None,
    ) -> np.ndarray:
        """Returns the log-probabilities of a text in order, (P,) float32 in nats.

        Args:
            weights: one for each of RANGES.
            by_document, group: as in `predict`.
        """
        numbers, log_probs = [], []
        for part in self.predict(text, by_document, weights, progress, group):
            numbers.append(part.numbers)
            log_probs.append(part.log_probs[np.arange(len(part.ranges)), part.ranges])
        in_order = np.argsort(np.concatenate(numbers))
        return np.concatenate(log_probs)[in_order]

    def predict(
        self,
        text: TokenStore,
        by_document: bool,
        weights: ArrayLike,
        progress: ShowProgress = False,
        group: np.ndarray | None = None,
    ) -> Iterator[Predictions]:
        """Predicts a text with each of E weights, at least 0, one window of features at a time.

        Args:
            by_document: carry the state, too, over the sentences of a document.
            group: tokens, (V,) bool; the log-probability that the token is in the group is
                computed instead.
        """
        counted_text = CountedText.of(text, self.tokenizer)
        bar, done = Progress(len(counted_text.tokens), brief=progress == "brief"), 0
        for window in text_windows(self.stream, text, self.compute.window_tokens, by_document):
            numbers, precision = window.numbers, self.compute.precision
            log_probs = window_log_probs(
                window, self.params, counted_text, self.unigram, weights, precision, group
            )
            del window
            yield Predictions(numbers, counted_text.ranges(numbers), log_probs)
            done += len(numbers)
            if progress:
                bar.show(done, f"{text.folder}  with the cache", final=done == bar.total)


def window_log_probs(
    window: TextWindow,
    params: dict,
    text: CountedText,
    unigram: np.ndarray,
    weights: ArrayLike,
    precision: str,
    group: np.ndarray | None = None,
) -> np.ndarray:
    """Computes the log-probabilities of a window's predictions with the cache.

    Args:
        window: the numbers of its predictions count those of `text`.
        params: the arrays of the readout, on one device.
        unigram: p_1, (V,).
        weights: E values of e, at least 0.
        precision: precision of the readout's products.
        group: tokens, (V,) bool; the log-probability that the token is in the group is computed
            instead.

    Returns:
        For each of the weights, (P, E) float32 in nats.
    """
    order = np.argsort(window.numbers)
    numbers, rows = window.numbers[order], window.rows[order]
    e, p_1 = np.asarray(weights, np.float32), np.asarray(unigram, np.float32)
    parts = []
    for block in text.blocks(numbers):
        count = block.stop - block.start
        in_block = np.pad(numbers[block], (0, ROWS - count), mode="edge")
        documents = text.firsts[in_block]
        documents[count:] = -1
        values = _block_log_probs(
            params,
            window.buffer,
            np.pad(rows[block], (0, ROWS - count), mode="edge"),
            text.tokens[in_block],
            documents.astype(np.int32),
            text.counts_before(int(in_block[0]), len(p_1)),
            p_1,
            e,
            group,
            precision,
        )
        parts.append(np.asarray(values)[:count])
    in_order = np.empty((len(order), len(e)), np.float32)
    in_order[order] = np.concatenate(parts)
    return in_order


@partial(jax.jit, static_argnames="precision")
def _block_log_probs(
    params: dict,
    buffer: jax.Array,
    rows: jax.Array,
    targets: jax.Array,
    documents: jax.Array,
    counts_before: jax.Array,
    unigram: jax.Array,
    weights: jax.Array,
    group: jax.Array | None,
    precision: str,
) -> jax.Array:
    """Returns the log-probabilities of a block, (R, E).

    Args:
        documents: of each prediction, (R,). Those of the first one's document continue the counts
            counts_before[0], (V,), all others counts_before[1].
    """
    log_p = jax.nn.log_softmax(linear.logits(params, xla.gathered(buffer, rows), precision))
    p = jnp.exp(log_p)  # (R, V)
    place = jnp.arange(len(rows))
    is_other = (documents != documents[0]).astype(jnp.int32)  # (R,)
    is_earlier = (documents[:, None] == documents) & (place[:, None] > place)  # (R, R)
    is_same = targets[:, None] == targets  # (R, R)
    first_place = is_same.argmax(axis=1)  # (R,), where the target is first in the block
    counts = counts_before[:, targets][is_other] + matmul(
        is_earlier.astype(jnp.float32), is_same.astype(jnp.float32), (1, 0), "float32"
    )  # (R, R), of each target before each prediction

    e = weights[:, None, None]
    log_f = jnp.log1p(counts / (PRIOR * unigram[targets]))  # (R, R)
    f_before = jnp.exp(e * jnp.log1p(counts_before / (PRIOR * unigram)))  # (E, 2, V)
    growth = jnp.exp(e * log_f) - f_before[:, :, targets][:, is_other]  # (E, R, R)
    growth = jnp.where(first_place == place, growth, 0)  # each token once

    def total(p: jax.Array) -> jax.Array:
        """Returns the sum of p f over the tokens, (R, E)."""
        before = einsum("rv,ekv->rke", p, f_before, "float32")[place, is_other]
        return before + (p[:, targets] * growth).sum(axis=2).T

    if group is not None:
        return jnp.log(total(p * group)) - jnp.log(total(p))
    log_f_of_target = log_f[place, place][:, None] * weights
    return log_p[place, targets][:, None] + log_f_of_target - jnp.log(total(p))


@dataclass(frozen=True)
class CacheFit:
    """The weights of a model's cache, and the text that they were fitted to."""

    step: int  # of the model
    model_sha256: str  # of its trained arrays
    store_sha256: str  # of the text
    ranges: list[int]  # RANGES
    tokens: list[int]  # predicted tokens of the text in each range
    weights: list[float]  # of the ranges; one without tokens has that of the range before it
    nll: float  # of the text with the cache, in nats per token
    nll_without: float

    def describe(self) -> str:
        """Returns a line with the weights and the NLL that they were chosen by."""
        weights = ", ".join(
            f"{weight:.2f} from token {first + 1:,}"
            for weight, first in zip(self.weights, self.ranges, strict=True)
        )
        return f"weights {weights}; NLL {self.nll:.3f}, without the cache {self.nll_without:.3f}"

    def write(self, path: Path) -> None:
        """Writes a file that `read_fit` reads; prints a line if the folder is not writable."""
        try:
            with writing(path):
                path.parent.mkdir(exist_ok=True)
            write_file(path, add_seal(asdict(self)))
        except InputError as error:
            info(f"the weights of the cache are not stored: {error}")


def read_fit(path: Path, model_sha256: str) -> CacheFit | None:
    """Returns the weights in a file, or None if there are none for this model."""
    content = remove_seal(path.read_bytes()) if path.exists() else None
    if content is None or content["model_sha256"] != model_sha256 or content["ranges"] != RANGES:
        return None
    return CacheFit(**content)
