"""The review page as people use it: no verdict on a query whose picture is not there yet."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from components.core.tables.records import PAIRS
from components.registry.reviews import read_reviewed
from components.serving.explorer.reviewing import Reviewing, review_app
from tests.support.browsing import DESK, listening, opened
from tests.support.written_queries import write_test_set

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
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
    pictures = []
    for shade in range(4):
        encoded = io.BytesIO()
        Image.new("RGB", (40, 20), (60 * shade, 0, 0)).save(encoded, "PNG")
        pictures.append(encoded.getvalue())
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
