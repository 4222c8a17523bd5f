"""Arrays in MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.core.errors import InputError


def mat_arrays(path: Path, *names: str) -> list[Any]:
    """The arrays called `names`; records become objects whose attributes are their fields.

    Raises:
        InputError: the file is missing, damaged, or lacks an array.
    """
    from scipy.io import loadmat

    if not path.is_file():
        raise InputError(f"{path} is missing: put it there as its authors publish it")
    try:
        found = loadmat(path, variable_names=names, squeeze_me=True, struct_as_record=False)
    except Exception as error:
        # scipy's reader raises whatever a damaged byte leads to.
        raise InputError(f"{path} is no MATLAB file ({str(error)[:80]}): fetch it again") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path} lacks the array '{missing[0]}': fetch it again")
    return [found[name] for name in names]
