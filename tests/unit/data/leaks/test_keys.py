"""Which names, pictures and texts count as the same."""

from __future__ import annotations

from components.data.leaks.keys import name_key, text_key

SAME = (
    ("coco/COCO_val2014_000000391895.jpg", "x/train2017/000000391895.jpg", "val2017/000000391895.JPG",
     "data/coco/000000391895.jpg", "mscoco_2014/images/000000391895.jpg"),
    ("pictures/1000268201_693b08cb0e.jpg", "flickr30k-images/1000268201.jpg", "flickr8k/images/1000268201.png"),
    ("VG_100K/2407890.jpg", "VG_100K_2/2407890.jpg", "visual_genome/2407890.jpg", "gqa/images/2407890.jpg"),
    ("cc3m_subset_images_extracted_final/000012345.jpg", "cc-neg/cc3m_subset_images/12345.jpg"),
    ("a/ILSVRC2012_val_00000001.JPEG", "b/ilsvrc2012_val_00000001.jpg"),
    # Samples of shards, and clip-retrieval's metadata of them, have no endings.
    ("00000.tar/COCO_val2014_000000391895", "COCO_val2014_000000391895", "0.tar/val2017/000000391895"),
    ("00000.tar/1000268201_693b08cb0e", "0.tar/flickr30k/1000268201", "1000268201_693b08cb0e.jpg"),
    ("0.tar/VG_100K/2407890", "VG_100K/2407890"),
)  # fmt: skip
AMBIGUOUS = (
    "pictures/0001.jpg", "images/000000391895.jpg", "shards/000012345.jpg", "images/2407890.jpg", "coco/1.jpg",
    "shop/1000268201.jpg", "val2017.jpg", "", "coco/391895.txt.d/a", "00000.tar/000012345",
    "flickr30k-00000.tar/000036979", "gqa/00000.tar/002407890", "coco-00000.tar/000000391895", "val2017/0.tar/12",
)  # fmt: skip


def test_names_of_one_published_picture_have_one_key_and_other_names_none() -> None:
    keys = {names: {name_key(path) for path in names} for names in SAME}
    assert not [names for names, found in keys.items() if len(found) != 1 or None in found]
    assert not [path for path in AMBIGUOUS if name_key(path) is not None]
    owners = ("val2017/000002407890.jpg", "VG_100K/2407890.jpg", "flickr30k-images/2407890.jpg",
              "cc3m_subset_images/002407890.jpg")  # fmt: skip
    assert len({name_key(path) for path in owners}) == len(owners)


def test_text_counts_by_its_letters() -> None:
    assert text_key("A man -- rides\ta HORSE!") == text_key("a man rides a horse")
    assert text_key("a man rides a horse") != text_key("a man rides a house")
    assert text_key(" ... ") is None
