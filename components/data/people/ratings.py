"""What experts think of captions of Flickr8k's test images (Hodosh et al. 2013), as CLIPScore's released code reads it.

Three experts judged 5,822 captions, mostly of other images, from 1 (nothing in common) to 4 (fits). The 158 captions
that are the image's own are left out, as SPICE and CLIPScore do, and each judgement counts by itself: 16,992 rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from components.core.errors import InputError
from components.core.records import CAPTION_RATINGS
from components.data.source import EvaluationTables, filled

FILE = "ExpertAnnotations.txt"
_SCORES = ("1", "2", "3", "4")


def caption_ratings(folder: Path, captions: Mapping[str, str], image_ids: Mapping[str, str]) -> EvaluationTables:
    """The table `caption_ratings` of the images that are tested on; none where `folder` has no ratings.

    Args:
        folder: of the file.
        captions: key of a caption, `<image>#<n>`, -> its text.
        image_ids: file name of each test image -> its id.

    Raises:
        InputError: the file is not as published, or names a caption that is not there.
    """
    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        lines = file.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}): fetch it again") from None
    own: dict[str, set[str]] = defaultdict(set)
    for key, caption in captions.items():
        own[key.rpartition("#")[0]].add(caption)
    rows = []
    for number, line in enumerate(lines, 1):
        image, _, rest = line.partition("\t")
        key, *scores = rest.split("\t")
        if len(scores) != 3 or not set(scores) <= set(_SCORES):
            raise InputError(
                f"{file}: line {number} is not an image, a caption's key and three of 1 to 4: fetch it again"
            )
        if key not in captions:
            raise InputError(
                f"{file}: line {number} names caption '{key}', which is not there: fetch the captions again"
            )
        if image in image_ids and captions[key] not in own[image]:
            rows += [(image_ids[image], captions[key], float(score)) for score in scores]
    return {"caption_ratings": filled(CAPTION_RATINGS, rows)} if rows else {}
