"""Stanford Cars: `cars_test_annos_withlabels.mat`, `devkit/cars_train_annos.mat` and `devkit/cars_meta.mat`.

Records of `annotations` have `fname` and `class`, counted from 1; `class_names` is the list. Pictures are in
`cars_test/` and `cars_train/`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.mat_files import mat_arrays
from components.core.errors import InputError

_ANNOTATIONS = {"test": "cars_test_annos_withlabels.mat", "train": "devkit/cars_train_annos.mat"}


def _find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    found = first_existing(folder, "devkit", "stanford_cars/devkit")
    return None if found is None or not (found.parent / f"cars_{split}").is_dir() else found.parent


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    source = path / _ANNOTATIONS[split]
    (names,) = mat_arrays(path / "devkit" / "cars_meta.mat", "class_names")
    (records,) = mat_arrays(source, "annotations")
    names = [str(name) for name in np.atleast_1d(names)]
    try:
        rows = [(str(one.fname), int(getattr(one, "class"))) for one in np.atleast_1d(records)]
    except (AttributeError, TypeError, ValueError):
        raise InputError(f"{source}: its records have no fname and class: fetch the file with labels") from None
    chosen = [(file, names[number - 1] if 1 <= number <= len(names) else str(number)) for file, number in rows]
    return listed(source, path / f"cars_{split}", chosen, names)


LAYOUT = Layout(
    "the authors' files (devkit/, cars_test_annos_withlabels.mat, cars_test/ and cars_train/)", _find, _read
)
