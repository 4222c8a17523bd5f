"""The page of chosen queries as one file that needs no server: texts, results and pictures are in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape

from components.core.pictures import is_picture
from components.explorer.server import Explored, page_file

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def snapshot(explored: Explored, queries: Sequence[tuple[str, str]], k: int) -> str:
    """HTML with the comparison of each query and its paraphrase, which may be empty."""
    compared = [explored.explorer.compare(query, paraphrase, k) for query, paraphrase in queries]
    hits = (hit for one in compared for side in one.sides for hit in (*side.query, *side.paraphrase, *side.lost))
    shown = sorted({hit.row for hit in hits})
    rows = explored.explorer.index.rows(shown).to_pylist()
    content = {
        "about": f"{' against '.join(explored.names)} · {len(explored.explorer.index):,} pictures",
        "compared": [one.model_dump() for one in compared],
        # Of a vector without a picture, the page shows the caption.
        "pictures": {
            row: _uri(explored.thumbnails.small(row)) if is_picture({"image": None, **facts}) else ""
            for row, facts in zip(shown, rows, strict=True)
        },
    }
    page = page_file("explorer.html")
    parts = {
        '<link rel="stylesheet" href="explorer.css">': f'<meta http-equiv="Content-Security-Policy" '
        f'content="{escape(_POLICY)}">\n<style>\n{page_file("explorer.css")}</style>',
        '<script type="application/json" id="snapshot">null</script>': '<script type="application/json" '
        f'id="snapshot">{_in_script(content)}</script>',
        '<script src="explorer.js" defer></script>': f"<script>\n{page_file('explorer.js')}</script>",
    }
    for marker, inlined in parts.items():
        assert marker in page
        page = page.replace(marker, inlined)
    return page


def _uri(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}"


def _in_script(content: object) -> str:
    # A caption may say </script>.
    return json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")
