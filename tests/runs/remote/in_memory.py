"""A bucket that is a dict, which can lose its network at any request."""

import hashlib

from esnlm.runs.remote import address
from esnlm.runs.remote.bucket import CloudError, Entry


class InMemory:
    """Answers as `Bucket` does. After `requests` of them, each one fails."""

    def __init__(self, url="s3://bucket/runs/first"):
        self.address = address.parse(url)
        self.objects = {}
        self.requests = None  # that are still answered; None: all
        self.asked = 0
        self.watch = lambda: None  # called after each change

    def entries(self, below=""):
        self._request()
        return {
            name: Entry(len(content), hashlib.md5(content).hexdigest())
            for name, content in sorted(self.objects.items())
            if name.startswith(below)
        }

    def read(self, name):
        self._request()
        return self.objects.get(name)

    def write(self, name, content):
        self._request()
        self.objects[name] = content
        self.watch()

    def create(self, name, content):
        self._request()
        if name in self.objects:
            return False
        self.objects[name] = content
        return True

    def upload(self, files, said=None):
        for name, file in files.items():
            self.write(name, file.read_bytes())
            if said:
                said(name)

    def download(self, files):
        for name, file in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.read(name))

    def delete(self, names):
        for name in list(names):
            self._request()
            self.objects.pop(name, None)
            self.watch()

    def _request(self):
        self.asked += 1
        if self.requests is not None and self.asked > self.requests:
            raise CloudError(f"{self.address.url}: not reached")
