from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.errors import InputError
from components.data.sources.folder import FILES
from components.explorer.voted import standings, write_captions
from components.registry.votes import Vote
from tests.support.toy_context import colour_image


def _vote(choice: str, **changes: Any) -> Vote:
    known = {"first": "base", "first_sha256": "b", "second": "paraclip", "second_sha256": "p", "user": "Ada"}
    return Vote(**{"query": "a dog", "paraphrase": "one hound", "choice": choice} | known | changes)


def test_standings_tell_both_sides() -> None:
    votes = [_vote(choice, user=str(number)) for number, choice in enumerate(("second", "second", "first", "tie"))]
    votes.append(_vote("first", second_sha256="older"))
    found = {(one.encoder, one.against): one.wins for one in standings(votes)}
    own = found["paraclip p", "base"]
    assert (own.won, own.lost, own.ties) == (2, 1, 1)
    assert (found["base", "paraclip p"].won, found["base", "paraclip p"].lost) == (1, 2)
    assert found["base", "paraclip older"].won == 1
    assert next(iter(found)) in {("paraclip p", "base"), ("base", "paraclip p")}


def test_marked_pictures_become_rows_that_source_folder_reads(tmp_path: Path) -> None:
    for name in ("here/a.png", "project/deep/b  c.png", "outside.png"):
        colour_image(tmp_path / name, (0, 0, 0))
    votes = [
        _vote("first", image="a.png"),
        _vote("tie", image="a.png"),
        _vote("first"),
        _vote("tie", image="deep/b  c.png", query='tab\ta "big" dog', paraphrase="line\nthere"),
        *(_vote("tie", image=image) for image in ("352b6b058d9f76f7", "c.png", "../outside.png", "x\ty.png")),
    ]
    path = tmp_path / "here/captions.tsv"
    assert write_captions(votes, path, tmp_path / "project") == (2, 4)
    columns = ("image", "caption", "paraphrase", "split")
    assert [tuple(row[name] for name in columns) for _, row in FILES.rows(path)] == [
        ("a.png", "a dog", "one hound", "test"),
        ("deep/b  c.png", 'tab a "big" dog', "line there", "test"),
    ]
    with pytest.raises(InputError, match=r"none.tsv: 1 queries .* no such picture is a file in"):
        write_captions(votes[:1], tmp_path / "none.tsv")
