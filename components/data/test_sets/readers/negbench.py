"""NegBench's published tables of COCO val2017 and VOC2007: questions with four captions, and captions with negation.

Files, columns and folders are those of the authors' datasets.md, `CsvMCQDataset` and `CsvImageCaptionDataset`
(github.com/m1k2zoo/negbench). The paths in the tables are the authors' own, so only file names are used.
"""

from __future__ import annotations

import ast
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from components.core.compute.metrics import Indices
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles

FOLDER, COCO_MCQ, VOC_MCQ, RETRIEVAL = "negbench", "negbench_coco_mcq", "negbench_voc_mcq", "negbench_coco_retrieval"
QUESTIONS = {
    COCO_MCQ: ("COCO_val_mcq_llama3.1_rephrased.csv", 5_914),
    VOC_MCQ: ("VOC2007_mcq_llama3.1_rephrased.csv", 5_031),
}
"""Table and rows. The latter are not stated: no others fit the shares in results/mcq/1_baseline_breakdown.csv."""
CAPTIONS = {
    "plain": "COCO_val_retrieval.csv",
    "negated": "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv",
}
"""Group of metrics -> the table of its captions."""
IMAGES, OPTIONS = 5_000, tuple(f"caption_{number}" for number in range(4))
PICTURES = {COCO_MCQ: "val2017", VOC_MCQ: "VOC2007/JPEGImages", RETRIEVAL: "val2017"}
_TEXTS = ("texts", "4 MB", "not stated", "the link in datasets.md of github.com/m1k2zoo/negbench")
_COCO = RequiredFile("val2017", "5,000 images", "1 GB", "Flickr terms", "cocodataset.org, val2017.zip")
_VOC = RequiredFile(PICTURES[VOC_MCQ], "4,952 images", "450 MB", "Flickr terms", "PASCAL, VOCtest_06-Nov-2007.tar")
FILES = {
    COCO_MCQ: (RequiredFile(QUESTIONS[COCO_MCQ][0], *_TEXTS), _COCO),
    VOC_MCQ: (RequiredFile(QUESTIONS[VOC_MCQ][0], *_TEXTS), _VOC),
    RETRIEVAL: (*(RequiredFile(table, *_TEXTS) for table in CAPTIONS.values()), _COCO),
}


def read_questions(files: TestSetFiles, name: str) -> list[dict[str, Any]]:
    """Rows with `image`, a file name, four captions, the number of the right one, `answer`, and its `kind`."""
    table, count = QUESTIONS[name]
    columns = ("image_path", *OPTIONS, "correct_answer", "correct_answer_template")
    rows = files.read_csv(table, dict.fromkeys(columns, str))
    for row in rows:
        row |= {"image": PurePosixPath(row["image_path"]).name, "kind": row["correct_answer_template"]}
        row["answer"] = {"0": 0, "1": 1, "2": 2, "3": 3}.get(row["correct_answer"])
    good = files.complete_rows(table, rows, {"answer": int})
    files.expect(table, len(good), count)
    return good


def read_captions(files: TestSetFiles, kind: str) -> tuple[list[str], list[str], Indices]:
    """File names in the table's order, captions, and the row of each caption's image `[captions]`."""
    table = CAPTIONS[kind]
    rows = files.read_csv(table, {"filepath": str, "captions": str})
    parsed = [{"name": PurePosixPath(row["filepath"]).name, "captions": _listed(row["captions"])} for row in rows]
    good = files.complete_rows(table, parsed, {"captions": list})
    files.expect(table, len(good), IMAGES)
    owners = np.repeat(np.arange(len(good)), [len(row["captions"]) for row in good]).astype(np.int64)
    return [row["name"] for row in good], [text for row in good for text in row["captions"]], owners


def _listed(cell: str) -> list[str] | None:
    """The list of texts that `cell` writes in Python; the released code would run whatever is there."""
    try:
        content = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    texts = isinstance(content, list) and content and all(isinstance(text, str) for text in content)
    return content if texts else None


def _tested(files: TestSetFiles, name: str) -> Tested:
    if name == RETRIEVAL:
        tables = [read_captions(files, kind) for kind in CAPTIONS]
        names = [image for images, _, _ in tables for image in images]
        texts = [text for _, captions, _ in tables for text in captions]
    else:
        rows = read_questions(files, name)
        names, texts = [row["image"] for row in rows], [row[option] for row in rows for option in OPTIONS]
    return Tested(texts, [files.folder / PICTURES[name] / image for image in dict.fromkeys(names)])


TEST_SETS = tuple(TestSet(name, FOLDER, FILES[name], partial(_tested, name=name)) for name in FILES)
