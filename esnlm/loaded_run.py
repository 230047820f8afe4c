"""The public interface of a trained run: `load` restores a `Run`, which evaluates text."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from esnlm.base.console import Progress, ShowProgress
from esnlm.base.errors import InputError, warn_caller, whole_number
from esnlm.base.remote import is_url, run_copy
from esnlm.base.rng import check_seed
from esnlm.data.corpus import check_begun_with
from esnlm.data.encode import encode_sentences
from esnlm.data.sources import Part
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer, load_tokenizer
from esnlm.evaluation import cache as caches
from esnlm.evaluation import generation, scoring, surprisal, word_states
from esnlm.evaluation.conventions import (
    describe_unscored,
    encode,
    is_blank,
    list_texts,
    sum_log_probs,
)
from esnlm.evaluation.likelihood import Likelihood, of_log_probs, of_model
from esnlm.evaluation.surprisal import Options
from esnlm.evaluation.word_states import WordStates
from esnlm.evaluation.words import JoinedSentence, join_sentences
from esnlm.features.batching import padded_size, read_by_tokens, round_up
from esnlm.features.stream import SentenceFeatures
from esnlm.machine.compute import backend, in_float32
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel
from esnlm.models.devices import find_machine, placement_of
from esnlm.models.ngrams import NgramModel
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment, ResolvedExperiment, flatten, resolved

Step = int | Literal["best"] | None  # of a checkpoint

MAX_STATE_BYTES = 8 << 30  # per sequence: nothing else limits the length of a sentence
# for the states of sentences read together, unless one alone has more
MAX_BYTES_AT_ONCE = 256 << 20


@dataclass(frozen=True)
class Run:
    """A model restored from a run directory. `load` makes it.

    All log-probabilities are natural logarithms (nats). Sentences are ordinary text: no part of
    them is read as a special token. A sentence too long for the model or the memory raises
    InputError.
    """

    directory: Path
    config: ResolvedExperiment  # with the compute settings chosen for this machine
    step: int  # the update after which the model was saved; 0 is the untrained model
    model: LanguageModel  # its class depends on the family, see esnlm/models
    tokenizer: Tokenizer

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r}, step {self.step}: {self.config.model.title})"

    def __reduce__(self) -> tuple:
        # A model holds functions that cannot be pickled, so its arrays are pickled instead.
        params = jax.tree.map(np.asarray, self.model.params)
        frozen = _frozen(RunDirectory(self.directory), self.config, self.tokenizer)
        return _make_run, (self.directory, self.config, self.step, self.tokenizer, frozen, params)

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return self.directory.resolve().name

    @in_float32
    def log_probs(
        self, sentences: list[str], scoring: str = "paper", *, progress: ShowProgress = False
    ) -> np.ndarray:
        """Returns log p(s) of each sentence, (n,) float64 in nats; NaN for a blank text.

        Args:
            sentences: n texts.
            scoring: "paper" (BOS, the sentence, EOS), "no-eos", "lm-eval", "babylm" or
                "without-bos"; see evaluation/conventions.
            progress: whether to show progress on stderr.
        """
        texts = list_texts(sentences)
        sequences = encode(texts, self.tokenizer, scoring)
        scored = [i for i, text in enumerate(texts) if not is_blank(text)]
        sequences = [sequences[i] for i in scored]
        if (line := describe_unscored(sequences, scoring)) is not None:
            warn_caller(line)
        log_probs = np.full(len(texts), np.nan)
        log_probs[scored] = sum_log_probs(self.token_log_probs_of_ids(sequences, progress=progress))
        self._warn_of_undefined(log_probs[scored])
        return log_probs

    @in_float32
    def token_log_probs(self, sentences: list[str]) -> list[np.ndarray]:
        """Returns log p(w_{t+1} | w_1 .. w_t) in nats, where w_1 is BOS and w_T is EOS.

        The result is one float32 array (T - 1,) per sentence; its last value belongs to EOS.
        """
        sequences = encode(list_texts(sentences), self.tokenizer, "paper")
        log_probs = self.token_log_probs_of_ids(sequences)
        self._warn_of_undefined([np.sum(each) for each in log_probs])
        return log_probs

    @in_float32
    def token_log_probs_of_ids(
        self,
        sequences: list[np.ndarray],
        *,
        progress: ShowProgress = False,
        with_likeliest: bool = False,
        group: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Returns log p(w_{t+1} | w_1 .. w_t) in nats for token ids, int arrays (T,).

        BOS and EOS are not added.

        The result is one float32 array (T - 1,) per sequence, empty if T < 2; with `with_likeliest`
        (T - 1, 2): the second column is 1 if the token is the model's most probable one, else 0.
        With `group`, (V,) bool, it is log p(w_{t+1} is in this group of tokens | w_1 .. w_t).
        """
        self._check_readable(sequences)
        bar = Progress(1, unit="sequences", brief=progress == "brief")

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.show(done, f"scoring {done:,}/{total:,}", final=done == total)

        compute = self.config.compute
        return scoring.token_log_probs(
            self._stream,
            self._readout,
            sequences,
            compute.precision,
            chunk=min(256, compute.chunk_tokens),
            on_progress=show if progress else None,
            window_tokens=compute.window_tokens,
            with_likeliest=with_likeliest,
            group=group,
        )

    @in_float32
    def cached_log_probs(
        self,
        text: TokenStore,
        by_document: bool,
        *,
        progress: ShowProgress = False,
        group: np.ndarray | None = None,
    ) -> np.ndarray:
        """Returns log p of all tokens of a text but the first of each sentence, with the cache.

        Args:
            by_document: whether to carry the state, too, over the sentences of a document.
            group: as in `token_log_probs_of_ids`.

        Returns:
            In nats, in the order of the text, (P,) float32.
        """
        self.check_store(text)
        if by_document:
            scoring.document_features(self._stream)  # before the weights are fitted
        fit = self.cache_fit
        if text.tokens_sha256 == fit.store_sha256:
            warn_caller(caches.FITTED)
        return self._cached_model.log_probs(text, by_document, fit.weights, progress, group)

    @in_float32
    def likelihood(
        self,
        text: TokenStore | Path | str | Sequence[str],
        *,
        cache: bool = False,
        progress: bool = False,
    ) -> Likelihood:
        """Measures a text: NLL, bits per byte, nats per word and perplexity.

        `text` is a token store or its folder, or a list of sentences; blank ones are left out. A
        run with data.context document carries its state over the sentences of a document; a list is
        one document. With `cache`, the tokens of a document so far are more probable in the rest of
        it (docs/own_text.md). Raises InputError if a store is missing, is damaged or has another
        tokenizer.
        """
        store = open_store(text) if isinstance(text, str | Path) else text
        if not isinstance(store, TokenStore):
            sentences = [sentence for sentence in list_texts(store) if not is_blank(sentence)]
            store = encode_sentences(sentences, self.tokenizer)
        self.check_store(store)
        bar = Progress(int(store.offsets[-1]) - len(store))

        def on_progress(nats: float, tokens: int) -> None:
            if progress:
                bar.show(
                    tokens, f"{store.folder}  NLL {nats / tokens:.3f}", final=tokens == bar.total
                )

        by_document = self.config.data.document_chunk is not None
        if cache:
            log_probs = self.cached_log_probs(store, by_document, progress=progress)
            self._warn_of_undefined([log_probs.sum()], of="the text")
            return of_log_probs(store, log_probs)
        likelihood = of_model(
            self._stream, self._readout, store, self.config.compute, on_progress, by_document
        )
        assert likelihood is not None  # `on_progress` never stops it early
        self._warn_of_undefined([-likelihood.nats], of="the text")
        return likelihood

    def check_store(self, store: TokenStore) -> None:
        """Raises InputError if `likelihood` cannot measure a store."""
        store.check_tokenizer(self.tokenizer)
        i = int(store.lengths.argmax())
        self._check_length(int(store.lengths[i]), f"{store.folder}: sentence {i}")

    @in_float32
    def surprisal(
        self,
        sentences: Sequence[str | Sequence[str]],
        by: str = "word",
        unit: str = "bits",
        *,
        context: str = "sentence",
        documents: Sequence | None = None,
        punctuation: str = "attached",
        whitespace: str = "leading",
        separator: str | None = None,
        space_after: Sequence[Sequence[bool]] | None = None,
        eos: bool = True,
        scoring: str = "paper",
        cache: bool = False,
        progress: ShowProgress = False,
    ) -> list[dict]:
        """Returns the surprisal of each word or token, -log p given all text before it.

        A row has `sentence` (its number, from 0), `position` (of the word in it, from 0), `word` or
        `token`, `start` and `end` (sentence[start:end] is the word), and `surprisal_bits` or
        `surprisal_nats`. The rows of a sentence sum to its -log p; a blank text has none.
        docs/surprisal.md describes the treatment of white space, punctuation and documents.

        Args:
            sentences: n texts, or lists of words. The words of a list are joined, and each has a
                row. If words share a token, the first has the surprisal of all, and the others
                None.
            by: "word" (in a text, separated by white space) or "token".
            unit: "bits" or "nats".
            context: "sentence" resets the state at each sentence; "document" carries the state from
                one sentence of a document to the next.
            documents: for context "document" or the cache, the document of each sentence, n values:
                neighbours with the same value form one document. None: all n form one.
            punctuation: "attached" leaves punctuation in the word that it touches, "separate" makes
                it a word.
            whitespace: "leading" counts a space with the word after it, "trailing" with the word
                before it.
            separator: text between the words of a list; None: a space, or nothing in a script
                without spaces.
            space_after: for n lists of words, whether the separator (by default a space) follows
                each word.
            eos: whether the end of each sentence has its own row, `<|endoftext|>`.
            scoring: the convention: "paper", "no-eos", "lm-eval" or "babylm".
            cache: whether the tokens of a document so far are more probable in the rest of it. The
                counts begin anew with each document, in either context.

        Example:
            rows = run.surprisal(["The cats sleep."])       # pandas.DataFrame(rows) is the table
            rows = run.surprisal([["The", "cats", "sleep."]], eos=False)  # a row for each word
        """
        joined = join_sentences(sentences, separator, space_after)
        are_used = context != "sentence" or cache
        groups = surprisal.group_documents(len(joined), documents, are_used)
        options = Options(by, unit, context, punctuation, whitespace, eos, scoring, cache)
        return self.surprisals_of(joined, groups, options, progress)

    @in_float32
    def surprisals_of(
        self,
        sentences: Sequence[JoinedSentence],
        documents: Sequence[Sequence[int]],
        options: Options,
        progress: ShowProgress = False,
    ) -> list[dict]:
        """Returns the rows of `surprisal` for joined sentences; a document is a list of their
        numbers."""
        self._warn_of_context(options.context, sentences, documents)
        rows = surprisal.surprisals(self, sentences, documents, options, progress)
        sums = [0.0] * len(sentences)
        for row in rows:
            sums[row["sentence"]] -= row[f"surprisal_{options.unit}"] or 0.0
        self._warn_of_undefined(sums)
        return rows

    @in_float32
    def states(
        self, sentences: list[str], layers: str | Sequence[str] | None = None
    ) -> list[np.ndarray]:
        """Returns the states h_1 .. h_T of each sentence: h_1 is after BOS, h_T after EOS.

        They are float32, without dropout, one array (T, F) per sentence.

        Args:
            sentences: n texts.
            layers: as in `word_states`; None: the input features of the readout.
        """
        sequences = encode(list_texts(sentences), self.tokenizer, "paper")
        return [part.copy() for part in self._read_states(sequences, self._sizes_of(layers))]

    @in_float32
    def word_states(
        self,
        sentences: Sequence[str | Sequence[str]],
        *,
        at: str = "last",
        layers: str | Sequence[str] | None = None,
        context: str = "sentence",
        documents: Sequence | None = None,
        separator: str | None = None,
        space_after: Sequence[Sequence[bool]] | None = None,
        progress: ShowProgress = False,
    ) -> WordStates:
        """Returns one state per word, and a table of the words.

        The tokens of a word are those that cover its characters. docs/states.md lists the columns
        of the table, and the layers of each family.

        Args:
            sentences, context, documents, separator, space_after: as in `surprisal`.
            at: the state after the "last" or "first" token of the word, or the "mean" of the states
                after all of its tokens.
            layers: a name in `self.layers`, or several, whose states stand side by side in this
                order; None: "features".
            progress: whether to show progress on stderr.

        Example:
            words = run.word_states([["The", "cats", "sleep"]])
            words.states                        # (3, F)
            pandas.DataFrame(words.rows)        # the table, one row for each of them
        """
        sizes = self._sizes_of(layers)
        joined = join_sentences(sentences, separator, space_after)
        groups = surprisal.group_documents(len(joined), documents, context != "sentence")
        self._warn_of_context(context, joined, groups)
        words = word_states.find_words(self, joined, groups, context, at)
        states = self._read_states(words.windows, sizes)
        return word_states.collect(words, states, sum(sizes.values()), progress)

    @property
    def layers(self) -> dict[str, int]:
        """The layers whose states `word_states` returns, by name, with their widths."""
        return self.model.layer_sizes

    @in_float32
    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> list[str]:
        """Returns `count` continuations of BOS and a prompt, without the prompt.

        Args:
            prompt: the text to continue.
            count: number of continuations. A larger count begins with the continuations of a
                smaller one, unless two choices are as near as a rounding.
            length: maximum number of tokens; EOS ends a continuation earlier.
            temperature: divides the logits; 0 always takes the most probable token.
            top_k: sample from this many most probable tokens; None: from all.
            seed: seed of the sampling.
        """
        if count < 1 or length < 1 or not temperature >= 0 or (top_k is not None and top_k < 1):
            raise InputError("count, length and top_k must be at least 1, temperature at least 0")
        check_seed(seed)
        ids = np.array([self.tokenizer.bos, *self.tokenizer.encode(prompt)], np.int32)
        if self.max_length is not None and len(ids) + length > self.max_length:
            raise InputError(
                f"the prompt has {len(ids)} tokens and length is {length}:"
                f" at most {self.max_length} together"
            )
        continuations = generation.generate_each(
            self._token_reader(count, len(ids) + length),
            [ids] * count,
            self.tokenizer.eos,
            length=length,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
        )
        return [self.tokenizer.decode(ids) for ids in continuations]

    def _token_reader(self, slots: int, length: int) -> generation.TokenReader:
        """Returns what reads up to `length` tokens in each slot."""
        if slots == 1 and self._on_host is not None:
            return self._on_host()
        precision = self.config.compute.precision
        model, readout = self._ready, self._readout_of_one_device
        return generation.read_on_device(model.reader(slots, length), readout, precision)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns a copy of every weight by name, such as "readout.a" and "reservoir.leak"."""
        return {name: np.array(array) for name, array in flatten(self.model.arrays()).items()}

    def unigram(self) -> NgramModel | None:
        """Returns the unigram model of the training corpus; None if the model was imported."""
        if not self.config.data.has_corpus:
            return None
        directory = RunDirectory(self.directory)
        directory.verify(directory.unigram)
        return NgramModel.from_counts(np.load(directory.unigram))

    def bigram(self) -> NgramModel | None:
        """Returns the bigram model of the training corpus; None if the model was imported."""
        return self.ngram(2)

    def ngram(self, order: int) -> NgramModel | None:
        """Returns an n-gram model of the training corpus; None if the model was imported."""
        store = self.training_store()
        if store is None:
            return None
        return NgramModel.fit(store, self.tokenizer.vocab_size, order)

    def training_store(self) -> TokenStore | None:
        """Returns the run's training store; None if the model was imported."""
        return self._store("train")

    def _store(self, part: Part) -> TokenStore | None:
        directory = RunDirectory(self.directory)
        folder = self.config.data.store_folder(directory, part)
        if folder is None:
            return None
        store = open_store(folder)
        directory.verify(directory.data)
        check_begun_with(directory, {part: store.tokens_sha256}, store.folder)
        return store

    @cached_property
    @in_float32
    def cache_fit(self) -> caches.CacheFit:
        """The weights of the cache, fitted to the run's validation text at the first use and stored
        in the run directory. Raises InputError if this text is missing or has no documents."""
        directory, digest = RunDirectory(self.directory), hashlib.sha256()
        for _, array in sorted(flatten(self.model.params).items()):
            digest.update(np.asarray(array).tobytes())
        path = directory.cache / f"{self.step}.json"
        fit = caches.read_fit(path, digest.hexdigest())
        if fit is None:
            text = self._validation_store()
            by_document = self.config.data.document_chunk is not None
            fit = self._cached_model.fit(text, by_document, self.step, digest.hexdigest())
            fit.write(path)
        return fit

    def _validation_store(self) -> TokenStore:
        """Returns the run's validation store, for the cache."""
        try:
            store = self._store("validation")
        except InputError as error:
            raise InputError(f"the cache is fitted to the run's validation text: {error}") from None
        if store is None:
            raise InputError(
                f"{self.directory}: has no validation text to fit the cache to: choose a run that"
                " was trained with data.validation"
            )
        return store

    @property
    def _cached_model(self) -> caches.CachedModel:
        unigram = self.unigram()
        assert unigram is not None, "an imported model has no validation text"
        return caches.CachedModel(
            self._ready.stream(self.config.compute, None),
            self._readout_of_one_device,
            np.exp(unigram.log_p),
            self.tokenizer,
            self.config.compute,
        )

    @property
    def max_length(self) -> int | None:
        """The maximum number of ids that the model can read at once; None if unlimited."""
        return self.config.model.max_length

    @cached_property
    def _placement(self) -> Placement | None:
        """The placement of the arrays on several devices; None: one device."""
        machine = find_machine(self.config.model, self.config.compute)
        if machine.mesh is None:
            return None
        return placement_of(self.config.model, machine, self.tokenizer.vocab_size)

    @cached_property
    def _ready(self) -> LanguageModel:
        """The model prepared for one device, which takes as long as generating many tokens."""
        return self.model.for_device(self.config.compute)

    @cached_property
    def _on_host(self) -> Callable[[], generation.TokenReader] | None:
        """Makes readers in NumPy, which are faster for one text on a CPU; None: JAX is needed."""
        compute = self.config.compute
        is_exact = compute.precision == compute.state_precision == "float32"
        layers = self.model.host_layers() if backend() == "cpu" and is_exact else None
        if layers is None:
            return None
        # Copies of NumPy are in larger pages of memory: at V = 50,257 a token takes a tenth less.
        readout = jax.tree.map(np.array, self.model.params["readout"])
        return partial(generation.read_on_host, layers, readout)

    @cached_property
    def _stream(self) -> SentenceFeatures:
        return self._ready.stream(self.config.compute, self._placement)

    @cached_property
    def _readout(self) -> dict:
        """The arrays of the readout, on all devices."""
        if self._placement is None:
            return self._readout_of_one_device
        placed = self._placement.shard(self.model.params)
        return self._placement.mask_padding_logits(self.model.readout_arrays(placed))

    @cached_property
    def _readout_of_one_device(self) -> dict:
        """The arrays of the readout, on one device."""
        # `_ready` is one copy, on one device.
        model = self._ready if self._placement is None else self.model
        return model.readout_arrays(self.model.params)

    def _sizes_of(self, layers: str | Sequence[str] | None) -> dict[str, int]:
        """Returns the widths of layers by name. Raises InputError if a name is unknown."""
        names = [layers] if isinstance(layers, str) else layers
        names = ["features"] if names is None else list(names)
        if not names or len(set(names)) < len(names) or not set(names) <= set(self.layers):
            raise InputError(f"layers is {layers!r}: choose from {', '.join(self.layers)}")
        return {name: self.layers[name] for name in names}

    def _read_states(
        self, sequences: list[np.ndarray], sizes: dict[str, int]
    ) -> Iterator[np.ndarray]:
        """Yields the states of layers after each id of each sequence, (T, F) float32."""
        self._check_readable(sequences, reads_last=True)  # the last id, which scoring only predicts
        compute, stream, width = self.config.compute, self._stream, sum(sizes.values())
        if list(sizes) != ["features"]:
            stream = self._ready.layer_stream(tuple(sizes), compute, self._placement)
        most_tokens = MAX_BYTES_AT_ONCE // (4 * max(width, self.config.model.feature_size))
        tokens = min(compute.window_tokens, most_tokens) // stream.parallel
        for buffer, rows in stream.read_windows(read_by_tokens(sequences, max(1, tokens))):
            *ends, total = np.cumsum([len(each) for each in rows]).tolist()
            # few sizes, so few compilations
            size = min(padded_size(total), round_up(total, 1024))
            states = buffer[np.pad(np.concatenate(rows), (0, size - total))]
            del buffer
            yield from np.split(np.asarray(states)[:total, :width], ends)

    def _warn_of_context(
        self,
        context: str,
        sentences: Sequence[JoinedSentence],
        documents: Sequence[Sequence[int]],
    ) -> None:
        """Warns if sentences are not read as in training: alone, or after those before."""
        data = self.config.data
        is_carried = context == "document" and any(len(document) > 1 for document in documents)
        count = sum(not is_blank(text) for text, _ in sentences)
        if context == "sentence" and count > 1 and data.document_chunk is not None:
            warn_caller(
                f"run {self.name} was trained on whole documents (data.context document), but"
                f" context is sentence, so each of the {count:,} sentences is read alone:"
                " choose context document, unless the sentences are unrelated"
            )
        if is_carried and data.has_corpus and data.document_chunk is None:
            warn_caller(
                f"context is document, but run {self.name} was trained on single sentences"
                " (data.context sentence), so it has not learned to read on after one: choose"
                " context sentence, or a run trained on whole documents"
            )

    def _check_readable(self, sequences: list[np.ndarray], reads_last: bool = False) -> None:
        """Raises InputError if a sequence has ids outside the vocabulary or is too long."""
        for i, sequence in enumerate(sequences):
            ids = np.asarray(sequence)
            if ids.size and (
                ids.dtype.kind not in "iu"
                or not 0 <= ids.min() <= ids.max() < self.tokenizer.vocab_size
            ):
                raise InputError(
                    f"sequence {i} has values outside the ids 0 .. {self.tokenizer.vocab_size - 1}"
                )
            self._check_length(len(ids), f"sequence {i}", reads_last)

    def _check_length(self, ids: int, where: str, reads_last: bool = False) -> None:
        """Raises InputError if a sequence is too long for the model or the memory."""
        longest = self.max_length
        if longest is not None and ids - (not reads_last) > longest:
            most = f"{longest}{'' if reads_last else ' + 1'}"
            raise InputError(f"{where} has {ids} ids: this model reads at most {most}; shorten it")
        size = 4 * ids * self.config.model.feature_size
        if size > MAX_STATE_BYTES:
            raise InputError(
                f"{where} has {ids:,} ids: its states would take {size / 1e9:.1f} GB; split it"
            )

    def _warn_of_undefined(self, log_probs: np.ndarray | list, of: str = "") -> None:
        """Warns if log-probabilities are not numbers, and names the arrays that cause it."""
        undefined = int(np.sum(np.isnan(log_probs) | np.isposinf(log_probs)))
        if not undefined:
            return
        params, cause = flatten(self.model.params), ""
        names = [name for name, array in params.items() if not np.isfinite(array).all()]
        if names:
            cause = f": {', '.join(names)} of step {self.step} has values that are not finite"
        have = f"{of} has" if of else f"{undefined} of {len(log_probs)} sentences have"
        warn_caller(f"{have} a log-probability that is not a number{cause}")


@in_float32
def load(
    run: str | Path, step: Step = None, *, untrained: bool = False, averaged: bool = True
) -> Run:
    """Restores a run from its directory, on any machine.

    Args:
        run: the run directory, or the URL of one (docs/machines.md).
        step: the update after which the checkpoint was saved; "best": the best validation, if
            training.stop_after kept it; None: the newest checkpoint that verifies.
        untrained: whether to return the model before its first update, which needs no checkpoint
            and accepts no `step`.
        averaged: whether to use the averaged weights of a run with training.ema instead of those of
            the last update.

    Example:
        early = esnlm.load("runs/quickstart", step=500)
        best = esnlm.load("runs/stopped_early", step="best")
    """
    if untrained and step is not None:
        raise InputError(f"untrained with step {step}: give one of them")
    if step is not None and step != "best":
        step = whole_number("step", step, "give a whole number, 'best', or None for the newest")
    if is_url(run):
        step = _best_step(RunDirectory(run_copy(run))) if step == "best" else step
        run = run_copy(run, step, untrained=untrained)
    directory = RunDirectory(Path(run))
    if not directory.config.exists():
        raise InputError(
            f"{directory.path}: not a run directory (no config.yaml); give one of `esnlm train`"
        )
    directory.verify(directory.config, directory.tokenizer)
    experiment = _for_this_machine(config_io.read_begun(directory.config))
    tokenizer = load_tokenizer(directory.tokenizer)
    frozen = _frozen(directory, experiment, tokenizer)
    if untrained:
        if not experiment.data.has_corpus:
            raise InputError(
                f"{directory.path}: this model was imported: its state before training is unknown"
            )
        initial = None
        if experiment.parent.run is not None:
            initial = checkpoint.restore(directory.initial)[0]["params"]
        return _make_run(directory.path, experiment, 0, tokenizer, frozen, initial)
    if step == "best":
        step = _best_step(directory)
    if step is None:
        newest = checkpoint.restore_latest(directory.checkpoints)
        if newest is None:
            raise InputError(f"{directory.path}: no checkpoint yet; train it with train.py")
        step, arrays, _ = newest
    else:
        checkpoint.check_step(directory.checkpoints, step)
        arrays, _ = checkpoint.restore(directory.checkpoints / str(step))
    params = arrays["average" if averaged and "average" in arrays else "params"]
    return _make_run(directory.path, experiment, step, tokenizer, frozen, params)


def _frozen(directory: RunDirectory, experiment: Experiment, tokenizer: Tokenizer) -> dict:
    has_any = experiment.model.frozen_bytes(tokenizer.vocab_size)
    return checkpoint.restore(directory.frozen)[0] if has_any else {}


@in_float32
def _make_run(
    path: Path,
    experiment: ResolvedExperiment,
    step: int,
    tokenizer: Tokenizer,
    frozen: dict,
    params: dict | None,
) -> Run:
    """Returns the run with these arrays; without `params` it is untrained."""
    model = experiment.model.initialize(tokenizer.vocab_size, experiment.seed, frozen)
    if params is not None:
        model = model.with_params(params)
    return Run(path, experiment, step, model, tokenizer)


def _best_step(directory: RunDirectory) -> int:
    """Returns the step of the best validation, from the summary or the newest checkpoint."""
    steps, record = checkpoint.all_steps(directory.checkpoints), directory.read_summary()
    if record is None and steps:
        record = checkpoint.metadata(directory.checkpoints / str(steps[-1]))
    step = (record or {}).get("best_step")
    if step is None:
        raise InputError(
            f"{directory.path}: no best checkpoint, which only training.stop_after keeps; name a"
            " step"
        )
    return step


def _for_this_machine(experiment: Experiment) -> ResolvedExperiment:
    """Returns the experiment with its compute settings chosen again for this machine."""
    compute = dataclasses.replace(
        experiment.compute, kernel="auto", batch_slots=None, window_tokens=None, mesh=None
    )
    machine = find_machine(experiment.model, compute)
    if compute.precision == "tf32" and machine.backend != "gpu":  # only GPUs have tf32
        compute = dataclasses.replace(compute, precision="float32")
    return resolved(dataclasses.replace(experiment, compute=compute), machine)
