"""Every source does the same with the fields of a row: the same rows give the same captions, products and splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.cli.own_data.survey import problems, survey
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.settings import Prepare, Settings
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS, SPLITS, UNUSABLE
from components.data.source import Unusable
from components.data.sources import find_source
from tests.support.shard_making import write_tar
from tests.unit.data.sources.published_folders import (
    Rows,
    picture,
    rows_above_images,
    rows_as_json,
    rows_as_jsonl,
    rows_as_list,
    rows_as_parquet,
    rows_as_shard,
    rows_beside,
    rows_with_vectors,
    write_pictures,
)
from tests.unit.data.sources.reading import pairs_of, prepare_settings, prepared

PRODUCTS = 12


def product_rows() -> list[dict[str, Any]]:
    """Two pictures of each product; one without a title, one with a price that is missing."""
    return [
        {
            "title": None if number == 3 else f"Mug {number}",
            "brand": None if number == 5 else "Acme",
            "sku": number // 2,
            "metadata": {"size": number},
            "tags": ["red", "new"],
        }
        for number in range(2 * PRODUCTS)
    ]


WRITERS: dict[str, tuple[str, Callable[[Path, Rows], None]]] = {
    "JSON lines": ("folder", rows_as_jsonl),
    "JSON list": ("folder", rows_as_json),
    "list beside images": ("folder", rows_above_images),
    "list in Parquet": ("folder", rows_as_list),
    "files beside": ("folder", rows_beside),
    "huggingface": ("huggingface", rows_as_parquet),
    "webdataset": ("webdataset", rows_as_shard),
    "embeddings": ("embeddings", rows_with_vectors),
}
everywhere = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """Writes rows in a layout; returns settings with the counts that `cliptune init` gives."""

    def make(name: str, rows: Rows, **fields: str) -> Settings:
        source, write = WRITERS[name]
        folder = tmp_path / "set"
        write(folder, rows)
        found = survey(folder, fields)
        assert found.source == source
        named = {"source": source, "folder": str(folder), "counts": found.counts.model_dump()}
        return prepare_settings(raw_params, **named | fields)

    return make


@everywhere
def test_template_product_and_rows_without_a_caption(name: str, settings: Any, tmp_path: Path) -> None:
    made = settings(name, product_rows(), text="{title}[ by {brand}], {metadata.size}, {tags}", item="sku")
    splits = prepared(made, tmp_path)
    pairs = [pair for split in SPLITS for pair in splits[split]]
    expected = {
        f"{row['title']}{' by Acme' if row['brand'] else ''}, {row['metadata']['size']}, red, new": str(row["sku"])
        for row in product_rows()
        if row["title"]
    }
    items = {split: {pair["item"] for pair in splits[split]} for split in SPLITS}
    assert sum(map(len, items.values())) == len(set.union(*items.values()))
    # The rest of the last product of a split is in none.
    assert len(expected) - 2 <= len(pairs) <= len(expected)
    assert {pair["caption"]: pair["item"] for pair in pairs}.items() <= expected.items()
    # Product 0 is one, and no row is left out for its share.
    assert "0" in set.union(*items.values()) or len(pairs) < len(expected)
    (reason,) = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert "empty caption: no value of 'title', which prepare.text needs" in reason
    assert "4" in reason or "000000003" in reason or "3.png" in reason


@everywhere
@pytest.mark.parametrize(
    ("fields", "message"),
    [({"text": "nosuch"}, "nosuch"), ({"item": "nosuch"}, "nosuch"), ({"text": "metadata"}, "holds fields")],
)
def test_a_field_that_cannot_be_read_is_refused(
    name: str, fields: dict[str, str], message: str, settings: Any, raw_params: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        settings(name, product_rows(), **fields)
    assert "\n" not in str(caught.value)
    counts = {"train": 4, "val": 1, "test": 1}
    named = {"source": WRITERS[name][0], "folder": str(tmp_path / "set"), "counts": counts}
    with pytest.raises(InputError, match=message):
        pairs_of(prepare_settings(raw_params, **named | fields))


@everywhere
def test_several_captions_and_empty_and_long_ones(name: str, settings: Any, tmp_path: Path) -> None:
    rows = [{"caption": [f"mug {number}", f"cup {number}"]} for number in range(20)]
    rows += [{"caption": texts} for texts in (None, [], ["", "  "], ["word " * 101, "a short one"])]
    unusable: list[Unusable] = []
    pairs = pairs_of(settings(name, rows), unusable)
    trained = [pair.caption for pair in pairs if pair.split == "train"]
    held_out = {pair.image_id for pair in pairs if pair.split != "train"}
    assert len(held_out) == 4
    assert len(trained) in (41 - 8, 41 - 7)
    assert [one.images for one in unusable] == [0] * 4


@everywhere
def test_repeated_rows_are_merged_and_a_shared_placeholder_costs_little(name: str, settings: Any) -> None:
    placeholder = [{"caption": f"product {number} without photo", "picture": 0} for number in range(15)]
    rows = placeholder + [{"caption": f"mug {number}", "picture": number} for number in range(15, 120)] * 2
    made = settings(name, [{"caption": row["caption"], "picture": row["picture"]} for row in rows])
    assert made.prepare.counts.model_dump() == {"train": 120 - 19 - 15, "val": 10, "test": 10}
    assert Counter(pair.split for pair in pairs_of(made)) == made.prepare.counts.model_dump()


@everywhere
def test_a_product_is_in_one_split_beside_a_published_one(name: str, settings: Any, capsys: Any) -> None:
    rows = [
        {"caption": f"mug {number}", "sku": f"S{number // 3}", "split": "test" if number in (1, 22) else "train"}
        for number in range(60)
    ]
    pairs = pairs_of(settings(name, rows, item="sku"))
    splits: dict[str | None, set[str]] = {}
    for pair in pairs:
        splits.setdefault(pair.item, set()).add(pair.split)
    assert {len(found) for found in splits.values()} == {1}
    assert sorted(pair.caption for pair in pairs if pair.split == "test") == ["mug 1", "mug 22"]
    assert "images left out whose product is" in capsys.readouterr().out


@everywhere
def test_values_that_name_no_product(name: str, settings: Any) -> None:
    skus = [0.0, None, float("nan"), 1.0]
    rows = [{"caption": f"mug {number}", "sku": skus[number % 4]} for number in range(40)]
    items = Counter(pair.item for pair in pairs_of(settings(name, rows, item="sku")))
    assert set(items) == {"0", "1", None}
    assert items[None] >= 12


@everywhere
def test_the_survey_reads_captions_whatever_the_source(name: str, settings: Any, tmp_path: Path) -> None:
    german = "der alte Mann mit dem roten Hut geht langsam über die schmale Brücke am Fluss im Morgenlicht nach Hause"
    settings(name, [{"caption": f"{german} {number}"} for number in range(20)])
    found = survey(tmp_path / "set")
    assert (found.languages, found.caption_words) == (("de",), (2, 20))
    assert any(fact.startswith("captions: 20 words") for fact in found.facts)


@pytest.mark.parametrize("source", ["synthetic", "cc_neg"])
@pytest.mark.parametrize("setting", ["text", "item", "image"])
def test_a_source_without_fields_refuses_their_names(source: str, setting: str, raw_params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"source '{source}' reads no prepare\.{setting}: remove it"):
        pairs_of(prepare_settings(raw_params, **{"source": source, setting: "x"}))


@pytest.mark.parametrize("name", ["huggingface", "webdataset", "JSON lines"])
def test_another_column_of_pictures(name: str, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    """The picture of `--image` is checked, hashed and, later, read."""
    folder, numbers = tmp_path / "set", range(20)
    image = "v1.front.png" if name == "webdataset" else "front"
    rows = [{"title": f"mug {number}"} for number in numbers]
    if name == "huggingface":
        folder.mkdir()
        listed = [{"image": picture(number + 100), "front": picture(number), **row} for number, row in enumerate(rows)]
        pq.write_table(pa.Table.from_pylist(listed), folder / "train-0.parquet")
    elif name == "webdataset":
        endings = (("png", 100), ("v1.front.png", 0))
        members = [(f"{number}.{ending}", picture(number + more)) for number in numbers for ending, more in endings]
        texts = [(f"{number}.txt", b"mug %d" % number) for number in numbers]
        write_tar(folder / "0.tar", sorted([*members, *texts]))
    else:
        rows_as_jsonl(
            folder, [{"image": f"{number + 100}.png", "front": f"{number}.png", **rows[number]} for number in numbers]
        )
        write_pictures(folder, range(120))
    found = survey(folder, {"image": image})
    counts = found.counts.model_dump()
    made = prepare_settings(raw_params, source=found.source, folder=str(folder), counts=counts, image=image)
    assert sum(map(len, prepared(made, tmp_path).values())) == 20
    table = PAIRS.read(tmp_path / "pairs" / "train.parquet")
    with Pictures() as pictures:
        read = pictures.of(table.select(PICTURE))
    shown = {f"mug {number}": picture(number) for number in numbers}
    assert dict(zip(table["caption"].to_pylist(), read, strict=True)).items() <= shown.items()
    with pytest.raises(InputError, match=r"nosuch|no image"):
        survey(folder, {"image": "nosuch"})


def test_files_of_splits_are_read(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    """open_clip's training lists: separated by tabs, whatever their ending."""
    write_pictures(tmp_path / "set" / "imgs", range(20))
    for name, numbers in (("train", range(16)), ("val", range(16, 20))):
        lines = [f'imgs/{number}.png\t"a ""big"" mug, {number}"\n' for number in numbers]
        (tmp_path / "set" / f"{name}.csv").write_text("".join(["filepath\ttitle\n", *lines]))
    found = survey(tmp_path / "set")
    assert found.described.images == {"train": 16, "val": 4}
    made = prepare_settings(raw_params, source="folder", folder=str(tmp_path / "set"), counts=found.counts.model_dump())
    splits = prepared(made, tmp_path)
    assert {pair["caption"] for pair in splits["val"]} == {f'a "big" mug, {number}' for number in range(16, 20)}


def test_texts_beside_pictures_are_captions(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    folder = tmp_path / "set"
    write_pictures(folder, range(20))
    write_pictures(folder / ".thumbnails", range(3))
    for number in range(18):
        (folder / f"{number}.{('txt', 'caption')[number % 2]}").write_text(f"\ufeffa mug, {number}\n")
    (folder / "18.json").write_text('{"caption": "a mug, 18", "status": "success"}')
    found = survey(folder)
    assert (found.source, found.described.images) == ("folder", {"train": 19})
    made = prepare_settings(raw_params, source="folder", folder=str(folder), counts=found.counts.model_dump())
    captions = {pair.caption for pair in pairs_of(made)}
    assert captions == {f"a mug, {number}" for number in range(19)}


def test_a_folder_whose_pictures_are_missing_is_refused(tmp_path: Path) -> None:
    rows_as_jsonl(tmp_path / "set", [{"caption": f"mug {number}"} for number in range(20)])
    for number in range(10):
        (tmp_path / "set" / f"{number}.png").unlink()
    with pytest.raises(InputError, match=r"10 of 20 images are missing or damaged; .* names 0\.png, which"):
        survey(tmp_path / "set")
    write_pictures(tmp_path / "set", range(8))
    found = survey(tmp_path / "set")
    assert (found.unusable_share, found.counts.total) == (0.12, 18)
    assert "left out; the profile allows it by prepare.max_unusable_share: 0.12" in problems(found)[0]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.jpg": b"x", "b.jpg": b"x"}, r"it has 2 \.jpg: write a captions\.tsv into it, or have a model write it"),
        ({"data-00000.arrow": b"x", "state.json": b"{}"}, r"1 \.arrow.*save_to_disk: .*load_from_disk.*to_parquet"),
        ({"list.csv": b"x", "a.jpg": b"x"}, "rename list.csv to captions.csv"),
        ({"train.parquet": {"url": ["u"], "caption": ["c"]}},
         r"train\.parquet has the columns url, caption: it has URLs .* img2dataset downloads: .*url_col url"),
        ({"all.parquet": {"name": ["u"], "caption": ["c"]}}, "name, caption: .* rename it to captions.parquet"),
    ],
)  # fmt: skip
def test_a_folder_in_no_known_format_is_described(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for name, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / "set" / name).write_bytes(content)
        else:
            pq.write_table(pa.table(content), tmp_path / "set" / name)
    with pytest.raises(InputError, match=f"is in no known format .*{message}"):
        survey(tmp_path / "set")


def test_a_sample_of_captions_is_described(tmp_path: Path) -> None:
    rows_with_vectors(tmp_path / "set", [{"caption": f"mug {number}"} for number in range(20)])
    describe = find_source("embeddings").describe
    assert describe is not None
    found = describe(Prepare(source="embeddings", folder=tmp_path / "set", counts={"train": 1, "val": 1, "test": 1}))
    assert [*found.texts] == [f"mug {number}" for number in range(20)]
    assert np.isclose(sum(found.texts.values()), 20)


def test_names_that_no_file_can_have_are_of_no_file(tmp_path: Path) -> None:
    """A list names one, and a text beside the longest possible name would have one."""
    listed, beside = tmp_path / "listed", tmp_path / "beside"
    write_pictures(listed, range(20))
    rows = [f"{number}.png,a mug {number}" for number in range(20)]
    (listed / "captions.csv").write_text("\n".join(["image,caption", f"{'x' * 300}.png,a mug", *rows]))
    write_pictures(beside, range(20))
    (beside / "0.png").rename(beside / f"{'x' * 251}.png")
    for number in range(1, 20):
        (beside / f"{number}.txt").write_text(f"a mug {number}")
    assert survey(listed).described.images == {"train": 20}
    assert survey(beside).described.images == {"train": 19}
