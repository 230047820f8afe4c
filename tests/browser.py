"""A real browser without a window: headless Chromium, driven through chromedriver by plain HTTP (W3C WebDriver)."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def installed() -> bool:
    """Tells whether there is a browser (Debian's packages chromium and chromium-driver)."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


class Browser:
    """A browser with one page."""

    def __init__(self, session: str) -> None:
        self.session = session

    def open(
        self, file: Path, width: int = 1000, height: int = 900, scheme: str = "light", media: str = "screen"
    ) -> None:
        """Opens a file in a window of a size, for eyes that prefer a light or a dark page, or for paper."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)
        self.devtools("Emulation.setEmulatedMedia", media=media, features=features)
        call(f"{self.session}/url", {"url": file.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """Returns what a function body of JavaScript returns on the page."""
        return call(f"{self.session}/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **params: Any) -> Any:
        """Returns what a command of the Chrome DevTools Protocol returns."""
        return call(f"{self.session}/goog/cdp/execute", {"cmd": command, "params": params})

    def complaints(self) -> list[str]:
        """Returns what the console has shown since the last call: errors of scripts, and what the policy has refused."""
        return [line["message"] for line in call(f"{self.session}/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Returns the addresses that the page has asked for since the last call."""
        lines = call(f"{self.session}/se/log", {"type": "performance"})
        events = [json.loads(line["message"])["message"] for line in lines]
        found = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        return [address for address in found if not address.startswith("chrome:")]  # its own empty page, at the start

    def picture(self, file: Path) -> None:
        """Writes the whole page as a PNG file."""
        found = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Starts a browser with a profile of its own, and ends it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        with log.open("wb") as out:
            driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=subprocess.STDOUT)
        session = None
        try:
            address = f"http://127.0.0.1:{_port(log)}/session"
            options = {"args": [*SWITCHES, f"--user-data-dir={folder}/profile"], "binary": shutil.which("chromium")}
            asked = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            session = f"{address}/{call(address, {'capabilities': {'alwaysMatch': asked}})['sessionId']}"
            yield Browser(session)
        finally:
            if session is not None:
                call(session, method="DELETE")
            driver.terminate()
            driver.wait()


def call(address: str, content: Any = None, method: str | None = None) -> Any:
    """Sends JSON and returns the value of the answer."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return json.load(answer)["value"]


def _port(log: Path) -> int:
    """Returns the port that chromedriver has chosen, which its log tells."""
    for _ in range(600):
        text = log.read_text()
        if found := re.search(r"started successfully on port (\d+)", text):
            return int(found[1])
        time.sleep(0.05)
    raise TimeoutError(text)
