"""Makes token stores from raw text files: lines -> sentences -> tokens, a megabyte at a time.

Worker processes encode chunks of the files, and the results are stored in the order of the files:
the store does not depend on the number of workers, and memory does not grow with the corpus.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.base.console import Progress, counted, info, spinner, warn
from esnlm.base.errors import InputError
from esnlm.data.encode import Encoded, Encoder, encode_in_order
from esnlm.data.inputs import FIELD, Records, TextInput, find_inputs
from esnlm.data.sentences import load_punkt, train_punkt
from esnlm.data.store import StoreWriter, TokenStore, check_target
from esnlm.data.text_files import Oddities
from esnlm.data.tokenizer import HuggingFaceTokenizer, Tokenizer, load_tokenizer, train_bpe
from esnlm.machine.host import available_cores, return_freed_memory

# bytes to train Punkt on, some 350,000 words: more took longer and split no better
PUNKT_SAMPLE = 2 << 20
MUCH = 0.1  # warn if cuts leave out a larger share of the tokens
WORTH_A_WORKER = 8 << 20  # bytes prepared in the time that a worker takes to start


def prepare(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str | Path = "gpt2",
    sentences: str = "punkt",
    language: str | None = None,
    punkt_data: str | Path | None = None,
    min_length: int = 6,
    max_length: int = 512,
    max_words: int | None = None,
    field: str = FIELD,
    skip_missing: bool = False,
    workers: int | None = None,
    overwrite: bool = False,
) -> TokenStore:
    """Makes the token store `out` from raw text in UTF-8.

    A sentence never crosses the end of a document. Documents are records of JSON lines, Parquet,
    tables and datasets, and the parts of plain text between empty lines.

    Args:
        inputs: text files, folders of them, patterns, or "hf:NAME" (see `find_inputs`). Suffixes
            identify compressed files, JSON lines, Parquet and tables (see text_files.py).
        out: the folder of the store.
        tokenizer: "gpt2", a folder (see `load_tokenizer`), or "train:N": a BPE of N ids trained on
            the input's lines.
        sentences: "punkt" splits each line with NLTK's Punkt [ours]; "line" takes each line as a
            sentence; "file" lets Punkt split plain text across line ends, as NLTK's `sent_tokenize`
            does, about a megabyte at a time.
        language: language of the Punkt model; None: English. Without a model on this machine, Punkt
            is trained on the beginning of each input file, 2 MB in all; the output and the manifest
            report this.
        punkt_data: a folder with Punkt's data (see `load_punkt`), if it is not on `nltk.data.path`.
        min_length, max_length: tokens, counting BOS and EOS. Shorter sentences are dropped; longer
            ones are cut to BOS, the first max_length - 2 tokens, and EOS.
        max_words: keep about this many words, the same share of each file, from its beginning. A
            file stops at the sentence that reaches its share, or at its end, since dropped
            sentences do not count. A BPE or Punkt model trained on the input is also trained on
            this share of each file.
        field: the field with the text in JSON lines, Parquet, tables and datasets.
        skip_missing: leave out records without text; the output and the manifest count those of the
            whole input.
        workers: number of processes; default: one per core, fewer for little text. The store does
            not depend on it.
        overwrite: replace an existing token store.

    Raises InputError for bad input and settings, and then leaves no new store and any former store
    unchanged.
    """
    if not 3 <= min_length <= max_length:
        raise InputError(
            f"sentence lengths from {min_length} to {max_length}: give 3 <= min_length <="
            " max_length"
        )
    if max_words is not None and max_words < 1:
        raise InputError(f"max_words {max_words}: give at least 1")
    check_target(Path(out), overwrite)
    sources = find_inputs(inputs, field, skip_missing)
    with_records = [source.name for source in sources if isinstance(source, Records)]
    if with_records and sentences == "file":
        raise InputError(
            f"{with_records[0]}: holds documents, but sentences 'file' is for plain text; give"
            " 'punkt'"
        )
    with spinner("reading the text for the first time"):
        text_sizes, missing = zip(*(source.count() for source in sources), strict=True)
        share, words_left = _shares(sources, max_words)
        size = share * sum(text_sizes)  # bytes to store, about
        vocabulary = _tokenizer(tokenizer, _first_share(sources, text_sizes, share))
        parameters, rule = _sentence_rule(
            sentences,
            language or "english",
            punkt_data,
            _first_share(sources, text_sizes, share * min(1, PUNKT_SAMPLE / size)),
            is_part=size > PUNKT_SAMPLE,
        )

    oddities, bar = Oddities(), Progress(math.ceil(size) // 1000, unit="kB", brief=True)

    def read() -> Iterator[tuple[int, str]]:
        """Yields the chunks of each source until its share is full."""
        done = 0
        for number, source in enumerate(sources):
            for text in source.chunks():
                if words_left[number] <= 0:
                    break
                oddities.note(text, source.name)
                done += len(text.encode())
                bar.show(done // 1000, f"{_megabytes(done)} of {_megabytes(size)}")
                yield number, text

    workers = workers or min(available_cores(), math.ceil(size / WORTH_A_WORKER))
    encoder = Encoder(vocabulary, parameters, min_length, max_length, sentences == "file")
    dropped = cut = left_out = 0
    document = previous = 0  # the number of the current document, and of the source before
    with StoreWriter(out, vocabulary, overwrite=overwrite) as writer:
        for number, encoded in encode_in_order(read(), workers, encoder):
            return_freed_memory()  # takes a millisecond and keeps the heap small
            if words_left[number] <= 0:
                continue  # the share of this source is full; the chunk was already in progress
            document, previous = document + (number != previous), number
            encoded, words_left[number] = _take_words(encoded, words_left[number], min_length)
            is_stored = encoded.lengths >= min_length
            lengths = np.minimum(encoded.lengths[is_stored], max_length)
            writer.append(
                encoded.tokens[: lengths.sum()],
                lengths,
                encoded.words[is_stored],
                encoded.bytes[is_stored],
                document + encoded.documents[is_stored],
            )
            document += encoded.empty_lines
            dropped += int(np.sum(~is_stored))
            cut += int(np.sum(encoded.lengths > max_length))
            left_out += int(np.sum(np.maximum(encoded.lengths - max_length, 0)))
        by_library = isinstance(vocabulary, HuggingFaceTokenizer)
        trained = str(tokenizer).startswith("train:")
        used = {
            "tiktoken": not by_library,
            "nltk": sentences != "line",
            "tokenizers": by_library or trained,
        }
        store = writer.finish(
            dropped_short=dropped,
            skipped_missing=sum(missing),
            cut_long=cut,
            filters={"min_length": min_length, "max_length": max_length, "max_words": max_words},
            sentence_rule=rule,
            sources=[source.describe() for source in sources],
            versions={name: version(name) for name, is_used in used.items() if is_used},
        )
    _summarize(store, sources, left_out)
    oddities.warn()
    return store


def _take_words(encoded: Encoded, left: float, min_length: int) -> tuple[Encoded, float]:
    """Returns the first sentences with `left` words, and the number of words still left."""
    words = np.cumsum(np.where(encoded.lengths >= min_length, encoded.words, 0))
    count = min(len(words), 1 + int(np.searchsorted(words, left)))
    taken = int(words[count - 1]) if count else 0
    first = {
        name: getattr(encoded, name)[:count] for name in ("lengths", "words", "bytes", "documents")
    }
    return encoded._replace(**first), left - taken


def _shares(sources: Sequence[TextInput], max_words: int | None) -> tuple[float, list[float]]:
    """Returns the share of all words to keep, and the number of words for each source."""
    if max_words is None:
        return 1.0, [math.inf] * len(sources)
    words = [sum(len(text.split()) for text in source.chunks()) for source in sources]
    total = sum(words)
    if max_words >= total:
        return 1.0, [math.inf] * len(sources)
    # Bounds between the sources, whose differences add up to max_words.
    bounds = [max_words * before // total for before in accumulate(words, initial=0)]
    return max_words / total, [end - start for start, end in zip(bounds, bounds[1:], strict=False)]


def _first_share(
    sources: Sequence[TextInput], text_sizes: Sequence[int], share: float
) -> Iterator[str]:
    """Yields the first `share` of each source's bytes, to the end of the line, in chunks."""
    for source, text_size in zip(sources, text_sizes, strict=True):
        left = share * text_size if share < 1 else math.inf
        for text in source.chunks():
            data = text.encode()
            end = data.find(b"\n", max(math.ceil(left) - 1, 0)) if left < len(data) else -1
            yield text if end < 0 else data[:end].decode()
            left -= len(data)
            if left <= 0:
                break


def _tokenizer(spec: str | Path, texts: Iterable[str]) -> Tokenizer:
    """Loads a tokenizer, or trains one on the lines of texts."""
    if not str(spec).startswith("train:"):
        return load_tokenizer(spec)
    try:
        vocab_size = int(str(spec).removeprefix("train:"))
    except ValueError:
        raise InputError(
            f"tokenizer {spec!r}: give the number of ids to train, as in train:8192"
        ) from None
    lines = (line.strip() for text in texts for line in text.split("\n"))
    return train_bpe(lines, vocab_size)


def _sentence_rule(
    sentences: str,
    language: str,
    punkt_data: str | Path | None,
    sample: Iterable[str],
    is_part: bool,
) -> tuple[Any, str]:
    """Returns Punkt's parameters (None: each line is a sentence), and a description of the rule.

    Without a pretrained model, Punkt is trained on `sample`, the whole input or a part of it.
    """
    if sentences == "line":
        return None, "one per line"
    across = ", across line ends" if sentences == "file" else ""
    parameters = load_punkt(language, Path(punkt_data) if punkt_data else None)
    if parameters:
        return parameters, f"punkt pretrained {language}{across}"
    rule = "punkt trained on this input"
    if is_part:
        rule += f" ({_megabytes(PUNKT_SAMPLE)} of it)"
    warn(
        f"no pretrained Punkt data for {language} found (nltk.download('punkt_tab') gets it):"
        f" {rule}"
    )
    return train_punkt(sample), rule + across


def _summarize(store: TokenStore, sources: list[TextInput], left_out: int) -> None:
    kinds = Counter(Path(source.name).suffix or "without a suffix" for source in sources)
    manifest = store.manifest
    counts, filters, tokenizer = (manifest[key] for key in ("counts", "filters", "tokenizer"))
    share = left_out / (counts["tokens"] + left_out)
    by_kind = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    shortest, longest = filters["min_length"], filters["max_length"]
    left = f": {left_out:,} tokens left out, {100 * share:.1f} % of all" if left_out else ""
    lines = {
        "input": f"{len(sources):,}: {by_kind}",
        "text": f"{counts['words']:,} words, {_megabytes(counts['bytes'])}",
        "skipped": f"{counted(manifest['skipped_missing'], 'record')} without text",
        "dropped": f"{manifest['dropped_short']:,} sentences of fewer than {shortest} tokens",
        "cut": f"{manifest['cut_long']:,} sentences to {longest} tokens{left}",
        "sentences": manifest["sentence_rule"],
        "tokenizer": f"{tokenizer['name']}, {tokenizer['vocab_size']:,} ids",
    }
    if not manifest["skipped_missing"]:
        del lines["skipped"]
    documents = counted(len(np.unique(store.documents)), "document")
    info(
        f"{store.folder}: {counts['sentences']:,} sentences in {documents},"
        f" {counts['tokens']:,} tokens with BOS and EOS\n"
        + "\n".join(f"  {name:<10} {value}" for name, value in lines.items())
    )
    if share > MUCH:
        warn(
            f"{store.folder}: {100 * share:.0f} % of the tokens left out of long sentences: raise"
            " --max-length"
        )


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
