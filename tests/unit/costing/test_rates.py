"""Rates come with the package; a file of the user's own lies over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.system.errors import InputError
from components.costing.cost import load_rates


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "cluster.yaml"


def test_what_a_file_says_counts_and_the_rest_stays(own: Path) -> None:
    own.write_text(
        "machine: eight GPUs\ntrained_texts_per_second: 40000\n"
        "server: {tokens_in_per_second: 90000, tokens_out_per_second: 9000}\n"
        "stages:\n  validate: {start_s: 1, row_us: 2, memory_gb: 3, row_memory_bytes: 4, row_disk_bytes: 5}\n"
    )
    rates, usual = load_rates(own), load_rates()
    assert (rates.machine, rates.trained_texts_per_second) == ("eight GPUs", 40000)
    assert rates.server is not None
    assert rates.server.seconds(180_000, 9000) == 3
    assert rates.stages["validate"].row_us == 2
    assert rates.stages["train"] == usual.stages["train"]
    assert usual.server is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "trained_text_per_second: 3",
            "unknown key 'trained_text_per_second': did you mean 'trained_texts_per_second'?",
        ),
        ("similarities_per_second: 0", "key 'similarities_per_second': Input should be greater than 0"),
        ("server: {", "is not valid YAML: line 1"),
        ("[1]", "has no keys"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(own: Path, text: str, told: str) -> None:
    own.write_text(text)
    with pytest.raises(InputError) as caught:
        load_rates(own)
    assert str(caught.value).startswith(str(own))
    assert told in str(caught.value)
