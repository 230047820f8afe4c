"""A pool of jobs for tests, in place of `esnlm.studies.jobs.Pool`: its jobs are done in this process, one after another."""

from esnlm.studies.jobs import Ended


class PoolHere:
    """A test sets `do` (and `asked`, where the study is asked to stop) by monkeypatch."""

    asked = False
    do = None  # of the pool and the job that was started first; returns its status, or None while it still runs

    def __init__(self, shares, memory):
        self.running, self.shares, self.memory, self.stopped = {}, shares, memory, []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        assert not self.running

    def has_room(self, memory):
        return len(self.running) < len(self.shares) and not self.asked

    def start(self, job):
        self.running[job.name] = job

    def stop(self, name):
        self.stopped.append(name)

    def wait(self, seconds):
        job = next(iter(self.running.values()))
        status = PoolHere.do(self, job)
        if status is None:
            return []
        del self.running[job.name]
        return [Ended(job, status)]
