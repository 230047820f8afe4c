"""The speed that a time left is made of, on a clock that the test moves."""

import pytest

from esnlm.io import console
from esnlm.io.console import Progress
from esnlm.io.recent_speed import RecentSpeed

CALL = 3.0  # seconds between two reports of a training


class Clock:
    """A work of a given number of units, whose line of progress is read as a person reads it."""

    def __init__(self, monkeypatch, total):
        self.now, self.done, self.lines = 1000.0, 0.0, []
        monkeypatch.setattr(console.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(console, "tell", self.lines.append)
        self.progress = Progress(total)

    def work(self, seconds, speed):
        for _ in range(round(seconds / CALL)):
            self.now += CALL
            self.done += CALL * speed
            self.progress.show(self.done, "epoch 1/1")

    def left(self):
        """Returns the seconds that the last line says are left."""
        clock = self.lines[-1].split("  ")[-1].removesuffix(" left").split(":")
        return sum(60**place * int(part) for place, part in enumerate(reversed(clock)))


def test_the_compilation_is_no_part_of_a_constant_speed(monkeypatch):
    """Forty seconds of compilation would make the mean since the start 2.3 times too slow after half a minute."""
    clock = Clock(monkeypatch, total=1000 * 3600)
    clock.now += 40  # the first call, with its compilation
    for minutes in (1, 1, 8, 20):
        clock.work(60 * minutes, 1000)
        true = (clock.progress.total - clock.done) / 1000
        # A line is at most 15 seconds old.
        assert clock.left() == pytest.approx(true, rel=0.01, abs=15)


def test_noise_of_calls_is_within_ten_percent(monkeypatch):
    """Calls that take a third more or less than others, as where features are computed now and then."""
    clock = Clock(monkeypatch, total=1000 * 7200)
    for number in range(400):
        clock.work(CALL, 1000 * (4 / 3 if number % 2 else 2 / 3))
        if number * CALL > 120:
            true = (clock.progress.total - clock.done) / 1000
            assert clock.left() == pytest.approx(true, rel=0.1)


def test_a_change_of_speed_is_followed_within_the_window(monkeypatch):
    clock = Clock(monkeypatch, total=1000 * 36000)
    clock.work(600, 1000)
    clock.work(90, 250)  # another program has come
    assert clock.left() == pytest.approx((clock.progress.total - clock.done) / 250, rel=0.02)
    clock.work(90, 1000)
    assert clock.left() == pytest.approx((clock.progress.total - clock.done) / 1000, rel=0.02)


def test_a_validation_is_no_part_of_the_speed_and_its_share_is_still_to_come(monkeypatch):
    """Two of four epochs of 600 seconds are done, and each ended with a validation of 100 seconds."""
    clock = Clock(monkeypatch, total=1000 * 2400)
    for _ in range(2):
        clock.work(600, 1000)
        with clock.progress.aside(recurs=True):
            clock.now += 100
    clock.work(30, 1000)
    true = 1200 - 30 + 2 * 100
    assert clock.left() == pytest.approx(true, rel=0.03)
    with clock.progress.aside():
        clock.now += 500  # a profile, of which there is only one
    clock.work(30, 1000)
    assert clock.left() == pytest.approx(true - 30, rel=0.03)


def test_the_last_line_has_the_speed_of_the_whole_work(monkeypatch):
    clock = Clock(monkeypatch, total=6000)
    clock.work(3, 1000)
    clock.now += 97
    clock.progress.show(6000, "done", final=True)
    assert clock.lines == ["done  60 tokens/s  0:00 left"]


def test_few_reports_are_kept():
    speed = RecentSpeed()
    for number in range(100_000):
        speed.add(number / 100, number)
    assert speed.speed(0) == pytest.approx(100)
    assert len(speed._reports) < 70


def test_without_two_reports_the_mean_stands_in():
    speed = RecentSpeed()
    assert speed.speed(7.0) == 7.0
    speed.add(1.0, 5)
    assert speed.speed(7.0) == 7.0
    speed.add(9.0, 5)
    assert speed.speed(7.0) == 7.0  # nothing was done
