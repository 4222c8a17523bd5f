"""Details that a paraphrase adds or loses are found; synonyms of its source's words are not details."""

from __future__ import annotations

import pytest

from components.captions.validation.rules.changes import find_added_detail, find_lost_detail

CASES = [
    ("A man is standing before a building.", "A guy stands before a tall building.", "size"),
    ("A dog runs on grass.", "A brown canine runs on grass.", "colour"),
    ("A woman sits on a bench.", "A lady in a hat sits on a bench.", "garment"),
    ("A dog jumps.", "A collie jumps.", "breed"),
    ("A boat on a lake.", "A wooden boat on a lake.", "material"),
    ("Over hurdles, a dog leaps.", "A canine leaps over obstacles with its front paws.", "body"),
    ("Two dogs leap on a lawn.", "A pair of dogs leap on the lawn of a park.", "place"),
    ("A baby plays with a bear.", "A baby plays with a bear as her mother watches.", "person"),
    ("Some dogs run.", "Three dogs run.", "number"),
    ("A big sofa next to a small child.", "A large couch beside a little kid.", None),
    ("On the road, a boy rides a bike.", "A lad rides a bike on the highway.", None),
    ("A dog is standing on its hind legs.", "On its back legs, a canine stands.", None),
    ("A blond child in a T-shirt.", "A kid with golden hair and a tee.", None),
    ("A person crawls through snow.", "A guy crawls through the snow.", None),
    ("", "", None),
]


@pytest.mark.parametrize(("source", "text", "kind"), CASES)
def test_kinds_of_added_details(source: str, text: str, kind: str | None) -> None:
    assert find_added_detail(text, source) == kind
    # Numbers that are lost have a check of their own.
    assert find_lost_detail(source, text) == (None if kind == "number" else kind)
