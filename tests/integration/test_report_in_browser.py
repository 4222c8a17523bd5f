"""The comparison's page as a reader's browser shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.evaluation.report import compare
from components.evaluation.report.comparison import Comparison
from components.evaluation.scoring.results import Folders
from tests.support.browsing import DESK, PHONE, opened
from tests.support.report_pages import make_settings, write_project

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FEW = ["base", "paraclip"]
MANY = ["base", "paraclip", *(f"a_method_with_a_long_name_{number}" for number in range(3, 19))]


@pytest.fixture
def build(settings: Settings, tmp_path: Path) -> Any:
    """Compares made-up encoders; returns the project's folders."""

    def make(encoders: list[str]) -> tuple[Folders, Comparison]:
        folders = write_project(tmp_path, encoders)
        return folders, compare.run(make_settings(settings, encoders), folders)

    return make


@pytest.mark.parametrize("encoders", [FEW, MANY], ids=["two encoders", "eighteen encoders"])
def test_the_page_is_whole_on_a_phone_and_on_a_desk(browser: Any, build: Any, encoders: list[str]) -> None:
    file = build(encoders)[0].reports / "comparison.html"
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
            assert (seen.console, seen.errors) == ([], [])
            assert [url for url in seen.requests if not url.startswith("data:")] == [file.as_uri()]


def test_the_theme_follows_the_reader(browser: Any, build: Any) -> None:
    file = build(FEW)[0].reports / "comparison.html"
    inks = {}
    for scheme in ("light", "dark"):
        with opened(browser, file.as_uri(), DESK, scheme) as seen:
            ink = seen.page.evaluate("getComputedStyle(document.body).color")
            label = seen.page.locator("#plot-pareto .legendtext").first
            assert label.evaluate("text => getComputedStyle(text).fill") == ink
            inks[scheme] = ink
    assert inks["light"] != inks["dark"]
