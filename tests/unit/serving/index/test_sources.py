"""What indexes are made of: this project's embeddings, folders, shards, and vectors that others computed."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.core.tables.records import PAIRS, SPLITS
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.registry.encoder_lookup import encoder_under_test
from components.serving.index import sources
from components.serving.index.building import append, build
from components.serving.index.image_index import ImageIndex
from components.serving.index.sources import find_source, reading, source_of
from tests.support.index_making import OTHER_TOWER, drawn, opened, toy, unit, write_vectors
from tests.support.toy_context import colour_image

COLOURS = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (120, 0, 120)]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Four pictures, one in a folder below, and one that cannot be read; two have captions."""
    folder = tmp_path / "pictures"
    for number, colour in enumerate(COLOURS):
        colour_image(folder / ("deep" if number == 3 else "") / f"{number}.png", colour, (16, 16))
    (folder / "broken.jpg").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("none either")
    (folder / "captions.tsv").write_text(
        "image\tcaption\tshop\n0.png\tred\tnorth\n0.png\tcrimson\t\ndeep/3.png\tlilac\t\n"
    )
    return folder


@pytest.fixture
def tower(tiny_encoder: Encoder) -> EncoderUnderTest:
    return encoder_under_test("t", tiny_encoder)


def tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, raw in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(raw)
            archive.addfile(header, io.BytesIO(raw))


def test_a_folder_of_pictures(pictures: Path, tower: EncoderUnderTest, tiny_encoder: Encoder, tmp_path: Path) -> None:
    (pictures / "outside.png").symlink_to("/etc/passwd")
    assert source_of(str(pictures)) == "folder"
    found = build(tmp_path / "index", opened(pictures, tower, "folder"))
    assert (found.rows, len(found.unusable)) == (4, 2)
    assert "pictures/broken.jpg is not a readable image (no known format)" in found.unusable[0]
    assert "pictures/outside.png is a link to a file outside" in found.unusable[1]
    index = ImageIndex.open(tmp_path / "index")
    rows = index.rows(range(4)).to_pylist()
    assert [(row["name"], row["caption"], row["shop"]) for row in rows] == [
        ("0.png", "red", "north"), ("1.png", None, None), ("2.png", None, None), ("deep/3.png", "lilac", None),
    ]  # fmt: skip
    raw = [(pictures / row["name"]).read_bytes() for row in rows]
    assert [index.picture(number) for number in range(4)] == raw
    assert [row["image_id"] for row in rows] == [image_id(one) for one in raw]
    assert np.allclose(index.vector(range(4)), tiny_encoder.embed_images(raw), atol=1e-6)
    with pytest.raises(InputError, match="--encoder is missing: it embeds the pictures in"):
        opened(pictures, None, "folder")
    with pytest.raises(InputError, match="--encoder 'x' has no image tower"):
        opened(pictures, toy("x", None), "folder")


def test_a_folder_is_read_as_prepare_reads_it(
    pictures: Path, tower: EncoderUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, unusual file names, and columns whose names an index uses itself."""
    folder = tmp_path / "few"
    (folder / "kept").mkdir(parents=True)
    for number, name in enumerate(("1.png", "kept/2.data", "z.png")):
        shutil.copy(pictures / f"{number}.png", folder / name)
    (folder / "link.png").symlink_to(folder / "kept" / "2.data")
    (folder / "3").write_bytes((folder / "z.png").read_bytes() + b"another")
    Image.new("RGB", (16, 16), "teal").save(folder / "4.TIFF")
    columns = "image,caption,price,image_id,image_id_,name,file,position,size\n"
    rows_of = "./1.png,one,3,1,2,3,4,5,M\n3,three,,,,,,,\nz.png,last,7,1,2,3,4,5,M\ngone.png,x,,,,,,,\n"
    (folder / "captions.csv").write_text(columns + rows_of)
    monkeypatch.setattr(sources, "_BLOCK", 2)
    found = build(tmp_path / "index", opened(folder, tower, "folder"))
    index = ImageIndex.open(tmp_path / "index")
    rows = index.rows(range(found.rows)).to_pylist()
    assert {name: rows[4][name] for name in index.schema.names[6:]} == {
        "price": "7", "image_id_": "2", "name_": "3", "file_": "4", "position_": "5", "size_": "M",
    }  # fmt: skip
    assert index.picture(4) == (folder / "z.png").read_bytes()
    assert [(row["name"], row["caption"], row["price"]) for row in rows] == [
        ("1.png", "one", "3"), ("3", "three", None), ("4.TIFF", None, None), ("link.png", None, None),
        ("z.png", "last", "7"),
    ]  # fmt: skip
    assert [one.split(" is ")[0] for one in found.unusable] == [str(folder / "gone.png")]


def test_texts_beside_pictures_are_captions(tower: EncoderUnderTest, tmp_path: Path) -> None:
    for number, name in enumerate(("a.png", "deep/b.png", "c.png")):
        colour_image(tmp_path / "mine" / name, COLOURS[number], (16, 16))
    (tmp_path / "mine/a.txt").write_text("a red square\n")
    (tmp_path / "mine/deep/b.json").write_text('{"caption": "a green one", "shop": "north", "size": [1, 2]}')
    build(tmp_path / "index", opened(tmp_path / "mine", tower, "folder"))
    rows = ImageIndex.open(tmp_path / "index").rows(range(3)).to_pylist()
    assert [(row["name"], row["caption"], row["shop"]) for row in rows] == [
        ("a.png", "a red square", None), ("c.png", None, None), ("deep/b.png", "a green one", "north"),
    ]  # fmt: skip


def test_options_name_the_fields(pictures: Path, tower: EncoderUnderTest, tmp_path: Path) -> None:
    """A list of texts is one caption, and names are relative to `images` if only that has the first picture."""
    folder = tmp_path / "shop"
    shutil.copytree(pictures, folder / "images")
    (folder / "captions.jsonl").write_text(
        '{"photo": "0.png", "title": "Mug", "tags": ["red", "new"], "sku": 7}\n'
        '{"photo": "deep/3.png", "title": "Cup"}\n'
    )
    index = tmp_path / "index"

    def rows_of(place: Path, source: str, *numbers: int, **fields: str) -> list[dict[str, Any]]:
        build(index, opened(place, tower, source, **fields), replace=True)
        return list(ImageIndex.open(index).rows(numbers).to_pylist())

    for text, captions in (("tags", ["red, new", None]), ("{title}[: {tags}]", ["Mug: red, new", "Cup"])):
        rows = rows_of(folder, "folder", 0, 3, text=text, item="sku", image="photo")
        assert [row["caption"] for row in rows] == captions
        assert [(row["name"], row["item"], row["title"]) for row in rows] == [
            ("images/0.png", "7", "Mug"), ("images/deep/3.png", None, "Cup"),
        ]  # fmt: skip
    wrong = opened(folder, tower, "folder", text="{title}, {tags:.2f}", image="photo")
    found = build(index, wrong, replace=True)
    assert found.rows == 4
    assert any(reason.startswith(f"{folder}: the texts of line 1 (0.png): 'tags' is") for reason in found.unusable)
    raw = (pictures / "0.png").read_bytes()
    tar(tmp_path / "0.tar", {"a.png": raw, "a.json": b'{"tags": ["red", "new"], "sku": 7, "split": "odd"}'})
    (row,) = rows_of(tmp_path / "0.tar", "shards", 0, text="tags", item="sku")
    assert (row["caption"], row["item"]) == ("red, new", "7")
    write_vectors(tmp_path / "vectors", 0, drawn(1, dim=16), tags=[["red", "new"]], sku=[7], photo=["p"])
    (row,) = rows_of(tmp_path / "vectors", "embeddings", 0, text="tags", item="sku", image="photo")
    assert (row["caption"], row["item"], row["sku"], row["name"]) == ("red, new", "7", 7, "p")
    with pytest.raises(InputError, match="none for 'colour': correct --text, --item or --image"):
        rows_of(folder, "folder", text="colour", image="photo")


def test_the_bound_of_files_is_that_of_the_settings(pictures: Path, tower: EncoderUnderTest, tmp_path: Path) -> None:
    Image.effect_noise((900, 900), 90).convert("RGB").save(pictures / "large.png")
    size = (pictures / "large.png").stat().st_size
    assert size > 1_000_000
    for bound, rows in ((1, 4), (64, 5)):
        settings = reading({}).model_copy(update={"max_picture_mb": bound})
        found = build(tmp_path / f"{bound}", find_source("folder").open(str(pictures), tower, settings))
        assert found.rows == rows
        assert any("raise prepare.max_picture_mb" in reason for reason in found.unusable) == (bound == 1)


def test_shards_stay_packed(pictures: Path, tower: EncoderUnderTest, tmp_path: Path) -> None:
    raw = [(pictures / name).read_bytes() for name in ("0.png", "1.png", "2.png")]
    folder = tmp_path / "shards"
    folder.mkdir()
    tar(folder / "00000.tar", {"a.png": raw[0], "a.txt": b"red", "b.png": raw[1], "b.json": b'{"caption": "green"}'})
    tar(folder / "00001.tar", {"c.png": raw[2], "d.txt": b"alone", "e.jpg": b"no picture"})
    assert source_of(str(folder)) == source_of(str(folder / "{00000..00001}.tar")) == "shards"
    found = build(tmp_path / "index", opened(folder, tower, "shards"))
    assert found.rows == 3
    assert [one.split(" ")[0] for one in found.unusable] == ["00001.tar/d", "00001.tar/e"]
    index = ImageIndex.open(tmp_path / "index")
    assert index.rows(range(3))["caption"].to_pylist() == ["red", "green", None]
    assert index.rows([0])["name"].to_pylist() == ["00000.tar/a"]
    assert [index.picture(number) for number in range(3)] == raw


def test_own_embeddings_are_a_source(pictures: Path, tiny_encoder: Encoder, settings: Settings, tmp_path: Path) -> None:
    raw = [(pictures / name).read_bytes() for name in ("0.png", "1.png", "2.png", "deep/3.png")]
    data, kept = tmp_path / "data", [image_id(one) for one in raw]
    for split in SPLITS:
        rows: list[dict[str, Any]] = [
            {"id": "1", "image_id": kept[0], "caption": "red", "image": raw[0], "file": None, "size": None},
            {"id": "2", "image_id": kept[0], "caption": "crimson", "image": raw[0], "file": None, "size": None},
            {"id": "3", "image_id": kept[1], "caption": "green", "image": None, "file": str(pictures / "1.png"),
             "size": len(raw[1])},
        ]  # fmt: skip
        own = rows if split == "train" else [rows[0] | {"id": "4", "image_id": kept[2], "image": raw[2]}]
        PAIRS.write(data / "pairs" / f"{split}.parquet", {name: [row[name] for row in own] for name in own[0]})
    tiny_encoder.save(tmp_path / "base")
    embed.run(settings, data / "embeddings", data / "pairs", tmp_path / "base")
    assert source_of(str(data)) == "project"
    found = build(tmp_path / "index", opened(data, None, "project"))
    assert (found.rows, found.repeated) == (3, 2)
    index = ImageIndex.open(tmp_path / "index")
    rows = index.rows(range(3)).to_pylist()
    assert [(row["caption"], row["split"]) for row in rows] == [("red", "train"), ("green", "train"), ("red", "val")]
    assert [row["name"] for row in rows] == [kept[0], "1.png", kept[2]]
    assert [index.picture(number) for number in range(3)] == raw[:3]
    assert np.allclose(index.vector(range(3)), tiny_encoder.embed_images(raw[:3]), atol=1e-5)
    index.accept(encoder_under_test("any text side", Encoder.load(tmp_path / "base")))
    with pytest.raises(InputError, match="--encoder 'x' has bbbbbbbbbbbb: give an encoder of this project"):
        opened(data, toy("x", OTHER_TOWER), "project")


def test_vectors_with_their_metadata_bare_ones_and_columns_of_them(tmp_path: Path) -> None:
    folder, width = tmp_path / "vectors", pa.array(range(4), pa.int32())
    write_vectors(folder, 9, drawn(4).astype(np.float16), url=["a", "b", "c", "d"], width=width, size=["s"] * 4)
    write_vectors(folder, 10, drawn(4, 1).astype(np.float16), url=["e"] * 4, width=width, size=["s"] * 4)
    assert source_of(str(folder)) == "embeddings"
    build(tmp_path / "index", opened(folder))
    index = ImageIndex.open(tmp_path / "index")
    row = index.rows([4]).to_pylist()[0]
    assert (row["caption"], row["name"], row["url"], row["width"], row["size_"]) == ("caption 10 0", "e", "e", 0, "s")
    whole = np.concatenate([drawn(4), drawn(4, 1)]).astype(np.float16).astype(np.float32)
    assert np.allclose(index.vector(range(8)), unit(whole), atol=1e-6)
    for name in ("bare", "columns"):
        (tmp_path / name).mkdir()
    np.save(tmp_path / "bare" / "mine.npy", drawn(3))
    np.save(tmp_path / "bare" / "text_embeddings.npy", drawn(3, 1))
    pq.write_table(pa.table({"embedding": list(drawn(3)), "title": ["a", "b", "c"]}), tmp_path / "columns/0.parquet")
    assert build(tmp_path / "one", opened(tmp_path / "bare")).rows == 3
    build(tmp_path / "two", opened(tmp_path / "columns"))
    one, two = ImageIndex.open(tmp_path / "one"), ImageIndex.open(tmp_path / "two")
    assert [one.rows([2])[name].to_pylist() for name in ("name", "caption")] == [["mine.npy:2"], [None]]
    assert two.rows([2])["caption"].to_pylist() == ["c"]
    assert np.array_equal(one.vector(range(3)), two.vector(range(3)))


def test_hostile_vectors_and_metadata_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for number, (vectors, refusal) in enumerate((
        (np.arange(24).reshape(3, 8), "holds int64 of shape"),
        (np.array([[{}] * 8] * 3), r"img_emb_0\.npy is damaged"),
    )):  # fmt: skip
        write_vectors(tmp_path / str(number), 0, vectors)
        with pytest.raises(InputError, match=refusal) as raised:
            build(tmp_path / "index", opened(tmp_path / str(number)))
        assert "\n" not in str(raised.value)
    folder = tmp_path / "vectors"
    write_vectors(folder, 0, drawn(3))
    pq.write_table(pa.table({"caption": ["a", "b"]}), folder / "metadata/metadata_0.parquet")
    with pytest.raises(InputError, match=r"img_emb_0\.npy has 3 rows, .*metadata_0\.parquet has 2: write both again"):
        opened(folder)
    (folder / "metadata/metadata_0.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"metadata_0\.parquet is damaged"):
        opened(folder)
    (tmp_path / "ragged").mkdir()
    pq.write_table(pa.table({"embedding": [[1.0, 2.0], [1.0]]}), tmp_path / "ragged" / "0.parquet")
    with pytest.raises(InputError, match="rows of different width"):
        build(tmp_path / "index", opened(tmp_path / "ragged", toy(dim=2)))


def test_vectors_that_cannot_be_searched_are_left_out(tmp_path: Path) -> None:
    bad = [np.full((1, 8), value, np.float32) for value in (np.nan, np.inf, 0)]
    write_vectors(tmp_path / "vectors", 0, np.vstack([drawn(2), *bad, drawn(1, 1)]))
    found = build(tmp_path / "index", opened(tmp_path / "vectors"))
    where = tmp_path / "vectors" / "img_emb" / "img_emb_0.npy"
    assert found.unusable == [
        f"{where}: the vector of 'img_emb_0.npy:{row}' is zero or not finite: compute it again" for row in (2, 3, 4)
    ]
    index = ImageIndex.open(tmp_path / "index")
    assert index.rows(range(3))["caption"].to_pylist() == ["caption 0 0", "caption 0 1", "caption 0 5"]
    assert np.allclose(index.vector([2]), unit(drawn(1, 1)), atol=1e-6)


def test_unknown_and_ambiguous_sources_are_refused(pictures: Path, tmp_path: Path) -> None:
    np.save(pictures / "mine.npy", drawn(3))
    assert source_of(str(pictures)) == "embeddings"
    tar(pictures / "0.tar", {})
    with pytest.raises(InputError, match="may be embeddings or shards: choose one with --source"):
        source_of(str(pictures))
    with pytest.raises(InputError, match="--source 'shard' is unknown: did you mean 'shards'"):
        find_source("shard")


def test_another_index_is_a_source(tmp_path: Path) -> None:
    for name, vectors in (("first", drawn(1000)), ("second", np.vstack([drawn(3), drawn(20, 1)]))):
        write_vectors(tmp_path / "vectors" / name, 0, vectors, width=list(range(len(vectors))))
        build(tmp_path / name, opened(tmp_path / "vectors" / name))
    assert source_of(str(tmp_path / "first")) == "index"
    build(tmp_path / "index", opened(tmp_path / "first", None, "index"), "lance")
    found = append(tmp_path / "index", opened(tmp_path / "second", None, "index"))
    assert (found.rows, found.repeated) == (20, 3)
    index, first = ImageIndex.open(tmp_path / "index"), ImageIndex.open(tmp_path / "first")
    numbers = index.numbers()
    assert index.rows(numbers[:1000]).to_pylist() == first.rows(range(1000)).to_pylist()
    assert np.array_equal(index.vector(numbers[:1000]), first.vector(range(1000)))
    assert index.rows(numbers[-1:])["width"].to_pylist() == [22]
    with pytest.raises(InputError, match="encoder 'x' has image tower bbbbbbbbbbbb"):
        opened(tmp_path / "first", toy("x", OTHER_TOWER), "index")
