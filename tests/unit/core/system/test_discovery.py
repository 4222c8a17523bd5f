"""Things are found by their file's name, and unknown names are answered with the known ones."""

from __future__ import annotations

import pytest

from components import methods
from components.core.system.discovery import file_names, find
from components.core.system.errors import InputError


def test_files_are_listed_without_the_skipped() -> None:
    assert "paraclip" in file_names(methods.__path__)
    assert "contract" in file_names(methods.__path__)
    assert "contract" not in file_names(methods.__path__, skip=("contract",))


def test_the_export_is_returned() -> None:
    assert find("components.methods", ["paraclip"], "paraclip", "METHOD", "method").name == "paraclip"


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"method 'paraclap' is unknown: did you mean 'paraclip'\? choose one of"):
        find("components.methods", ["paraclip", "semclip"], "paraclap", "METHOD", "method")
