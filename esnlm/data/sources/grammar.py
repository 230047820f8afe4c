"""A corpus and minimal pairs generated from the grammar in esnlm/data/grammar.py."""

from typing import ClassVar

import numpy as np

from esnlm.data import grammar, grammar_pairs
from esnlm.data.encode import write_sentences
from esnlm.data.sources.base import CorpusSize, DataSource
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer, word_tokenizer
from esnlm.io.console import say
from esnlm.runs.directory import RunDirectory
from esnlm.settings import Count, settings


@settings
class GrammarData(DataSource):
    """A generated corpus with minimal pairs (esnlm/data/grammar.py)."""

    kind: str = "grammar"
    sentences: Count = 40_000  # sentences of the training corpus
    validation_sentences: Count = 4_000  # sentences of the validation corpus
    pairs: Count = 500  # minimal pairs per paradigm, an even number

    depends_on_seed: ClassVar[bool] = True
    has_minimal_pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.pairs % 2:
            raise ValueError(f"pairs is {self.pairs}: it must be even, since pairs are mirrored")

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        """Opens stores/train and stores/validation of the run directory; generates them and the
        pairs if missing."""
        train, validation = directory.stores / "train", directory.stores / "validation"
        if not directory.minimal_pairs.exists():
            say(
                f"generating {self.sentences:,} + {self.validation_sentences:,} sentences and the"
                " minimal pairs"
            )
            tokenizer, seen = self.tokenizer(), set()
            for folder, count in ((train, self.sentences), (validation, self.validation_sentences)):
                sentences = list(grammar.sentences(count, seed, split=folder.name))
                seen.update(sentences)
                rule = "one sentence per line, from the generated grammar"
                write_sentences(folder, sentences, tokenizer, overwrite=True, rule=rule)
            # The pairs are written last, in one move: if they exist, the stores are complete.
            pairs = grammar_pairs.minimal_pairs(self.pairs, seed, exclude=seen)
            grammar_pairs.write_pairs(pairs, directory.minimal_pairs)
        return open_store(train), open_store(validation)

    def size(self) -> CorpusSize:
        predicted_tokens = round(self.sentences * grammar.entropy().tokens_per_sentence)  # expected
        return CorpusSize(self.sentences, predicted_tokens, self.tokenizer().vocab_size)

    def tokenizer(self) -> Tokenizer:
        return word_tokenizer(grammar.words())

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        return "the generated grammar", tokenizer.encode_framed(grammar.sentences(sentences, seed))

    def reference_nlls(self, validation: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
        """Returns the NLL of this text under its grammar, and the grammar's exact entropy."""
        nats = -np.sum(
            [grammar.log_prob(tokenizer.decode(sentence[1:-1])) for sentence in validation]
        )
        return {
            "the grammar itself, on this text": float(
                nats / (len(validation.tokens) - len(validation))
            ),
            "the grammar's entropy": grammar.entropy().nats_per_token,
        }
