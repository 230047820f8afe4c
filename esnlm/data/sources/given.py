"""Sentences given in Python: the run directory holds their token stores."""

from pathlib import Path
from typing import ClassVar

from esnlm.data.encode import encode_sentences, write_sentences
from esnlm.data.sources.base import DataSource
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError
from esnlm.io.atomic import remove
from esnlm.runs.directory import RunDirectory
from esnlm.settings import settings


@settings
class GivenData(DataSource):
    """Sentences given to `esnlm.train` (docs/library.md)."""

    kind: str = "given"

    is_in_run_only: ClassVar[bool] = True
    refusal: ClassVar[str] = (
        "only the run directory has the given sentences; name a text with --data, or choose store"
    )

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        """Opens stores/train of the run directory, and stores/validation if it exists."""
        train, validation = directory.stores / "train", directory.stores / "validation"
        if not train.exists():
            raise InputError(
                f"{train}: missing; give the sentences again with esnlm.train(..., sentences=...)"
            )
        return open_store(train), open_store(validation) if validation.exists() else None


def put_sentences(
    directory: RunDirectory,
    sentences: list[str],
    validation: list[str] | None,
    tokenizer: Tokenizer,
) -> None:
    """Writes the token stores of a run. Existing stores must hold the same sentences.

    Raises InputError if there are no sentences, the run was begun with others, or the folder is not
    a run.
    """
    begun = directory.config.exists()
    directory.claim()
    for name, given in (("train", sentences), ("validation", validation)):
        folder = directory.stores / name
        if begun:
            if not _is_of(folder, given, tokenizer):
                raise InputError(
                    f"{folder}: the run was begun with other sentences; name another run directory"
                )
        elif given is not None:
            write_sentences(folder, given, tokenizer, overwrite=True)
        else:
            remove(folder)  # from an earlier call that failed before the run began


def _is_of(folder: Path, sentences: list[str] | None, tokenizer: Tokenizer) -> bool:
    """Returns whether a store holds these sentences, or is missing if there are none."""
    if sentences is None or not folder.exists():
        return sentences is None and not folder.exists()
    store, now = open_store(folder), encode_sentences(sentences, tokenizer)
    return (store.tokens_sha256, store.manifest["tokenizer"]["sha256"]) == (
        now.tokens_sha256,
        tokenizer.sha256,
    )
