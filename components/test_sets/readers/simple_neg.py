"""SimpleNeg: queries with a negation, each with two yes/no questions about a picture, before images of COCO val2014.

`simpleneg.json` is a list of [query, question about the excluded, question about the rest]. Nobody states the number of
its rows, so it is not checked. steer.py searches the first 25,000 images by name.
"""

from __future__ import annotations

from components.test_sets.files import RequiredFile, Tested, TestSet, TestSetFiles
from components.test_sets.readers.coco_p import image_files

NAME, FILE, IMAGES = "simple_neg", "simpleneg.json", "val2014"
PUBLISHED, GALLERY = 40_504, 25_000
QUERY = ("query", "excluded", "rest")
FILES = (
    RequiredFile(FILE, "queries", "110 kB", "not stated", "github.com/fawazsammani/negation-steering, data/"),
    RequiredFile(IMAGES, f"{PUBLISHED:,} images", "6 GB", "Flickr terms", "cocodataset.org, val2014.zip"),
)


def read_queries(files: TestSetFiles) -> list[dict[str, str]]:
    """Rows with the texts `QUERY`, in the file's order."""
    content = files.read_json(FILE)
    rows = [
        dict(zip(QUERY, row, strict=True)) if isinstance(row, list) and len(row) == len(QUERY) else None
        for row in (content if isinstance(content, list) else [content])
    ]
    return files.complete_rows(FILE, rows, dict.fromkeys(QUERY, str))


def gallery_names(files: TestSetFiles) -> list[str]:
    """File names of the images that are searched, sorted."""
    names = [path.name for path in image_files(files.folder / IMAGES)]
    files.expect(f"{IMAGES}: images", len(names), PUBLISHED)
    return names[:GALLERY]


def _tested(files: TestSetFiles) -> Tested:
    images = [files.folder / IMAGES / name for name in gallery_names(files)]
    return Tested([row["query"] for row in read_queries(files)], images)


TEST_SETS = (TestSet(NAME, NAME, FILES, _tested),)
