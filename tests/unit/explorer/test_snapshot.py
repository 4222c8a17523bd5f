"""The page of chosen queries is one file, whatever captions say."""

from __future__ import annotations

import json
import re

import pytest

from components.explorer.server import Explored
from components.explorer.snapshot import snapshot
from tests.support.exploring import HOSTILE, PICTURES


def test_a_vector_without_a_picture_has_its_caption(explored: Explored, monkeypatch: pytest.MonkeyPatch) -> None:
    index = explored.explorer.index
    rows = index.rows(range(PICTURES))
    bare = rows.set_column(rows.schema.get_field_index("size"), "size", [[None] * PICTURES])
    monkeypatch.setattr(index, "rows", bare.take)
    page = snapshot(explored, [("a dog", "")], 2)
    assert '"pictures": {"' in page
    assert "data:image" not in page
    assert "of a dog" in page


def test_everything_is_in_it(explored: Explored) -> None:
    page = snapshot(explored, [("a dog", "one hound"), ("a </script> cat", "")], PICTURES)
    found = re.search(r'<script type="application/json" id="snapshot">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    content = json.loads(found.group(1))
    assert [one["query"] for one in content["compared"]] == ["a dog", "a </script> cat"]
    assert content["compared"][0] == explored.explorer.compare("a dog", "one hound", PICTURES).model_dump()
    assert len(content["pictures"]) == PICTURES
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in content["pictures"].values())
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "src=" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "connect-src" not in page
    assert "default-src &#x27;none&#x27;" in page
