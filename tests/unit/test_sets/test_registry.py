"""What benchmarks test on is told in full: all that they show an encoder, read by their own readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.benchmarks.published import find_published, published_benchmarks
from components.benchmarks.scoring.encoding.published_context import CLIP, Preparation, PublishedContext
from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.data.leaks.keys import text_key
from components.test_sets.image_sets.image_set import image_sets
from components.test_sets.pictures import LazyPicture
from components.test_sets.readers import all_test_sets, cc_neg, load_test_sets
from components.test_sets.readers.sts import SICK, STS_B
from components.test_sets.readers.sugar_crepe import SUBSETS, TYPES
from tests.support.toy_context import colour_image, toy_context

NO_TEST_SET = {
    "analogies": "words, not sentences",
    "caption_differences": "the user's own texts",
    "caption_quality": "the user's own texts",
    "comparison_distance": "authors' texts about no test picture",
    "difference_captioning_embedded": "scenes drawn when they are asked for",
    "difference_cifar100_size": "the test split that zero_shot_cifar100 tells",
    "text_to_image": "class names",
    "text_to_image_clip_score": "class names",
}


@dataclass
class _Watched(PublishedContext):
    """A context that notes what it is asked to show."""

    shown: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)

    def texts(self, texts: Sequence[str]) -> Features:
        self.shown += texts
        return super().texts(texts)

    def images(self, pictures: Sequence[LazyPicture], preparation: Preparation = CLIP) -> Features:
        self.pictures += [picture.name.partition("[")[0] for picture in pictures]
        return super().images(pictures, preparation)


def _json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _coco(folder: Path) -> None:
    rows = [{"filename": f"COCO_val2014_00000000000{n}.jpg", "split": split, "sentences": [{"raw": f"{split} {n}"}]}
            for n, split in ((1, "test"), (2, "test"), (3, "restval"))]  # fmt: skip
    _json(folder / "dataset_coco.json", {"images": rows})
    for row in rows:
        colour_image(folder / "val2014" / str(row["filename"]), (255, 0, 0))


def _flickr(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "flickr30k_test_karpathy.txt").write_text("image,caption\n10.jpg,one, two\n11.jpg,three\n")
    for name in ("10.jpg", "11.jpg"):
        colour_image(folder / "flickr30k-images" / name, (0, 9, 0))


def _crepe(folder: Path) -> None:
    for subset in (one for subsets in TYPES.values() for one in subsets):
        _json(folder / f"{subset}.json", {"0": _triplet(subset, "caption", "negative_caption")})
    colour_image(folder / "images" / "000000000001.jpg", (0, 9, 0))


def _crepe_pp(folder: Path) -> None:
    for subset in SUBSETS:
        _json(folder / f"{subset}.json", [_triplet(subset, "caption", "caption2", "negative_caption")])


def _triplet(subset: str, *columns: str) -> dict[str, str]:
    return {"filename": "000000000001.jpg", **{column: f"{subset} {column}" for column in columns}}


def _aro(folder: Path) -> None:
    box = {"bbox_x": 0, "bbox_y": 0, "bbox_w": 8, "bbox_h": 8, "image_path": "7.jpg"}
    texts = {"true_caption": "the horse eats", "false_caption": "the grass eats"}
    _json(folder / "visual_genome_relation.json", [{**box, **texts, "relation_name": "eating"}])
    colour_image(folder / "images" / "7.jpg", (0, 9, 0))


def _cc_neg(folder: Path) -> None:
    names = [f"00000000{number}.jpg" for number in range(3)]
    rows = {"image_path": names, "caption": ["a", "b", "c"], "negated": ["no, a", "no b", "no c"]}
    folder.mkdir(parents=True)
    pq.write_table(pa.table(rows), folder / cc_neg.TABLE)
    lines = [f"{number},text {number},no text {number},words {number}" for number in range(20)]
    (folder / cc_neg.CSV).write_text("\n".join(["image_number,caption,negation,paraphrased", *lines]))
    for number in range(20):
        colour_image(folder / cc_neg.IMAGES / f"{number:09d}.jpg", (number, 9, 0))


def _coco_p(folder: Path) -> None:
    _json(folder / "coco_p.json", [{"image_id": 1, "query": "a dog", "paraphrase": "one hound"}])
    for place in ("val2017", "unlabeled2017"):
        colour_image(folder / place / f"00000000000{len(place) % 2}.jpg", (9, 9, 0))


def _val2017(folder: Path) -> None:
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in (1, 2)]
    told = [{"id": number, "image_id": 1 + number % 2, "caption": f"caption {number}"} for number in range(4)]
    _json(folder / "annotations" / "captions_val2017.json", {"images": images, "annotations": told})
    for number in (1, 2):
        colour_image(folder / "val2017" / f"{number}.jpg", (number, 9, 0))


def _spot(folder: Path) -> None:
    _json(folder / "annotations" / "test.json", [{"img_id": "4", "sentences": ["a car is gone", " "]}])
    for name in ("4.png", "4_2.png"):
        colour_image(folder / "resized_images" / name, (9, len(name), 0))


def _sts(folder: Path) -> None:
    (folder / STS_B).parent.mkdir(parents=True)
    (folder / STS_B).write_text("a\tb\t2012\t1\t2.5\tA man.\tA woman.\n")
    (folder / SICK).parent.mkdir(parents=True)
    (folder / SICK).write_text("pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\tA kid.\tA child.\t4.5\n")


WRITERS: dict[str, Callable[[Path], None]] = {
    "coco_retrieval": _coco, "flickr30k_retrieval": _flickr, "sugar_crepe": _crepe, "sugar_crepe_pp_text": _crepe_pp,
    "vg_relation": _aro, "cc_neg": _cc_neg, "cc_neg_semclip": _cc_neg, "coco_p": _coco_p, "coco_pe": _coco_p,
    "coco_val2017_retrieval": _val2017, "modality_gap": _val2017,
    "spot_the_difference": _spot, "stsb": _sts, "sickr": _sts,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_all_that_is_shown_is_told(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cc_neg, "TESTED", 2)
    benchmark = find_published(name)
    folder = tmp_path / benchmark.folder
    WRITERS[name](folder)
    toy = toy_context(folder, {})
    context = _Watched(toy.under_test, folder, allow_partial=True, image_features=toy.image_features)
    benchmark.score(context)
    told = [found.tested for found in load_test_sets(tmp_path) if found.tested is not None]
    keys = {text_key(text) for tested in told for text in tested.texts}
    assert context.shown
    assert {text_key(text) for text in context.shown} <= keys
    assert set(context.pictures) <= {path.name for tested in told for path in tested.files}


def test_what_is_only_trained_on_there_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cc_neg, "TESTED", 2)
    _coco(tmp_path / "coco")
    _cc_neg(tmp_path / "cc_neg")
    told = {found.name: found.tested for found in load_test_sets(tmp_path)}
    assert told["coco_retrieval"] is not None
    assert sorted(told["coco_retrieval"].texts) == ["test 1", "test 2"]
    assert told["cc_neg"] is not None
    assert {path.name for path in told["cc_neg"].files} == {"000000001.jpg", "000000002.jpg"}


def test_pictures_of_image_sets_are_told_with_their_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "eurosat" / "test"
    for number, name in enumerate(image_sets()["eurosat"].class_folders or ()):
        colour_image(folder / name / "1.png", (number, 0, 0))
    found = {one.name: one for one in load_test_sets(tmp_path)}["zero_shot_eurosat"]
    assert found.tested is not None, found.fault
    encoded = {picture.encoded() for picture in found.tested.pictures if picture.encoded}
    assert encoded == {path.read_bytes() for path in folder.rglob("*.png")}


def test_a_set_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    _aro(tmp_path / "aro")
    (tmp_path / "aro" / "visual_genome_relation.json").write_text("[")
    found = {one.name: one for one in load_test_sets(tmp_path)}["vg_relation"]
    assert found.tested is None
    assert "visual_genome_relation.json is damaged" in found.fault


def test_a_folder_without_test_sets_has_none_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert list(load_test_sets(tmp_path)) == []
    with pytest.raises(InputError, match=r"gone does not exist: .* set prepare\.heldout_testsets_dir to null"):
        list(load_test_sets(tmp_path / "gone"))


def test_every_benchmark_tells_its_test_set_or_shares_a_folder_with_one_that_does() -> None:
    known = published_benchmarks()
    told = {test_set.folder for test_set in all_test_sets()}
    assert {name for name, benchmark in known.items() if benchmark.folder not in told} == set(NO_TEST_SET)


def test_all_sets_of_a_folder_are_read_without_an_encoder(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        folder = tmp_path / find_published(name).folder
        if not folder.exists():
            write(folder)
    shared = {"coco_pe", "coco_val2017_retrieval", "modality_gap"}
    assert {one.name for one in load_test_sets(tmp_path) if not one.fault} >= set(WRITERS) - shared
