"""Worker processes that encode chunks of text, and give them back in order."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import Any

from esnlm.data.encode import Encoded, chunk_encoder
from esnlm.errors import InputError

_encode: Callable[[str], Encoded]  # of a worker process


def encode_in_order(chunks: Iterable[tuple[int, str]], count: int, *arguments: Any) -> Iterator[tuple[int, Encoded]]:
    """Yields (source, encoded chunk) of (source, chunk) pairs, in their order. Raises InputError if a worker died.

    Args:
        chunks: the pairs.
        count: of processes; 1 encodes in this one. Others are spawned, not forked: this process may have threads (JAX, BLAS).
        arguments: of `chunk_encoder`.
    """
    if count == 1:
        encode = chunk_encoder(*arguments)
        yield from ((i, encode(text)) for i, text in chunks)
        return
    pool = ProcessPoolExecutor(count, get_context("spawn"), _start, arguments)
    try:
        pending: deque[tuple[int, Future[Encoded]]] = deque()
        for i, text in chunks:
            pending.append((i, pool.submit(_encode_here, text)))
            if len(pending) > 2 * count:  # enough to keep all busy, and all that is ever in memory
                i, future = pending.popleft()
                yield i, future.result()
        yield from ((i, future.result()) for i, future in pending)
    except BrokenProcessPool:
        raise InputError("a worker process died, perhaps for want of memory: try fewer workers (--workers 1)") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(*arguments: Any) -> None:
    """Prepares a worker process, which ends with its parent, however that ends."""
    global _encode
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encode = chunk_encoder(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _encode_here(text: str) -> Encoded:
    return _encode(text)
