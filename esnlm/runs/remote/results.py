"""What is made on this machine and belongs into the cloud: reports on a run, and new token stores."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from esnlm.errors import InputError
from esnlm.io import sealed_folder
from esnlm.io.console import say
from esnlm.io.sealed_folder import MANIFEST
from esnlm.runs.remote import address
from esnlm.runs.remote.address import is_url
from esnlm.runs.remote.bucket import Bucket
from esnlm.runs.remote.copies import RESULTS, is_noted, named, note, read_notes, results_copy, write_notes

Function = TypeVar("Function", bound=Callable[..., Any])
ARRAYS = {"tokens.bin", "offsets.npy", "words.npy", "bytes.npy"}  # of a store, beside its tokenizer and its manifest


def uploads_results(work: Function) -> Function:
    """Lets a function that writes into evaluation/ or diagnostics/ of a run, its first argument, take a URL for it.

    The reports that are there are fetched first, so that none is replaced unasked, and the new ones are uploaded at the end.
    """

    @functools.wraps(work)
    def wrapped(run: str | Path | None = None, *others: Any, **options: Any) -> Any:
        if run is None or not is_url(run):
            return work(run, *others, **options)
        place = address.parse(run)
        results_copy(run)
        with named(place.copy, place.url):
            found = work(run, *others, **options)
        _upload_results(place)
        return found

    return cast(Function, wrapped)


def uploads_store(work: Function) -> Function:
    """Lets a function that makes a token store `out`, its second argument, take a URL for it.

    The store is made on this machine and uploaded at the end, its manifest last. A store without one is none.
    """

    @functools.wraps(work)
    def wrapped(inputs: Any, out: str | Path, **options: Any) -> Any:
        if not is_url(out):
            return work(inputs, out, **options)
        place, overwrite = address.parse(out), options.get("overwrite", False)
        bucket = Bucket(place)
        _require_free(bucket, overwrite)
        with named(place.copy, place.url):
            made = work(inputs, place.copy, **options | {"overwrite": True})
        _require_free(bucket, overwrite)  # again: it may have come meanwhile
        _upload_store(bucket)
        return made

    return cast(Function, wrapped)


def _require_free(bucket: Bucket, overwrite: bool) -> None:
    names, url = bucket.entries().keys(), bucket.address.url
    others = sorted(name for name in names if name not in ARRAYS | {MANIFEST} and not name.startswith("tokenizer/"))
    if not names or (not others and ARRAYS & set(names) and MANIFEST not in names):
        return  # nothing, or what an upload that was cut short has left
    if MANIFEST not in names or "tokens.bin" not in names:
        raise InputError(f"{url}: exists and is not a token store; name another place for the store")
    if others:
        raise InputError(
            f"{url}: has {others[0]}, which is not of a token store, and would be lost; name another place for the store"
        )
    if not overwrite:
        raise InputError(f"{url}: exists; name another place for the store, or ask to overwrite it (--overwrite)")


def _upload_store(bucket: Bucket) -> None:
    """Sends the store in the copy of a place, and deletes what was there."""
    place, sizes = bucket.address, sealed_folder.sizes(bucket.address.copy)
    say(f"uploading {place.url}: {sum(sizes.values()) / 1e6:,.1f} MB")
    there, names = bucket.entries().keys(), sizes.keys() - {MANIFEST}
    bucket.delete([MANIFEST] if MANIFEST in there else [])
    bucket.delete(there - sizes.keys())
    # The arrays come first: by them the next command knows an upload that was cut short.
    for part in (names & ARRAYS, names - ARRAYS):
        bucket.upload({name: place.copy / name for name in part})
    bucket.upload({MANIFEST: place.copy / MANIFEST})


def _upload_results(place: address.Address) -> None:
    """Sends the results in a run's copy that are not in the cloud as they are here."""
    notes = read_notes(place)
    names = [name for name in sealed_folder.sizes(place.copy) if name.startswith(RESULTS) and "/." not in name]
    new = [name for name in names if not is_noted(place.copy / name, notes.get(name))]
    if not new:
        return
    try:
        bucket = Bucket(place)
        # What a report refers to comes before the report.
        for part in (
            [name for name in new if not name.endswith(".json")],
            [name for name in new if name.endswith(".json")],
        ):
            bucket.upload({name: place.copy / name for name in part})
        entries = bucket.entries()
    except InputError as error:
        raise InputError(f"the results are in {place.copy}, and not in the cloud: {error}") from None
    write_notes(place, notes | {name: note(entries[name], place.copy / name) for name in new if name in entries})
    print(f"uploaded: {len(new)} files to {place.url}")
