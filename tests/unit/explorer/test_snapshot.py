"""The page of chosen queries is one file, whatever captions say."""

from __future__ import annotations

import json
import re

from components.explorer.server import Explored
from components.explorer.snapshot import snapshot
from tests.support.exploring import HOSTILE, PICTURES


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
