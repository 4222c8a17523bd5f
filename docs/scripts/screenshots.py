"""Take the pictures of the running pages, light and dark: `make demo && python docs/scripts/screenshots.py`.

Writes docs/explorer.png and docs/report.png with their dark versions. Needs Chromium.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1]
FIRST = "On gray, a small key is below a small ring."
SECOND = "Someone put a little key under a little ring and painted the rest grey."
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def main() -> int:
    """Write the pictures; without Chromium or a report, print a message and return 1."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    report = Path("reports/comparison.html")
    if browser is None or not report.exists():
        print("needs Chromium on the PATH, and reports/comparison.html: run make demo", file=sys.stderr)
        return 1
    command = ["cliptune", "explore", "--encoder", "base", "--encoder", "models/paraclip", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        address = next(line for line in server.stdout if line.startswith("http")).split()[0]
        launched = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for scheme, ending in (("light", ""), ("dark", "-dark")):
            explorer = f"{address}?{urlencode({'q': FIRST, 'p': SECOND})}"
            _take(launched, explorer, scheme, DOCS / f"explorer{ending}.png", 880)
            _take(launched, report.absolute().as_uri(), scheme, DOCS / f"report{ending}.png", 900)
        launched.close()
        server.terminate()
    return 0


def _take(browser: Any, url: str, scheme: str, picture: Path, height: int) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": height}, color_scheme=scheme)
    opened = context.new_page()
    opened.goto(url)
    opened.wait_for_load_state("networkidle")
    opened.screenshot(path=str(picture))
    context.close()


if __name__ == "__main__":
    sys.exit(main())
