"""Classes and queries as inputs: each once, in a fixed order, known by ids that do not depend on the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.captions.prompting.inputs.readers import Ask, anything, read_class_pairs, read_classes, read_queries
from components.captions.prompting.request import InputRow
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.records import CAPTION_QUERIES, LABELS

NAMES = ["dog", "cat", "dog", "ice cream", "bee", "cat"]


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.parquet"
    LABELS.write(path, {"image_id": [f"i{number}" for number in range(len(NAMES))], "label": list(NAMES)})
    return path


def test_every_class_once_in_the_order_of_names_without_those_refused(labels: Path) -> None:
    found = list(read_classes(labels, anything, Ask(9)))
    names = ("bee", "cat", "dog", "ice cream")
    assert found == [InputRow(content_hash(name), 0, {"class_name": name}) for name in names]
    assert list(read_classes(labels, anything, Ask(2))) == found[:2]
    ask = Ask(9)
    assert list(read_classes(labels, lambda one: "no bees" if one["class_name"] == "bee" else None, ask)) == found[1:]
    assert ask.skipped == {"no bees": 1}


def test_ordered_pairs_of_classes_by_seed(labels: Path) -> None:
    found = list(read_class_pairs(labels, anything, Ask(9, pairs=12)))
    names = [(source.inputs["class_name"], source.inputs["other_class_name"]) for source in found]
    assert len(set(names)) == 12
    assert names[:3] == [("bee", "cat"), ("bee", "dog"), ("bee", "ice cream")]
    assert [source.sample for source in found[:4]] == [0, 1, 2, 0]
    assert all(source.id == content_hash(name) for source, (name, _) in zip(found, names, strict=True))
    assert all(source.other_id == content_hash(name) for source, (_, name) in zip(found, names, strict=True))
    drawn = [[source.inputs for source in read_class_pairs(labels, anything, Ask(9, seed, 3))] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_lines_name_classes_pairs_and_queries(tmp_path: Path) -> None:
    """As `cliptune evaluate` writes them: a folder for each encoder, whose pairs may be the same."""
    for encoder, lines in (("base", "crab\tlobster\nbee\tcat\n"), ("mine", "crab\tlobster\ncrab\tbee\n")):
        path = tmp_path / "pairs" / encoder / "zero_shot.tsv"
        path.parent.mkdir(parents=True)
        path.write_text(lines)
    found = list(read_class_pairs(tmp_path / "pairs", anything, Ask(1, pairs=1)))
    assert found == [
        InputRow(content_hash(one), sample, {"class_name": one, "other_class_name": other}, content_hash(other))
        for one, sample, other in (("bee", 0, "cat"), ("crab", 0, "bee"), ("crab", 1, "lobster"))
    ]
    names = tmp_path / "names.tsv"
    names.write_text("a dog\nCaf\u00e9\u2028bar\na dog\n")
    classes = [source.inputs["class_name"] for source in read_classes(names, anything, Ask(9))]
    assert classes == ["Caf\u00e9\u2028bar", "a dog"]
    queries = list(read_queries(names, anything, Ask(9)))
    assert queries == [InputRow(content_hash(text), 0, {"query": text}) for text in ("a dog", "Caf\u00e9\u2028bar")]
    names.write_text("one\ttwo\n")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("names.tsv", r"names.tsv: line 1 does not have 1 texts separated by tabs"),
        ("absent", r"absent is missing or damaged .*run `cliptune evaluate --overwrite`"),
        ("empty", r"empty has no .tsv file: run `cliptune evaluate` on the benchmark"),
    ):
        with pytest.raises(InputError, match=message):
            list(read_classes(tmp_path / name, anything, Ask(9)))


def test_only_plain_queries_are_read_and_those_of_an_image_are_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "queries.parquet"
    ids, texts = ["i0", "i0", "i1", "i0"], ["A dog.", "dog.png", "A cat.", "Dog!"]
    registers = ["plain", "alt_text", "plain", "plain"]
    CAPTION_QUERIES.write(path, {"image_id": ids, "text": texts, "register": registers})
    wanted = [("i0", 0, "A dog."), ("i1", 0, "A cat."), ("i0", 1, "Dog!")]
    found = list(read_queries(path, anything, Ask(9)))
    assert found == [InputRow(image, sample, {"query": text}) for image, sample, text in wanted]
    assert len(list(read_queries(path, anything, Ask(2)))) == 2
