"""A browser for tests: Chromium without a window, driven through chromedriver's plain HTTP (W3C WebDriver).

Needs no package.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # Chromium refuses to run as root without
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
TIMEOUT_SECONDS = 60
STARTS_MAX = 5


def missing() -> str | None:
    """What is not installed, in words; None when all is there."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        return "Chromium is not installed (Debian: apt-get install chromium)"
    if not shutil.which("chromedriver"):
        return "chromedriver is not installed (Debian: apt-get install chromium-driver)"
    return None


def start_driver() -> tuple[subprocess.Popen[str], int]:
    """A chromedriver, and where it listens. It takes a port that is free under IPv6, and ends if another process has it
    under IPv4."""
    said = ""
    for _ in range(STARTS_MAX):
        driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert driver.stdout is not None
        for line in driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return driver, int(found.group(1))
            said += line
        driver.communicate()
        if "port not available" not in said:
            break
    raise RuntimeError(f"chromedriver ended before it listened:\n{said}")


class Browser:
    """One window. `events` of the page's console are kept by the browser until asked for."""

    def __init__(self, width: int = 1280, height: int = 800) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="raftlog-browser-", ignore_cleanup_errors=True)
        self._driver, port = start_driver()
        try:
            self._url = f"http://127.0.0.1:{port}"
            self._session = self._start(width, height)
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    def _start(self, width: int, height: int) -> str:
        options = {
            "binary": shutil.which("chromium") or shutil.which("google-chrome"),
            "args": [*ARGUMENTS, f"--window-size={width},{height}", f"--user-data-dir={self._profile.name}"],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }
        answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        return str(answer["sessionId"])

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json; charset=utf-8"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise RuntimeError(f"{value['error']}: {value['message']}") from None

    def _command(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("POST", f"/session/{self._session}/{path}", body)

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file, even when it is the one that is open; returns when its scripts have run."""
        self._command("url", {"url": "about:blank"})
        self._command("url", {"url": path.resolve().as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body answers in the page; a promise is waited for."""
        return self._command("execute/sync", {"script": script, "args": list(arguments)})

    def protocol(self, method: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._command("goog/cdp/execute", {"cmd": method, "params": parameters})

    def processor_seconds(self) -> float:
        """What the page's scripts have cost so far, without the time in which others had the processor."""
        self.protocol("Performance.enable", timeDomain="threadTicks")
        metrics = self.protocol("Performance.getMetrics")["metrics"]
        return next(float(metric["value"]) for metric in metrics if metric["name"] == "ScriptDuration")

    def keys(self, *keys: str) -> None:
        """Press and let go of each key, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._command("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def mouse(self, *actions: dict[str, Any]) -> None:
        """Pointer actions: `{"type": "pointerMove", "x": 10, "y": 20}` and so on."""
        source = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(actions)}
        self._command("actions", {"actions": [source]})

    def click(self, x: float, y: float) -> None:
        self.mouse(
            {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        )

    def alert(self) -> str | None:
        """The text of a dialogue that a script opened; None when there is none."""
        try:
            return str(self._send("GET", f"/session/{self._session}/alert/text"))
        except RuntimeError as error:
            if "no such alert" in str(error):
                return None
            raise

    def complaints(self) -> list[str]:
        """Errors and warnings that the page logged since the last time."""
        entries = self._command("se/log", {"type": "browser"})
        return [str(entry["message"]) for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def colours(self, scheme: str) -> None:
        """Prefer `light` or `dark`, as the system would."""
        self.protocol("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.protocol(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def screenshot(self) -> bytes:
        """What is seen now, as PNG."""
        return base64.b64decode(self._send("GET", f"/session/{self._session}/screenshot"))

    def close(self) -> None:
        try:
            if hasattr(self, "_session"):
                self._send("DELETE", f"/session/{self._session}")
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            self._profile.cleanup()


def text(browser: Browser, selector: str) -> str:
    """What is read in the first element of that kind; nothing if there is none."""
    return str(browser.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))


def texts(browser: Browser, selector: str) -> list[str]:
    """What is read in each."""
    found = browser.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", selector)
    assert isinstance(found, list)
    return found


def settle(browser: Browser) -> None:
    """Until all is drawn."""
    browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
