"""A real browser for tests, with the console, errors and requests of its pages."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

PHONE, DESK = 390, 1280
REQUIRED = os.environ.get("CLIPTUNE_REQUIRE_BROWSER") == "1"
PATIENCE = 120_000
"""Milliseconds; a page of 5 MB takes seconds where tests share the processor."""


def _chromium() -> str:
    """The browser's path; skips, or fails where CLIPTUNE_REQUIRE_BROWSER is 1, when there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next(filter(None, map(shutil.which, names)), "")
    if not found:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium on the PATH: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests; its sandbox needs more rights than a container's root has."""
    path = _chromium()
    if not REQUIRED:
        pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE)
        yield launched
        launched.close()


@dataclass
class Seen:
    """An open page, with its console, errors and requests."""

    page: Any
    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """The address of a page's server on this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def opened(browser: Any, url: str, width: int, scheme: str) -> Iterator[Seen]:
    """A page at an address, `width` pixels wide, in a `light` or `dark` scheme."""
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    seen = Seen(context.new_page())
    seen.page.on("console", lambda message: seen.console.append(message.text))
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(url)
    try:
        yield seen
    finally:
        context.close()
