from __future__ import annotations

from collections.abc import Callable

import pytest

from components.core.files import file_hash
from components.core.settings import Settings
from components.evaluation.results import Folders
from components.report.page import page
from components.report.page.page import trace_origin, without_secrets


def test_code_data_protocols_packages_and_parameters_are_named(
    folders: Folders, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "git_commit", lambda: "abc-dirty")
    found = trace_origin(make_settings(), "retrieval=1 swaps=2", folders)
    assert (found.commit, found.dirty) == ("abc", True)
    assert found.protocols == {"retrieval": "1", "swaps": "2"}
    assert found.data[str(folders.test_pairs)] == file_hash(folders.test_pairs)
    # Pairs, paraphrase queries, caption queries, labels, swaps and caption ratings.
    assert len(found.data) == 6
    assert found.packages["torch"][0].isdigit()
    assert "primary: paraphrased_retrieval/ao_at_2" in found.params


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"store": "postgresql://me:hidden@host/db"}, {"store": "postgresql://***@host/db"}),
        ({"store": "postgresql://host/db?password=hidden&x=1"}, {"store": "postgresql://host/db?password=***&x=1"}),
        ({"models": [{"api_key": "hidden", "max_tokens": 4}]}, {"models": [{"api_key": "***", "max_tokens": 4}]}),
        ({"token": "", "tokenizer": "clip-bpe"}, {"token": "", "tokenizer": "clip-bpe"}),
        ({"store": "sqlite:///state/generations.db"}, {"store": "sqlite:///state/generations.db"}),
    ],
)
def test_secrets_are_not_shown(given: object, kept: object) -> None:
    assert without_secrets(given) == kept
