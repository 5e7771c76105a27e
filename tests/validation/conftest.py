"""A headless Chromium for tests that look at pages, driven through chromedriver's HTTP interface.

Without further packages: WebDriver is JSON over HTTP, and DevTools commands pass through it.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """The few WebDriver calls that the tests need; nothing but the standard library."""

    def __init__(self, port: int, binary: str, profile: Path) -> None:
        self._base = f"http://127.0.0.1:{port}/session"
        arguments = [
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]
        if getattr(os, "geteuid", lambda: 1)() == 0:
            arguments.append("--no-sandbox")  # Chromium refuses to run as root with it
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "binary": binary},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/{answer['sessionId']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(error.read().decode()[:500]) from None

    def cdp(self, command: str, **parameters: Any) -> Any:
        """A DevTools command."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def view(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Size, colour scheme and kind of the screen, for the next page."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", media="", features=[scheme])

    def open(self, page: Path) -> None:
        """Load a file and wait until its script is through."""
        self._call("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        """What a function body returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def _element(self, selector: str) -> str:
        self.run(
            f"document.querySelector({json.dumps(selector)})"
            ".scrollIntoView({behavior: 'instant', block: 'center'})"
        )
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        (element,) = found.values()
        return str(element)

    def keys(self, selector: str, text: str) -> None:
        """Type into an element."""
        self._call("POST", f"/element/{self._element(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        """Click an element."""
        self._call("POST", f"/element/{self._element(selector)}/click", {})

    def hover(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.cdp("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def complaints(self) -> list[str]:
        """Everything the console has said since the last call, warnings included."""
        log = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path: Path) -> bytes:
        """The whole page as PNG, kept where a person can look at it."""
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return document.documentElement.clientWidth")
        area = {"x": 0, "y": 0, "width": width, "height": min(height, 12_000), "scale": 1}
        picture = self.cdp("Page.captureScreenshot", clip=area, captureBeyondViewport=True)
        content = base64.b64decode(picture["data"])
        path.write_bytes(content)
        return content

    def quit(self) -> None:
        """End the session."""
        self._call("DELETE", "")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; skips where Chromium or its driver is not installed."""
    binary = next(
        (x for n in ("chromium", "chromium-browser", "google-chrome") if (x := shutil.which(n))),
        None,
    )
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver (apt-get install chromium chromium-driver)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        session = Browser(port, binary, tmp_path_factory.mktemp("chromium"))
        try:
            yield session
        finally:
            session.quit()
    finally:
        process.terminate()
        process.wait(timeout=20)
