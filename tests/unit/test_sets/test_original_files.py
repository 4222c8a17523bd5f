"""Image sets in the files of their authors: tiny ones in the exact formats."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from components.core.system.errors import InputError
from components.test_sets.image_sets.image_set import ImageSet, image_sets
from components.test_sets.image_sets.reading import read_image_set
from components.test_sets.pictures import LazyPicture
from tests.support.toy_context import colour_image, toy_context

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def read(folder: Path, name: str, split: str = "test", **changes: Any) -> ImageSet:
    facts = image_sets()[name].model_copy(update=changes)
    return read_image_set(toy_context(folder, {}, allow_partial=True), facts, split)


def corners(found: ImageSet) -> list[Any]:
    """The top left pixel of each picture."""
    return [pixel(picture, (0, 0)) for picture in found.pictures]


def pixel(picture: LazyPicture, place: tuple[int, int]) -> Any:
    with picture.open() as image:
        return image.convert("RGB").getpixel(place)


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def planes(colour: tuple[int, int, int], side: int = 32) -> bytes:
    return b"".join(bytes([level]) * (side * side) for level in colour)


def test_cifar10_binary(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write(folder / "batches.meta.txt", "airplane\nautomobile\n\n")
    (folder / "test_batch.bin").write_bytes(b"\x01" + planes(RED) + b"\x00" + planes(BLUE))
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(bytes([number % 2]) + planes(GREEN))
    found = read(tmp_path, "cifar10", classes=2)
    assert (corners(found), found.labels.tolist()) == ([RED, BLUE], [1, 0])
    assert found.class_names == ["airplane", "automobile"]
    assert read(tmp_path, "cifar10", "train", classes=2).labels.tolist() == [1, 0, 1, 0, 1]


def test_cifar_rows_run_from_left_to_right(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write(folder / "batches.meta.txt", "airplane\nautomobile\n")
    red = bytearray(1024)
    red[1] = 255
    (folder / "test_batch.bin").write_bytes(b"\x00" + bytes(red) + bytes(2048))
    assert pixel(read(tmp_path, "cifar10", classes=2).pictures[0], (1, 0)) == RED


def test_cifar100_binary_has_the_fine_class(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    write(folder / "fine_label_names.txt", "apple\naquarium_fish\n")
    (folder / "test.bin").write_bytes(b"\x13\x01" + planes(RED))
    found = read(tmp_path, "cifar100", classes=2)
    assert (corners(found), found.labels.tolist(), found.class_names) == ([RED], [1], ["apple", "aquarium fish"])
    assert found.torchvision_names == ["apple", "aquarium_fish"]


def test_cifar_refuses_pickles_cut_files_and_other_classes(tmp_path: Path) -> None:
    write(tmp_path / "cifar-10-batches-py" / "test_batch", "")
    with pytest.raises(InputError, match=r"is a Python pickle, which could run code: fetch cifar-10-binary.tar.gz"):
        read(tmp_path, "cifar10")
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    with pytest.raises(InputError, match=r"test_batch.bin is missing"):
        read(tmp_path, "cifar10")
    (folder / "test_batch.bin").write_bytes(b"\x01" + planes(RED)[:-1])
    with pytest.raises(InputError, match=r"not a whole number of records of 3073 bytes"):
        read(tmp_path, "cifar10")
    (folder / "test_batch.bin").write_bytes(b"\x0a" + planes(RED))
    with pytest.raises(InputError, match=r"holds class 10 of 10"):
        read(tmp_path, "cifar10")


def idx(values: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


@pytest.mark.parametrize("folder", ["", "MNIST/raw"])
def test_mnist_packed_or_not(tmp_path: Path, folder: str) -> None:
    images = np.zeros((2, 28, 28), np.uint8)
    images[1] = 200
    write(tmp_path / folder / "x", "")
    (tmp_path / folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([7, 2], np.uint8)))
    found = read(tmp_path, "mnist")
    assert (corners(found), found.labels.tolist()) == ([(0, 0, 0), (200, 200, 200)], [7, 2])
    (tmp_path / folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([7], np.uint8)))
    with pytest.raises(InputError, match=r"2 images have 1 labels"):
        read(tmp_path, "mnist")
    (tmp_path / folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)[:-1]))
    with pytest.raises(InputError, match=r"is not an idx file of 3 dimensions"):
        read(tmp_path, "mnist")
    (tmp_path / folder / "t10k-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"cannot be unpacked"):
        read(tmp_path, "mnist")


def test_flowers_counts_images_and_classes_from_one(tmp_path: Path) -> None:
    for number, colour in enumerate([RED, GREEN, BLUE], 1):
        colour_image(tmp_path / "jpg" / f"image_{number:05}.jpg", colour)
    savemat(tmp_path / "imagelabels.mat", {"labels": np.array([[1, 102, 77]], np.uint8)})
    savemat(tmp_path / "setid.mat", {"trnid": [[1]], "valid": [[2]], "tstid": [[3, 2]]})
    found = read(tmp_path, "flowers102")
    assert [picture.name for picture in found.pictures] == ["image_00003.jpg", "image_00002.jpg"]
    assert found.labels.tolist() == [76, 101]
    assert (found.class_names or ())[76] == "passion flower"
    assert read(tmp_path, "flowers102", "train").labels.tolist() == [0]
    savemat(tmp_path / "setid.mat", {"tstid": [[4]]})
    with pytest.raises(InputError, match=r"setid.mat names images that imagelabels.mat lacks"):
        read(tmp_path, "flowers102")
    (tmp_path / "setid.mat").write_bytes(b"no MATLAB file")
    with pytest.raises(InputError, match=r"setid.mat is not a MATLAB file"):
        read(tmp_path, "flowers102")


def test_food101(tmp_path: Path) -> None:
    folder = tmp_path / "food-101"
    write(folder / "meta" / "classes.txt", "apple_pie\nwaffles\n")
    write(folder / "meta" / "test.txt", "waffles/12\napple_pie/7\n")
    colour_image(folder / "images" / "waffles" / "12.jpg", RED)
    with pytest.raises(InputError, match=r"apple_pie/7.jpg is missing"):
        read(tmp_path, "food101", classes=2)
    colour_image(folder / "images" / "apple_pie" / "7.jpg", BLUE)
    found = read(tmp_path, "food101", classes=2)
    assert (found.labels.tolist(), found.class_names) == ([1, 0], ["apple pie", "waffles"])
    assert found.torchvision_names == ["apple_pie", "waffles"]
    write(folder / "meta" / "test.txt", "../../secret/12\n")
    with pytest.raises(InputError, match=r"is outside"):
        read(tmp_path, "food101", classes=2)
    write(folder / "meta" / "test.txt", "soup/12\n")
    with pytest.raises(InputError, match=r"of class 'soup', which is unknown"):
        read(tmp_path, "food101", classes=2)


def test_pets_are_called_as_their_pictures(tmp_path: Path) -> None:
    rows = ["#Image CLASS-ID SPECIES BREED ID", "yorkshire_terrier_7 2 2 1", "Abyssinian_201 1 1 1"]
    write(tmp_path / "annotations" / "test.txt", "\n".join(rows))
    for name in ("yorkshire_terrier_7", "Abyssinian_201"):
        colour_image(tmp_path / "images" / f"{name}.jpg", RED)
    found = read(tmp_path, "pets", classes=2)
    assert (found.labels.tolist(), found.class_names) == ([1, 0], ["Abyssinian", "Yorkshire Terrier"])
    assert found.torchvision_names == ["Abyssinian", "Yorkshire Terrier"]
    write(tmp_path / "annotations" / "test.txt", "Abyssinian_201 1 1\n")
    with pytest.raises(InputError, match=r"row 0 has 3 columns instead of 4"):
        read(tmp_path, "pets", classes=2)
    write(tmp_path / "annotations" / "test.txt", "Abyssinian_201 1 1 1\nBengal_1 1 1 1\n")
    with pytest.raises(InputError, match=r"class 1 is both 'Abyssinian' and 'Bengal'"):
        read(tmp_path, "pets", classes=2)


def test_sun397_with_its_first_partition(tmp_path: Path) -> None:
    write(tmp_path / "SUN397" / "ClassName.txt", "/a/abbey\n/c/church/indoor\n")
    with pytest.raises(InputError, match=r"Testing_01.txt is missing"):
        read(tmp_path, "sun397", classes=2)
    write(tmp_path / "Testing_01.txt", "/c/church/indoor/sun_b.jpg\n/a/abbey/sun_a.jpg\n")
    colour_image(tmp_path / "SUN397" / "c" / "church" / "indoor" / "sun_b.jpg", RED)
    colour_image(tmp_path / "SUN397" / "a" / "abbey" / "sun_a.jpg", RED)
    found = read(tmp_path, "sun397", classes=2)
    assert (found.labels.tolist(), found.class_names) == ([1, 0], ["abbey", "church indoor"])
    assert found.torchvision_names == ["abbey", "church/indoor"]
    colour_image(tmp_path / "SUN397" / "a" / "abbey" / "sun_0.jpg", RED)
    whole = read(tmp_path, "sun397", "whole", classes=2, whole=3)
    assert [picture.name for picture in whole.pictures] == ["sun_0.jpg", "sun_a.jpg", "sun_b.jpg"]
    assert whole.labels.tolist() == [0, 0, 1]


def write_cub(folder: Path) -> None:
    birds = ("001.Black_footed_Albatross", "002.Laysan_Albatross")
    write(folder / "classes.txt", f"1 {birds[0]}\n2 {birds[1]}\n")
    write(folder / "images.txt", f"1 {birds[0]}/a.jpg\n2 {birds[1]}/b.jpg\n3 {birds[0]}/c.jpg\n")
    write(folder / "image_class_labels.txt", "1 1\n2 2\n3 1\n")
    write(folder / "train_test_split.txt", "1 1\n2 0\n3 0\n")
    for bird, name in ((0, "a"), (1, "b"), (0, "c")):
        colour_image(folder / "images" / birds[bird] / f"{name}.jpg", RED)


def test_cub_joins_its_files_by_id(tmp_path: Path) -> None:
    write_cub(tmp_path / "CUB_200_2011")
    found = read(tmp_path, "cub", classes=2)
    assert [picture.name for picture in found.pictures] == ["b.jpg", "c.jpg"]
    assert (found.labels.tolist(), found.class_names) == ([1, 0], ["Black footed Albatross", "Laysan Albatross"])
    assert found.torchvision_names == ["Black_footed_Albatross", "Laysan_Albatross"]
    assert [picture.name for picture in read(tmp_path, "cub", "train", classes=2).pictures] == ["a.jpg"]
    write(tmp_path / "CUB_200_2011" / "train_test_split.txt", "1 1\n2 0\n")
    with pytest.raises(InputError, match=r"train_test_split.txt names other images than images.txt"):
        read(tmp_path, "cub", classes=2)


def test_dtd_trains_on_its_training_and_validation_lists(tmp_path: Path) -> None:
    for name, rows in (
        ("test1", "banded/a.jpg\nzigzagged/b.jpg"),
        ("train1", "zigzagged/c.jpg"),
        ("val1", "banded/d.jpg"),
    ):
        write(tmp_path / "dtd" / "labels" / f"{name}.txt", rows)
        for row in rows.split():
            colour_image(tmp_path / "dtd" / "images" / row, RED)
    assert read(tmp_path, "dtd", classes=2).labels.tolist() == [0, 1]
    assert read(tmp_path, "dtd", "train", classes=2).labels.tolist() == [1, 0]


def test_aircraft_variants_keep_their_slashes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data / "variants.txt", "707-320\nF-16A/B\nCessna 172\n")
    write(data / "images_variant_test.txt", "0034309 F-16A/B\n1514522 Cessna 172\n")
    for number in ("0034309", "1514522"):
        colour_image(data / "images" / f"{number}.jpg", RED)
    found = read(tmp_path, "fgvc_aircraft", classes=3)
    assert (found.labels.tolist(), found.class_names) == ([1, 2], ["707-320", "F-16A/B", "Cessna 172"])


def test_stl10_runs_down_its_columns(tmp_path: Path) -> None:
    record = bytearray(3 * 96 * 96)
    record[1] = 255
    (tmp_path / "test_X.bin").write_bytes(record + planes(BLUE, 96))
    (tmp_path / "test_y.bin").write_bytes(b"\x02\x01")
    write(tmp_path / "class_names.txt", "airplane\nbird\n")
    found = read(tmp_path, "stl10", classes=2)
    assert pixel(found.pictures[0], (0, 1)) == RED
    assert (corners(found)[1], found.labels.tolist()) == (BLUE, [1, 0])
    (tmp_path / "test_y.bin").write_bytes(b"\x02")
    with pytest.raises(InputError, match=r"are not of the same images"):
        read(tmp_path, "stl10", classes=2)


def test_svhn_writes_zero_as_ten(tmp_path: Path) -> None:
    pixels = np.zeros((32, 32, 3, 2), np.uint8)
    pixels[:, :, 0, 1] = 255
    savemat(tmp_path / "test_32x32.mat", {"X": pixels, "y": np.array([[10], [3]], np.uint8)})
    found = read(tmp_path, "svhn")
    assert (corners(found), found.labels.tolist()) == ([(0, 0, 0), RED], [0, 3])
    savemat(tmp_path / "test_32x32.mat", {"X": pixels, "y": np.array([[11], [3]], np.uint8)})
    with pytest.raises(InputError, match=r"labels other than 1 to 10"):
        read(tmp_path, "svhn")
    savemat(tmp_path / "test_32x32.mat", {"X": pixels})
    with pytest.raises(InputError, match=r"lacks the array 'y'"):
        read(tmp_path, "svhn")


def test_gtsrb_needs_class_names(tmp_path: Path) -> None:
    header = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"
    write(tmp_path / "GT-final_test.csv", f"{header}\n00000.ppm;53;54;6;5;48;49;1\n")
    colour_image(tmp_path / "GTSRB" / "Final_Test" / "Images" / "00000.ppm", RED)
    colour_image(tmp_path / "GTSRB" / "Training" / "00000" / "00000_00000.ppm", RED)
    with pytest.raises(InputError, match=r"classnames.txt is missing"):
        read(tmp_path, "gtsrb", classes=2)
    write(tmp_path / "classnames.txt", "stop\nyield\n")
    found = read(tmp_path, "gtsrb", classes=2)
    assert (found.labels.tolist(), found.class_names) == ([1], ["stop", "yield"])
    assert read(tmp_path, "gtsrb", "train", classes=2).labels.tolist() == [0]
    write(tmp_path / "GT-final_test.csv", "Filename,ClassId\n00000.ppm,1\n")
    with pytest.raises(InputError, match=r"no columns Filename and ClassId"):
        read(tmp_path, "gtsrb", classes=2)


def test_cars(tmp_path: Path) -> None:
    kinds = [("fname", object), ("class", object)]
    savemat(tmp_path / "cars_test_annos_withlabels.mat", {"annotations": np.array([[("00001.jpg", 2)]], dtype=kinds)})
    names = np.empty((1, 2), dtype=object)
    names[0] = ["AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012"]
    write(tmp_path / "devkit" / "x", "")
    savemat(tmp_path / "devkit" / "cars_meta.mat", {"class_names": names})
    colour_image(tmp_path / "cars_test" / "00001.jpg", RED)
    found = read(tmp_path, "cars", classes=2)
    assert (found.labels.tolist(), (found.class_names or ())[1]) == ([1], "Ram C/V Cargo Van Minivan 2012")
    savemat(tmp_path / "cars_test_annos_withlabels.mat", {"annotations": np.array([[("00001.jpg",)]], dtype=kinds[:1])})
    with pytest.raises(InputError, match=r"have no fname and class: fetch the file with labels"):
        read(tmp_path, "cars", classes=2)
