"""The connection between the processes of one run: short messages over TCP, between process 0 and each other one.

It carries decisions, which are process 0's, and it is how a process learns that another one has ended. The system closes
the connections of a process that is killed, and it finds out by itself where a machine does not answer any more. So nothing
here has to send heartbeats, and a process that is only slow is not taken for a lost one.

Arrays do not travel here, but in JAX's own collective operations. A process that waits in one of them for another process
that has ended would wait for ever, and nothing in Python can wake it. So the thread that learns of an end ends this process,
too, unless the main thread waits here, where it can raise an exception.
"""

import json
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from esnlm.errors import InputError

STOPPED = 75  # the exit status of a run that was stopped and can be resumed
PROCESS_LOST = 76  # the exit status where another process was lost; EX_PROTOCOL in C, an error of the other side
GRACE = 2.0  # seconds in which the main thread may come to a wait here, or to its own end
MOST_GRACE = 40.0  # seconds, where it is about to finish something valuable
FAREWELL = 5.0  # seconds that process 0 waits for the others to leave before it does
# The system asks a machine that is silent for 10 s, each 5 s, and gives it up after 6 questions: 40 s in all.
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 40_000}


@dataclass(frozen=True)
class End:
    """How the first process that ended before its time ended."""

    process: int
    status: int
    line: str  # what it said itself; empty where it could say nothing

    def tell(self, count: int) -> str:
        """Returns the line for the other processes."""
        if self.line:
            return f"process {self.process} of {count}: {self.line}"
        return (
            f"process {self.process} of {count} was lost: it was killed, or its machine or network failed; the others end,"
            " and the same command resumes from the newest checkpoint"
        )


class ProcessEnded(Exception):
    """Another process has ended before its time, and this one cannot go on."""

    def __init__(self, end: End, count: int) -> None:
        super().__init__(end.tell(count))
        self.status = end.status


class Channel:
    """This process's end of the connections, once all processes have met."""

    def __init__(self, index: int, count: int, connections: dict[int, socket.socket]) -> None:
        """
        Args:
            index: the number of this process.
            count: of the processes.
            connections: of process 0 with each other process, or of another process with process 0.
        """
        self.index, self.count = index, count
        self.stop_asked = False  # of process 0: another process was asked to stop
        self._connections = connections
        self._sending = {peer: threading.Lock() for peer in connections}
        self._changed = threading.Condition()
        self._values: deque[Any] = deque()  # process 0's decisions that were not read yet
        self._seen: dict[str, int] = {}  # how many messages of each other kind have come
        self._open = set(connections)
        self._unwinding = self._leaving = self._finished = False
        self._valuable = 0
        self._end: End | None = None
        for peer, connection in connections.items():
            _keep_alive(connection)
            threading.Thread(target=self._read, args=(peer, connection), daemon=True).start()

    # ---- decisions ----

    def agree(self, value: Any) -> Any:
        """Returns process 0's value, which JSON can hold, in every process. Process 0 does not wait for the others."""
        if self.index == 0:
            self._raise_end()
            self._send_all({"value": value})
            return value
        self._wait(lambda: len(self._values) > 0)
        return self._values.popleft()

    def ask_to_stop(self) -> None:
        """Lets process 0 know that this process was asked to stop."""
        self._send_all({"stop": True})

    def tell(self, kind: str) -> None:
        """Sends a message without content: from process 0 to all, or from another one to process 0."""
        self._send_all({kind: True})

    def await_message(self, kind: str) -> None:
        """Waits for a message of this kind from every process that this one is connected with, and takes them."""
        wanted = len(self._connections)
        self._wait(lambda: self._seen.get(kind, 0) >= wanted)
        self._seen[kind] -= wanted

    # ---- the end ----

    @contextmanager
    def valuable(self) -> Iterator[None]:
        """Lets what goes on within it come to its end, such as the writing of a checkpoint, although a process was lost."""
        self._valuable += 1
        try:
            yield
        finally:
            self._valuable -= 1

    def fail(self, status: int, line: str) -> None:
        """Ends all processes, since this one ends with a status and a line. Process 0 returns when the others have left."""
        with self._changed:
            first = self._end is None and not self._finished
            if first:
                self._end = End(self.index, status, line)
            self._unwinding = True
        if first:
            self._send_all({"end": [self.index, status, line]})
        self._await_farewell()

    def finish(self) -> None:
        """Waits until every process has come to its end. From here on a connection may close."""
        if self.index == 0:
            self.await_message("done")
            self._finished = True
            self.tell("done")
        else:
            self.tell("done")
            self.await_message("done")
            self._finished = True

    def close(self) -> None:
        self._finished = True
        for connection in self._connections.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def require_all_there(self, patience: float = 0.0) -> None:
        """Raises what a wait would raise, where another process has ended or does so within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None, patience)
        self._raise_end()

    # ---- inside ----

    def _wait(self, is_there: Callable[[], bool]) -> None:
        with self._changed:
            while not is_there() and self._end is None:
                self._changed.wait(1.0)  # A wait without a limit cannot be interrupted on every system.
        if not is_there():
            self._raise_end()

    def _raise_end(self) -> None:
        """Raises, in process 0, what another process has ended with. Another process is ended by its thread instead."""
        with self._changed:
            if self._end is None:
                return
            self._unwinding = self.index == 0 and not self._leaving
        if not self._unwinding:
            time.sleep(MOST_GRACE)
        if self._end.status == 2:
            raise InputError(self._end.tell(self.count))
        if self._end.status == STOPPED:
            raise KeyboardInterrupt
        raise ProcessEnded(self._end, self.count)

    def _send_all(self, message: dict[str, Any]) -> None:
        line = (json.dumps(message) + "\n").encode()
        for peer, connection in self._connections.items():
            with suppress(OSError), self._sending[peer]:  # Where the peer has gone, its reader knows.
                connection.sendall(line)

    def _read(self, peer: int, connection: socket.socket) -> None:
        """Takes what a peer sends, as long as it is there: the work of a thread."""
        with suppress(OSError, ValueError), connection.makefile("rb") as lines:
            for line in lines:
                self._take(json.loads(line))
        with self._changed:
            self._open.discard(peer)
            self._changed.notify_all()
        if not self._finished:
            self._note(End(peer, PROCESS_LOST, ""))

    def _take(self, message: dict[str, Any]) -> None:
        [(kind, content)] = message.items()
        if kind == "end":
            self._note(End(*content))
            return
        with self._changed:
            if kind == "value":
                self._values.append(content)
            elif kind == "stop":
                self.stop_asked = True
            else:
                self._seen[kind] = self._seen.get(kind, 0) + 1
            self._changed.notify_all()

    def _note(self, end: End) -> None:
        """Remembers the first end, tells the others of it, and sees to it that this process ends."""
        with self._changed:
            if self._end is not None or self._finished:
                return
            self._end = end
            self._changed.notify_all()
        if self.index == 0:
            self._send_all({"end": [end.process, end.status, end.line]})
        if self.index == 0:  # this thread is to go on reading
            threading.Thread(target=self._see_to_the_end, args=(end,), daemon=True).start()
        else:
            self._see_to_the_end(end)

    def _see_to_the_end(self, end: End) -> None:
        """Ends this process, unless it is process 0 and its main thread does so by itself: the work of a thread.

        The other processes have nothing to write or to take back. They leave at once.
        """
        began = time.monotonic()
        while self.index == 0 and not self._leaving:
            with self._changed:
                if self._finished:
                    return  # The main thread came to a good end after all.
                patience = MOST_GRACE if self._valuable or self._unwinding else GRACE
                self._leaving = time.monotonic() - began > patience
            time.sleep(0.05)
        self._await_farewell()
        os.write(2, f"{'' if end.status == STOPPED else 'error: '}{end.tell(self.count)}\n".encode())
        os._exit(end.status)

    def _await_farewell(self) -> None:
        """Process 0 holds JAX's coordination service, without which the others would be aborted: it leaves last."""
        if self.index == 0:
            with self._changed:
                self._changed.wait_for(lambda: not self._open, FAREWELL)


def let_abort_wait() -> None:
    """Lets the thread of an abort wait for a second.

    Where process 0 is lost, JAX's client aborts the process at the same moment at which the thread of the channel learns of
    it. So that thread can say in a line what has happened.
    """
    import ctypes

    global _handler
    _handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: time.sleep(1.0))
    ctypes.CDLL(None).signal(signal.SIGABRT, _handler)


_handler: Any = None  # The system calls it, so it must not be collected.


def _keep_alive(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
