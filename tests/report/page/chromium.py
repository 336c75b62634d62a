"""Pages in a headless Chromium, spoken to through pipes (Chrome's DevTools protocol), so that nothing needs installing.

with Chromium(executable) as browser:
    page = browser.open("file:///page.html", width=390)
    page.ask("document.title")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tarfile
import tempfile
import time

import pytest

_SECONDS = 60
_AXE = "axe-core@4.10.3"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """The executable on this machine, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def axe(folder) -> str | None:
    """The script of axe-core, which tells what of a page somebody cannot perceive or operate: through npm, whose cache
    keeps it. None where neither has it."""
    npm = shutil.which("npm")
    words = ["pack", _AXE, "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=20000", "--silent"]
    try:
        packed = subprocess.run([npm or "npm", *words], cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
        with tarfile.open(os.path.join(folder, packed.stdout.strip())) as tar:
            return tar.extractfile("package/axe.min.js").read().decode()
    except (OSError, subprocess.TimeoutExpired, tarfile.TarError):
        return None


def check_usable(path, folder) -> None:
    """Fail where somebody cannot use a page: on a desktop or a phone, with all of it unfolded. Skips where there is no
    Chromium; axe-core has its say where it can be had. folder: for what is fetched."""
    if not (executable := find()):
        pytest.skip("no Chromium on this machine (chromium or google-chrome on PATH)")
    script = axe(folder)
    with Chromium(executable) as browser:
        for width in (1440, 390):
            page = browser.open(f"file://{path}", width)
            page.ask("document.querySelectorAll('details').forEach(each => { each.open = true; })")
            assert page.ask("document.documentElement.scrollWidth") <= width and page.errors() == []
            assert script is None or page.violations(script) == []
    if script is None:
        pytest.skip("no axe-core: neither npm's cache nor its registry has it; all else was looked at")


class Chromium:
    def __init__(self, executable: str):
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-dvfs-chromium-", ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        # what the browser asks the network for by itself would be taken for the page's doing
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        words = [executable, *options, f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe", "about:blank"]
        # DevTools' pipe is descriptors 3 and 4; moved by a shell, since Python would close them first
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self._process.wait(_SECONDS)
        except (OSError, subprocess.TimeoutExpired, TimeoutError):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """The result of a method; events that arrive meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, event: str, session: str) -> dict:
        """The first event of a name, of those kept or the next to come."""
        kept, number = list(self.events), 0
        while True:
            if number == len(kept):
                kept.append(self._read())
                self.events.append(kept[-1])
            if kept[number].get("method") == event and kept[number].get("sessionId") == session:
                return kept[number]
            number += 1

    def _read(self) -> dict:
        end = time.monotonic() + _SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            read = os.read(self._in, 1 << 16)
            if not read:
                raise TimeoutError("Chromium has ended")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address: str, width: int, height: int = 800, scripts: bool = True) -> "Page":
        """A page, loaded, in a window of that many pixels; narrow ones are phones."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setScriptExecutionDisabled", session, value=not scripts)
        self.call("Page.navigate", session, url=address)
        self.wait("Page.loadEventFired", session)
        return Page(self, session)


class Page:
    def __init__(self, browser: Chromium, session: str):
        self._browser, self._session = browser, session

    def ask(self, expression: str):
        """The value of a JavaScript expression. Raises RuntimeError where it throws."""
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def said(self, method: str) -> list:
        """Parameters of all events of a name so far."""
        self.ask("0")  # so that what was sent before has arrived
        own = [each for each in self._browser.events if each.get("sessionId") == self._session]
        return [each["params"] for each in own if each.get("method") == method]

    def errors(self) -> list:
        """Exceptions of scripts, errors on the console and in the log (a refused request is one)."""
        console = [each for each in self.said("Runtime.consoleAPICalled") if each["type"] in ("error", "assert")]
        log = [each for each in self.said("Log.entryAdded") if each["entry"]["level"] == "error"]
        return [*self.said("Runtime.exceptionThrown"), *console, *log]

    def requests(self) -> list:
        """Addresses that were asked for."""
        return [each["request"]["url"] for each in self.said("Network.requestWillBeSent")]

    def violations(self, script: str) -> list:
        """What axe-core finds wrong: [(rule, elements)]."""
        self.ask(f"{script};0")
        found = self.ask(
            "axe.run().then(found => found.violations.map(each => [each.id, each.nodes.map(n => n.html)]))"
        )
        return [(rule, nodes[:3]) for rule, nodes in found]

    def screenshot(self, path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        image = self._browser.call("Page.captureScreenshot", self._session, format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(image["data"]))
