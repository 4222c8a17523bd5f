"""The explorer, the review page and the comparison's page as people use them: a real browser and real servers."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from fastapi import FastAPI

from components.core.settings import Settings
from components.core.tables.records import PAIRS
from components.encoders.adapter.encoder import Encoder
from components.evaluation.report import compare
from components.registry.reviews import read_reviewed
from components.serving.explorer.reviewing import Reviewing, review_app
from components.serving.explorer.server import Explored, make_app
from tests.conftest import TINY
from tests.support.exploring import HOSTILE, make_explored, write_evaluation
from tests.support.params import every_method
from tests.support.report_pages import make_settings, write_project
from tests.support.shard_making import picture
from tests.support.written_queries import write_test_set

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
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


QUERIES = [("a dog", "one hound"), ("a cat", "one feline"), ("a red hat", "a crimson cap")]


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Explored:
    """Two encoders that were evaluated on three queries, of which one gained and one lost."""
    torch.manual_seed(0)
    encoder, settings = Encoder.create("tiny", "tiny", TINY, "test"), Settings.model_validate(every_method())
    made = make_explored(tmp_path_factory.mktemp("explored"), settings, encoder)
    values = {"base": [0.2, 0.5, 0.5], "tuned": [0.9, 0.5, 0.1]}
    write_evaluation(made.folders, QUERIES, ["common", "rare", "common"], 10, values)
    return made


@pytest.fixture(scope="module")
def address(explored: Explored) -> Iterator[str]:
    """Address of the explorer."""
    with listening(make_app(explored)) as url:
        yield url


def _rows(page: Any, side: int, strip: int) -> list[int]:
    hits = page.locator(".side").nth(side).locator(".strip").nth(strip).locator(".hit")
    return [int(row) for row in hits.evaluate_all("hits => hits.map(hit => hit.dataset.row)")]


def test_typing_compares_and_the_address_keeps_it(browser: Any, address: str, explored: Explored) -> None:
    with opened(browser, address, DESK, "light") as seen:
        page = seen.page
        page.locator("nav button").first.wait_for()
        from playwright.sync_api import expect

        page.keyboard.press("/")
        page.keyboard.type("a dog")
        page.get_by_role("textbox", name="Paraphrase").fill("one hound")
        page.keyboard.press("Enter")
        page.locator(".side").nth(1).wait_for()
        expected = explored.explorer.compare("a dog", "one hound", 10)
        for number, side in enumerate(expected.sides):
            assert _rows(page, number, 0) == [hit.row for hit in side.query]
            assert _rows(page, number, 1) == [hit.row for hit in side.paraphrase]
            measures = page.locator(".side .measure").nth(number).inner_text()
            assert f"{100 * (side.ao or 0):.1f}" in measures
        assert page.locator(".side").nth(1).locator(".badge").count() > 0
        shown = page.locator("#found").inner_html()
        page.reload()
        page.locator(".side").nth(1).wait_for()
        assert page.locator("#found").inner_html() == shown
        page.locator("summary").click()
        page.get_by_label("group").select_option("odd")
        expect(page.locator(".side .strip").first.locator(".hit")).to_have_count(6)
        assert "is.group=odd" in page.url
        page.go_back()
        expect(page.locator(".side .strip").first.locator(".hit")).to_have_count(10)
        assert (seen.console, seen.errors) == ([], [])


def test_a_picture_opens_with_hostile_text_and_finds_similar(browser: Any, address: str, explored: Explored) -> None:
    with opened(browser, f"{address}?q=a+dog&k=5", DESK, "light") as seen:
        page = seen.page
        first = page.locator(".hit").first
        first.focus()
        page.keyboard.press("ArrowRight")
        second = _rows(page, 0, 0)[1]
        assert page.evaluate("Number(document.activeElement.dataset.row)") == second
        page.keyboard.press("Enter")
        assert page.locator("dialog").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("dialog").is_visible()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="More like this").click()
        page.get_by_text("Like this picture").wait_for()
        assert _rows(page, 0, 1) == [hit.row for hit in explored.explorer.similar(second, 5)]
        page.goto(f"{address}?q=a+dog&k=50")
        hit = page.locator('.hit[data-row="0"]').first
        assert HOSTILE in hit.locator("img").get_attribute("alt")
        hit.click()
        assert page.locator("dialog p").first.inner_text() == HOSTILE
        assert page.title() == "compare · cliptune explore"
        assert page.locator("img[onerror]").count() == 0


def test_the_most_changed_queries_open_in_the_comparison(browser: Any, address: str) -> None:
    with opened(browser, address, DESK, "light") as seen:
        page = seen.page
        page.locator("nav button").first.wait_for()
        page.keyboard.press("2")
        page.get_by_text("Gained most").wait_for()
        tables = page.locator(".sides .side")
        assert "a dog / one hound" in tables.nth(0).inner_text()
        assert "a red hat / a crimson cap" in tables.nth(1).inner_text()
        gains = page.locator("#found > .side table").inner_text()
        assert all(word in gains for word in ("all", "common", "rare", "+10.0"))
        page.get_by_role("button", name="a red hat / a crimson cap").click()
        page.locator(".hit").first.wait_for()
        assert page.locator("input[name=p]").input_value() == "a crimson cap"
        assert "k=10&is.split=test" in page.url
        assert page.locator("#message").inner_text() == "only pictures with split: test"
        assert {row % 2 for row in _rows(page, 0, 0)} == {0}


def test_the_model_writes_a_paraphrase_and_its_results_are_shown(
    browser: Any, address: str, explored: Explored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explored.writer, "paraphrases", lambda text, count: [f"{text} {n}" for n in range(count)])
    info = explored.info()
    # Nothing typed is lost where the page's data are slow.
    monkeypatch.setattr(explored, "info", lambda: (time.sleep(1), info)[1])
    with opened(browser, address, DESK, "light") as seen:
        page = seen.page
        page.locator("nav button").first.wait_for()
        page.get_by_role("textbox", name="Query").fill("a dog")
        page.locator("#about").get_by_text("pictures").wait_for()
        page.get_by_role("button", name="Generate a paraphrase").click()
        page.locator(".side").nth(1).wait_for()
        assert page.locator("input[name=p]").input_value() == "a dog 0"
        expected = explored.explorer.compare("a dog", "a dog 0", 10)
        assert _rows(page, 1, 1) == [hit.row for hit in expected.sides[1].paraphrase]


def test_it_fits_a_phone_in_both_themes(browser: Any, address: str) -> None:
    for query in ("?q=a+dog&p=one+hound", "?view=changed"):
        inks = {}
        for scheme in ("light", "dark"):
            with opened(browser, f"{address}{query}", PHONE, scheme) as seen:
                seen.page.locator(".side").first.wait_for()
                assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE
                inks[scheme] = seen.page.evaluate("getComputedStyle(document.body).color")
                assert seen.page.evaluate("[...document.images].every(image => image.alt)")
        assert inks["light"] != inks["dark"]


STORE = "sqlite:///store.db"


class _Slow(Reviewing):
    """Holds the picture of the second query back until it is `released`."""

    released = threading.Event()

    def picture(self, row: int) -> bytes:
        if row == 1:
            self.released.wait(60)
        return super().picture(row)


def test_keys_wait_for_the_picture_of_the_query(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from playwright.sync_api import expect

    monkeypatch.chdir(tmp_path)
    ids = [f"image {number}" for number in range(4)]
    write_test_set(Path("data/test_set"), [(name, f"caption of {name}") for name in ids])
    pictures = [picture(number, size=(40, 20)) for number in range(4)]
    Path("data/pairs").mkdir()
    PAIRS.write(Path("data/pairs/test.parquet"), {"id": ids, "image_id": ids, "caption": ids, "image": pictures})
    reviewing = _Slow(12, STORE, "Ada")
    with listening(review_app(reviewing)) as address, opened(browser, address, DESK, "light") as seen:
        shown = seen.page.locator("#shown")
        expect(shown).to_be_visible()
        seen.page.keyboard.press("y")
        expect(seen.page.locator("#caption")).to_have_text(reviewing.queries[1].caption)
        expect(shown).to_be_hidden()
        seen.page.keyboard.press("n")
        reviewing.released.set()
        expect(shown).to_be_visible()
        found = read_reviewed(STORE)
        assert found is not None
        assert (found.read, found.right) == (1, 1)
        seen.page.keyboard.press("n")
        expect(seen.page.locator("#message")).to_contain_text("2 of 12 read, 1 right")
        assert (seen.console, seen.errors) == ([], [])


FEW = ["base", "paraclip"]
MANY = ["base", "paraclip", *(f"a_method_with_a_long_name_{number}" for number in range(3, 19))]


@pytest.mark.parametrize("encoders", [FEW, MANY], ids=["two encoders", "eighteen encoders"])
def test_the_page_is_whole_and_of_the_readers_theme_on_a_phone_and_on_a_desk(
    browser: Any, encoders: list[str], settings: Settings, tmp_path: Path
) -> None:
    folders = write_project(tmp_path, encoders)
    compare.run(make_settings(settings, encoders), folders)
    file, inks = folders.reports / "comparison.html", set()
    for width, scheme in ((PHONE, "dark"), (DESK, "light")):
        with opened(browser, file.as_uri(), width, scheme) as seen:
            page = seen.page
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # Also within the folded parts.
            page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
            page.wait_for_function("[...document.images].every(image => image.src && image.complete)")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("[...document.images].filter(image => !image.naturalWidth).length") == 0
            assert page.locator("#gallery img").count() == 4 * (1 + len(encoders) * 2 * 5)
            drawn = page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.id)")
            assert set(drawn) == {"plot-pareto", "plot-metrics", "plot-groups"}
            ink, label = (
                page.evaluate("getComputedStyle(document.body).color"),
                page.locator("#plot-pareto .legendtext"),
            )
            assert label.first.evaluate("text => getComputedStyle(text).fill") == ink
            inks.add(ink)
            assert (seen.console, seen.errors) == ([], [])
            assert [url for url in seen.requests if not url.startswith("data:")] == [file.as_uri()]
    assert len(inks) == 2
