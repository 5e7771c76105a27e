"""The report as a picture, drawn by a browser that is installed anyway."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from pipeplan.core.errors import PipeplanError

__all__ = ["BROWSERS", "find_browser", "screenshot"]

BROWSERS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
_TIMEOUT_S: Final = 120


def find_browser() -> str | None:
    """The path of the first headless-capable browser on PATH, None where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def screenshot(page: str, *, width: int = 1400, height: int = 4200) -> bytes:
    """PNG of a page given as HTML text; nothing is fetched from a network.

    Raises PipeplanError where no browser is installed, or where it draws nothing.
    """
    browser = find_browser()
    if browser is None:
        raise PipeplanError(
            f"a picture needs one of {', '.join(BROWSERS)} on PATH; the HTML page and --dot do not"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "report.html"), Path(folder, "report.png")
        source.write_text(page, encoding="utf-8")
        arguments = [
            browser,
            "--headless=new",
            # Chromium refuses to run as root with its sandbox.
            *(["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []),
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--user-data-dir={folder}/profile",
            f"--window-size={width},{height}",
            "--virtual-time-budget=3000",
            f"--screenshot={target}",
            source.as_uri(),
        ]
        try:
            subprocess.run(arguments, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise PipeplanError(f"{browser} did not draw the page: {fault}") from None
        if not target.is_file():
            raise PipeplanError(f"{browser} did not draw the page")
        return target.read_bytes()
