from __future__ import annotations

from pathlib import Path
from typing import Any

from components.explorer.voted import standings, write_captions
from components.registry.votes import Vote


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


def test_marked_pictures_become_captions(tmp_path: Path) -> None:
    odd = _vote("tie", image="b.png", query="tab\there", paraphrase="line\nthere")
    votes = [_vote("first", image="a.png"), _vote("tie", image="a.png"), _vote("first"), odd]
    assert write_captions(votes, tmp_path / "captions.tsv") == 2
    assert (tmp_path / "captions.tsv").read_text().splitlines() == [
        "image\tcaption\tparaphrase\tsplit",
        "a.png\ta dog\tone hound\ttest",
        "b.png\ttab here\tline there\ttest",
    ]
