"""The lock of a run in the cloud: an object that says who trains it, renewed as long as that training lives.

An object store has no lock that goes with its process. So the holder writes its object anew every 20 seconds, and whoever
finds one watches it. A lock that changes belongs to a training that lives, and the newcomer is refused. One that has
not changed for two minutes is taken over, and so is, at once, that of a process of this machine which has ended. No clock is
compared with another machine's.

What this cannot do: a training that has no network for two minutes may lose its lock to another one. It notices when it
next reaches the bucket, says so, and uploads nothing from then on. Two newcomers that take over a dead lock in the same second
are told apart by reading it again, which nothing guarantees. A store that ignores the condition "only if there is none"
(If-None-Match) is guarded by that alone.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.console import say, warn
from esnlm.io.json_file import parse_json
from esnlm.runs.remote.bucket import Bucket

LOCK = "lock.json"
RENEW, WATCH = 20.0, 120.0  # seconds between renewals, and of watching a lock that another one holds
LOOK, SETTLE = 5.0, 2.0  # seconds between looks at it, and after a takeover


class Lock:
    """The lock of the run at a URL."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._renewals = 0
        self._content = _this_process() | {"id": uuid.uuid4().hex, "since": time.strftime("%Y-%m-%d %H:%M:%S %Z")}
        self._over = threading.Event()
        self.lost = False  # whether another training has taken it over

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock, and renews it meanwhile.

        Raises:
            InputError: another training holds it, or the bucket cannot be written to.
        """
        self._take()
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        try:
            yield
        finally:
            self._over.set()
            renewing.join()
            with contextlib.suppress(InputError):  # of a network that is down: the lock is then left, to be taken over
                if self._is_ours():
                    self._bucket.delete([LOCK])

    def _take(self) -> None:
        # The first look is for stores that ignore the condition of `create`.
        if self._bucket.read(LOCK) is not None or not self._bucket.create(LOCK, self._text()):
            self._wait_for_its_end()
        if not self._is_ours():  # Another newcomer was quicker, or this store knows no conditions.
            raise self._refusal(self._bucket.read(LOCK))

    def _wait_for_its_end(self) -> None:
        """Returns when the lock that is there was taken over. Raises InputError where its holder lives."""
        found = self._bucket.read(LOCK)
        holder = _parse(found)
        here = all(holder.get(key) == value for key, value in _this_machine().items())
        if found is not None and not (here and not _lives(holder.get("pid"))):
            if here:
                raise self._refusal(found)
            minutes = f"{WATCH / 60:.0f} minutes"
            say(f"{self._bucket.address.url} is locked by {_name(holder)}: watching for {minutes} whether it lives")
            end = time.monotonic() + WATCH
            while time.monotonic() < end:
                time.sleep(LOOK)
                now = self._bucket.read(LOCK)
                if now is None:  # It has ended meanwhile, as it should.
                    break
                if now != found:
                    raise self._refusal(now)
        self._bucket.write(LOCK, self._text())
        time.sleep(SETTLE)

    def _renew(self) -> None:
        while not self._over.wait(RENEW):
            with contextlib.suppress(InputError):  # What is uploaded meets the same network, and tells of it.
                if not self._is_ours():
                    self.lost = True
                    warn(
                        f"{self._bucket.address.url}: another training has taken this run over; nothing more is uploaded:"
                        " end one of the two"
                    )
                    return
                self._renewals += 1
                self._bucket.write(LOCK, self._text())

    def _is_ours(self) -> bool:
        return _parse(self._bucket.read(LOCK)).get("id") == self._content["id"]

    def _text(self) -> bytes:
        return json.dumps(self._content | {"renewals": self._renewals}).encode()

    def _refusal(self, found: bytes | None) -> InputError:
        return InputError(
            f"{self._bucket.address.url}: another training is writing to this run ({_name(_parse(found))}); end it, or choose"
            " another run with --run"
        )


def _this_machine() -> dict[str, str]:
    """Returns what tells the processes that `_lives` can see from all others."""
    facts = {"host": socket.gethostname()}
    with contextlib.suppress(OSError):
        facts["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        facts["processes"] = os.readlink("/proc/self/ns/pid")  # those of one container
    return facts


def _this_process() -> dict[str, Any]:
    return _this_machine() | {"pid": os.getpid()}


def _lives(pid: Any) -> bool:
    """Returns whether there is a process of this number here; one of this number that is ours is no other training."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return pid != os.getpid()


def _parse(content: bytes | None) -> dict[str, Any]:
    try:
        found = parse_json(content or b"{}")
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def _name(holder: dict[str, Any]) -> str:
    return f"process {holder.get('pid', '?')} of {holder.get('host', '?')}, since {holder.get('since', '?')}"
