"""Image sets in the files of their authors: tiny ones in the exact formats."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from components.core.system.errors import InputError
from components.data.test_sets.files import LazyPicture
from research.image_sets.image_set import ImageSet, image_sets
from research.image_sets.reading import read_image_set
from tests.support.toy_context import toy_context
from tests.unit.data.test_sets.writing import write_files

Colour = tuple[int, int, int]
Files = dict[str, str | bytes | Colour | None]
"""File -> text, bytes, the colour of a picture, or None for a missing file."""
RED, GREEN, BLUE, BLACK, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (200, 200, 200)


def planes(colour: Colour, side: int = 32) -> bytes:
    return b"".join(bytes([level]) * (side * side) for level in colour)


def second_value_red(side: int) -> bytes:
    """A black picture whose second value of the red plane is 255."""
    return bytes([0, 255]) + bytes(3 * side * side - 2)


def idx(values: Any) -> bytes:
    array = np.array(values, np.uint8)
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mat(**arrays: Any) -> bytes:
    savemat(buffer := io.BytesIO(), arrays)
    return buffer.getvalue()


def cars(*row: Any) -> bytes:
    kinds = [("fname", object), ("class", object)][: len(row)]
    return mat(annotations=np.array([[row]], dtype=kinds))


CIFAR = "cifar-10-batches-bin"
DIGITS = [np.full((28, 28), level) for level in (0, 200)]
SVHN = np.stack([np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), RED, np.uint8)], axis=3)
BIRDS = ("001.Black_footed_Albatross", "002.Laysan_Albatross")
BREEDS, SPECIES = "Abyssinian, Yorkshire Terrier", "Black footed Albatross, Laysan Albatross"
CAR_NAMES = np.array([["AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012"]], dtype=object)
GTSRB = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n00000.ppm;53;54;6;5;48;49;1\n"
SETS: dict[str, Files] = {
    "cifar10": {
        f"{CIFAR}/batches.meta.txt": "airplane\nautomobile\n\n",
        f"{CIFAR}/test_batch.bin": b"\x01" + planes(RED) + b"\x00" + second_value_red(32),
        **{f"{CIFAR}/data_batch_{number}.bin": bytes([number % 2]) + planes(GREEN) for number in range(1, 6)},
    },
    "cifar100": {
        "cifar-100-binary/fine_label_names.txt": "apple\naquarium_fish\n",
        "cifar-100-binary/test.bin": b"\x13\x01" + planes(RED),
    },
    "mnist": {"t10k-images-idx3-ubyte.gz": gzip.compress(idx(DIGITS)), "t10k-labels-idx1-ubyte": idx([7, 2])},
    "stl10": {
        "test_X.bin": second_value_red(96) + planes(BLUE, 96),
        "test_y.bin": b"\x02\x01",
        "class_names.txt": "airplane\nbird\n",
    },
    "svhn": {"test_32x32.mat": mat(X=SVHN, y=[[10], [3]])},
    "flowers102": {
        **{f"jpg/image_{number:05}.jpg": RED for number in (1, 2, 3)},
        "imagelabels.mat": mat(labels=[[1, 102, 77]]),
        "setid.mat": mat(trnid=[[1]], valid=[[2]], tstid=[[3, 2]]),
    },
    "food101": {
        "food-101/meta/classes.txt": "apple_pie\nwaffles\n",
        "food-101/meta/test.txt": "waffles/12\napple_pie/7\n",
        **{f"food-101/images/{name}.jpg": RED for name in ("waffles/12", "apple_pie/7")},
    },
    "pets": {
        "annotations/test.txt": "#Image CLASS-ID SPECIES BREED ID\nyorkshire_terrier_7 2 2 1\nAbyssinian_201 1 1 1",
        **{f"images/{name}.jpg": RED for name in ("yorkshire_terrier_7", "Abyssinian_201")},
    },
    "sun397": {
        "SUN397/ClassName.txt": "/a/abbey\n/c/church/indoor\n",
        "Testing_01.txt": "/c/church/indoor/sun_b.jpg\n/a/abbey/sun_a.jpg\n",
        **{f"SUN397/{name}.jpg": RED for name in ("c/church/indoor/sun_b", "a/abbey/sun_a", "a/abbey/sun_0")},
    },
    "cub": {
        "CUB_200_2011/classes.txt": f"1 {BIRDS[0]}\n2 {BIRDS[1]}\n",
        "CUB_200_2011/images.txt": f"1 {BIRDS[0]}/a.jpg\n2 {BIRDS[1]}/b.jpg\n3 {BIRDS[0]}/c.jpg\n",
        "CUB_200_2011/image_class_labels.txt": "1 1\n2 2\n3 1\n",
        "CUB_200_2011/train_test_split.txt": "1 1\n2 0\n3 0\n",
        **{f"CUB_200_2011/images/{BIRDS[bird]}/{name}.jpg": RED for bird, name in ((0, "a"), (1, "b"), (0, "c"))},
    },
    "dtd": {
        "dtd/labels/test1.txt": "banded/a.jpg\nzigzagged/b.jpg",
        "dtd/labels/train1.txt": "zigzagged/c.jpg",
        "dtd/labels/val1.txt": "banded/d.jpg",
        **{f"dtd/images/{name}.jpg": RED for name in ("banded/a", "zigzagged/b", "zigzagged/c", "banded/d")},
    },
    "fgvc_aircraft": {
        "data/variants.txt": "707-320\nF-16A/B\nCessna 172\n",
        "data/images_variant_test.txt": "0034309 F-16A/B\n1514522 Cessna 172\n",
        **{f"data/images/{number}.jpg": RED for number in ("0034309", "1514522")},
    },
    "gtsrb": {
        "GT-final_test.csv": GTSRB,
        "GTSRB/Final_Test/Images/00000.ppm": RED,
        "GTSRB/Training/00000/00000_00000.ppm": RED,
        "classnames.txt": "stop\nyield\n",
    },
    "cars": {
        "cars_test_annos_withlabels.mat": cars("00001.jpg", 2),
        "devkit/cars_meta.mat": mat(class_names=CAR_NAMES),
        "cars_test/00001.jpg": RED,
    },
}
CLASSES = {"mnist": 10, "svhn": 10, "flowers102": 102, "fgvc_aircraft": 3}
"""Classes of the sets that have other than two."""


def read(folder: Path, name: str, split: str = "test", **changes: Any) -> ImageSet:
    facts = image_sets()[name].model_copy(update={"classes": CLASSES.get(name, 2), **changes})
    return read_image_set(toy_context(folder, {}, allow_partial=True), facts, split)


def pixel(picture: LazyPicture, place: tuple[int, int] = (0, 0)) -> Any:
    with picture.open() as image:
        return image.convert("RGB").getpixel(place)


READ: list[tuple[str, str, str | list[Colour], list[int], str, str]] = [
    ("cifar10", "test", [RED, BLACK], [1, 0], "airplane, automobile", ""),
    ("cifar10", "train", [GREEN] * 5, [1, 0, 1, 0, 1], "", ""),
    ("cifar100", "test", [RED], [1], "apple, aquarium fish", "apple, aquarium_fish"),
    ("mnist", "test", [BLACK, GREY], [7, 2], "", ""),
    ("stl10", "test", [BLACK, BLUE], [1, 0], "airplane, bird", ""),
    ("svhn", "test", [BLACK, RED], [0, 3], "", ""),
    ("flowers102", "test", "image_00003.jpg image_00002.jpg", [76, 101], "", ""),
    ("flowers102", "train", "image_00001.jpg", [0], "", ""),
    ("food101", "test", "12.jpg 7.jpg", [1, 0], "apple pie, waffles", "apple_pie, waffles"),
    ("pets", "test", "yorkshire_terrier_7.jpg Abyssinian_201.jpg", [1, 0], BREEDS, BREEDS),
    ("sun397", "test", "sun_b.jpg sun_a.jpg", [1, 0], "abbey, church indoor", "abbey, church/indoor"),
    ("sun397", "whole", "sun_0.jpg sun_a.jpg sun_b.jpg", [0, 0, 1], "", ""),
    ("cub", "test", "b.jpg c.jpg", [1, 0], SPECIES, SPECIES.replace(" ", "_").replace(",_", ", ")),
    ("cub", "train", "a.jpg", [0], "", ""),
    ("dtd", "test", "a.jpg b.jpg", [0, 1], "", ""),
    ("dtd", "train", "c.jpg d.jpg", [1, 0], "", ""),
    ("fgvc_aircraft", "test", "0034309.jpg 1514522.jpg", [1, 2], "707-320, F-16A/B, Cessna 172", ""),
    ("gtsrb", "test", "00000.ppm", [1], "stop, yield", ""),
    ("gtsrb", "train", "00000_00000.ppm", [0], "", ""),
    ("cars", "test", "00001.jpg", [1], ", ".join(CAR_NAMES[0]), ""),
]
"""Set, split, names of picture files (else corner pixels), labels, class names, and torchvision's spelling of these."""


@pytest.mark.parametrize(("name", "split", "pictures", "labels", "classes", "torchvision"), READ)
def test_pictures_labels_and_class_names(
    tmp_path: Path,
    name: str,
    split: str,
    pictures: str | list[Colour],
    labels: list[int],
    classes: str,
    torchvision: str,
) -> None:
    write_files(tmp_path, SETS[name])
    found = read(tmp_path, name, split, whole=3)
    if isinstance(pictures, str):
        assert [picture.name for picture in found.pictures] == pictures.split()
    else:
        assert [pixel(picture) for picture in found.pictures] == pictures
    assert found.labels.tolist() == labels
    assert not classes or ", ".join(found.class_names or ()) == classes
    assert not torchvision or ", ".join(found.torchvision_names or ()) == torchvision


def test_cifar_stores_rows_stl10_columns_and_mnist_may_be_where_torchvision_has_it(tmp_path: Path) -> None:
    for name, number, place in (("cifar10", 1, (1, 0)), ("stl10", 0, (0, 1))):
        write_files(tmp_path, SETS[name])
        assert pixel(read(tmp_path, name).pictures[number], place) == RED, name
    write_files(tmp_path / "MNIST" / "raw", SETS["mnist"])
    assert read(tmp_path, "mnist").labels.tolist() == [7, 2]


DAMAGES: list[tuple[str, Files, str]] = [
    ("cifar10", {**dict.fromkeys(SETS["cifar10"]), "cifar-10-batches-py/test_batch": ""},
     r"is a Python pickle, which could run code: fetch cifar-10-binary.tar.gz"),
    ("cifar10", {f"{CIFAR}/test_batch.bin": None}, r"test_batch.bin is missing"),
    ("cifar10", {f"{CIFAR}/test_batch.bin": planes(RED)}, r"not a whole number of records of 3073 bytes"),
    ("cifar10", {f"{CIFAR}/test_batch.bin": b"\x0a" + planes(RED)}, r"holds class 10 of 2"),
    ("mnist", {"t10k-labels-idx1-ubyte": idx([7])}, r"2 images have 1 labels"),
    ("mnist", {"t10k-images-idx3-ubyte.gz": gzip.compress(idx(DIGITS)[:-1])}, r"is not an idx file of 3 dimensions"),
    ("mnist", {"t10k-images-idx3-ubyte.gz": b"no gzip"}, r"cannot be unpacked"),
    ("stl10", {"test_y.bin": b"\x02"}, r"are not of the same images"),
    ("svhn", {"test_32x32.mat": mat(X=SVHN, y=[[11], [3]])}, r"labels other than 1 to 10"),
    ("svhn", {"test_32x32.mat": mat(X=SVHN)}, r"lacks the array 'y'"),
    ("flowers102", {"setid.mat": mat(tstid=[[4]])}, r"setid.mat names images that imagelabels.mat lacks"),
    ("flowers102", {"setid.mat": b"no MATLAB file"}, r"setid.mat is not a MATLAB file"),
    ("food101", {"food-101/images/apple_pie/7.jpg": None}, r"apple_pie/7.jpg is missing"),
    ("food101", {"food-101/meta/test.txt": "../../secret/12\n"}, r"is outside"),
    ("food101", {"food-101/meta/test.txt": "soup/12\n"}, r"of class 'soup', which is unknown"),
    ("pets", {"annotations/test.txt": "Abyssinian_201 1 1\n"}, r"row 0 has 3 columns instead of 4"),
    ("pets", {"annotations/test.txt": "Abyssinian_201 1 1 1\nBengal_1 1 1 1\n"},
     r"class 1 is both 'Abyssinian' and 'Bengal'"),
    ("sun397", {"Testing_01.txt": None}, r"Testing_01.txt is missing"),
    ("cub", {"CUB_200_2011/train_test_split.txt": "1 1\n2 0\n"}, r"names other images than images.txt"),
    ("gtsrb", {"classnames.txt": None}, r"classnames.txt is missing"),
    ("gtsrb", {"GT-final_test.csv": "Filename,ClassId\n00000.ppm,1\n"}, r"no columns Filename and ClassId"),
    ("cars", {"cars_test_annos_withlabels.mat": cars("00001.jpg")}, r"have no fname and class: fetch the file with"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, damage: Files, message: str) -> None:
    write_files(tmp_path, SETS[name] | damage)
    with pytest.raises(InputError, match=message):
        read(tmp_path, name)
