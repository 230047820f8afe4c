"""The signals that stop a training: each saves what there is to save."""

import signal

import pytest

from esnlm.training.interruption import interruptible


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_stops_at_once_or_after_what_is_under_way(number):
    before = signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with interruptible() as interruption, pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        with interruptible() as interruption, interruption.awaited():
            signal.raise_signal(number)
            assert interruption
    finally:
        signal.signal(number, before)


def test_nohup_is_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interruption:
            signal.raise_signal(signal.SIGHUP)
            assert not interruption
    finally:
        signal.signal(signal.SIGHUP, before)
