"""VG-Relation and VG-Attribution of ARO: boxes of Visual Genome images, each with a true and a false caption."""

from __future__ import annotations

from functools import partial
from typing import Any

from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles

RELATION, ATTRIBUTION = "vg_relation", "vg_attribution"
CASES = {RELATION: 23_937, ATTRIBUTION: 28_748}
"""Published numbers of cases; those of VG-Relation include the symmetric relations."""
BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
CAPTIONS = ("true_caption", "false_caption")
_COLUMNS = {"image_path": str, **dict.fromkeys(BOX, int), **dict.fromkeys(CAPTIONS, str)}
_JSON = {RELATION: "visual_genome_relation.json", ATTRIBUTION: "visual_genome_attribution.json"}
_LABELS: dict[str, dict[str, type]] = {RELATION: {"relation_name": str}, ATTRIBUTION: {"attributes": list}}
_SOURCE = "github.com/mertyg/vision-language-models-are-bows"
FOLDER = "aro"
FILES = {
    name: (
        RequiredFile(_JSON[name], f"{CASES[name]:,} cases", size, "MIT", _SOURCE),
        RequiredFile(
            "images", "Visual Genome images of GQA", "1 GB", "CC BY 4.0 and Flickr terms",
            f"{_SOURCE}, vgr_vga_images.zip",
        ),
    )
    for name, size in ((RELATION, "10 MB"), (ATTRIBUTION, "15 MB"))
}  # fmt: skip


def read_cases(files: TestSetFiles, name: str) -> list[dict[str, Any]]:
    """The cases of one of the two benchmarks, with `relation_name` or `attributes`."""
    rows = files.read_rows(_JSON[name], {**_COLUMNS, **_LABELS[name]})
    files.expect(_JSON[name], len(rows), CASES[name])
    return rows


def _tested(files: TestSetFiles, name: str) -> Tested:
    rows = files.read_rows(_JSON[name], _COLUMNS)
    texts = [row[column] for row in rows for column in CAPTIONS]
    return Tested(texts, [files.folder / "images" / row["image_path"] for row in rows], names="VG_100K")


TEST_SETS = tuple(TestSet(name, FOLDER, FILES[name], partial(_tested, name=name)) for name in FILES)
