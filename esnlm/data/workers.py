"""Worker processes that encode chunks of text, and give them back in order."""

import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from subprocess import PIPE, Popen
from typing import IO, Any

from esnlm.data.encode import Encoded, chunk_encoder
from esnlm.errors import InputError


@contextmanager
def encoding_processes(count: int, punkt: bool) -> Iterator[Callable[..., Iterator[tuple[int, Encoded]]]]:
    """Starts worker processes that encode chunks of text.

    The value is a function. Its arguments are (source, chunk) pairs and then those of `chunk_encoder`. It iterates over
    (source, encoded chunk) pairs in the order in which the chunks come.

    The processes are plain ones that we talk to through pipes. What Python offers would fork a process that may have
    threads (jax, BLAS), or run the caller's script anew in each worker. A worker ends when its input ends, however that
    comes about. It starts here, so that it imports NLTK while this process gets on.

    Args:
        count: how many; 1 encodes in this process.
        punkt: whether the workers will need NLTK.

    Raises:
        InputError: a worker died.
    """
    if count == 1:

        def encode_here(chunks: Iterable[tuple[int, str]], *arguments: Any) -> Iterator[tuple[int, Encoded]]:
            encode = chunk_encoder(*arguments)
            return ((i, encode(text)) for i, text in chunks)

        yield encode_here
        return

    program = f"import sys; sys.path[:] = {sys.path!r}; from esnlm.data.workers import work; work({punkt})"
    command = [sys.executable, "-c", program]
    processes = [Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True) for _ in range(count)]
    threads = ThreadPoolExecutor(count)  # one for each process, to wait for it
    idle: SimpleQueue[Popen] = SimpleQueue()

    def encode(text: str) -> Encoded:
        process = idle.get()
        try:
            to_worker, from_worker = _pipes(process)
            _send(to_worker, text)
            return pickle.load(from_worker)
        finally:
            idle.put(process)

    def encode_in_order(chunks: Iterable[tuple[int, str]], *arguments: Any) -> Iterator[tuple[int, Encoded]]:
        for process in processes:
            _send(_pipes(process)[0], arguments)
            idle.put(process)
        pending: deque[tuple[int, Future[Encoded]]] = deque()
        for i, text in chunks:
            pending.append((i, threads.submit(encode, text)))
            if len(pending) > 2 * count:  # enough to keep all busy, and all that is ever in memory
                i, future = pending.popleft()
                yield i, future.result()
        for i, future in pending:
            yield i, future.result()

    try:
        yield encode_in_order
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        raise InputError("a worker process died, perhaps for want of memory: try fewer workers (--workers 1)") from None
    finally:
        for process in processes:
            process.kill()
        threads.shutdown(cancel_futures=True)
        for process in processes:
            to_worker, from_worker = _pipes(process)
            with suppress(BrokenPipeError):
                to_worker.close()
            from_worker.close()
            process.wait()


def work(punkt: bool) -> None:
    """Runs a worker process: it reads the arguments of `chunk_encoder` and then chunks, and it writes encoded chunks."""
    if punkt:
        sys.modules["scipy"] = None  # type: ignore[assignment]  # NLTK imports SciPy where it can, for a second, and Punkt uses none of it
        with suppress(ImportError):
            import nltk.tokenize.punkt  # noqa: F401
    with suppress(EOFError, BrokenPipeError):
        encode = chunk_encoder(*pickle.load(sys.stdin.buffer))
        while True:
            _send(sys.stdout.buffer, encode(pickle.load(sys.stdin.buffer)))


def _send(pipe: IO[bytes], message: Any) -> None:
    pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def _pipes(process: Popen) -> tuple[IO[bytes], IO[bytes]]:
    """Returns the pipes to and from a worker."""
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout
