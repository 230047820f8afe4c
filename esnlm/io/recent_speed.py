"""How fast some work goes on at present, from which its time left is foreseen.

The mean since the start would remember for hours that a program was compiled first, or that the machine was busy then.
"""

from collections import deque

WINDOW_SECONDS = 60.0
WINDOW_SHARE = 0.05  # of the time so far, where this is longer: a long work may have slow stretches that come again


class RecentSpeed:
    """Units a second over the last minute, and over more where the work has lasted long.

    The time up to the first report is left out, as it has the compilation in it.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[float, float]] = deque()  # (seconds, units done), the oldest first
        self._began = 0.0  # seconds, at the first report

    def add(self, now: float, done: float) -> None:
        """Takes a report.

        Args:
            now: seconds, of a clock that never goes back.
            done: units.
        """
        reports = self._reports
        if not reports:
            self._began = now
        if len(reports) > 1 and now - reports[-2][0] < 1.0:  # so that there are few
            reports[-1] = now, done
        else:
            reports.append((now, done))
        window = max(WINDOW_SECONDS, WINDOW_SHARE * (now - self._began))
        while len(reports) > 2 and now - reports[1][0] >= window:
            reports.popleft()

    def skip(self, seconds: float) -> None:
        """Leaves out time that was spent on something else since the last report."""
        self._began += seconds
        self._reports = deque((then + seconds, done) for then, done in self._reports)

    def speed(self, otherwise: float) -> float:
        """Returns units a second, or `otherwise` where nothing was done between two reports."""
        if len(self._reports) < 2:
            return otherwise
        (first, before), (last, done) = self._reports[0], self._reports[-1]
        return (done - before) / (last - first) if last > first and done > before else otherwise
