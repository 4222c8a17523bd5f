"""Results of the leak guard of stage `prepare`: counts for cards and runs, and keys of published test sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from components.core.tables.files import content_hash
from components.core.tables.formats import read_record
from components.core.tables.records import PUBLISHED_PICTURES, PUBLISHED_TEXTS
from components.core.tables.table import Table
from components.data.leaks.keys import picture_key, text_key

FOLDER = Path("data/leaks")
COUNTS, TEXTS, PICTURES = "counts.json", "texts.parquet", "pictures.parquet"


class LeakCounts(BaseModel):
    """Numbers of pairs that were dropped because a published test set contains them.

    Attributes:
        benchmarks: the folder of the test sets; None if none was given.
        found: test set -> way (`name`, `content` or `text`) -> dropped pairs; one pair may count in several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmarks: str | None
    checked: list[str]
    unread: dict[str, str]
    found: dict[str, dict[str, int]]
    dropped: dict[str, int]

    @property
    def summary(self) -> str:
        """All counts in one line."""
        if self.benchmarks is None:
            return "pairs were not compared with published test sets (prepare.heldout_testsets_dir is not set)"
        split = " and ".join(f"{count} {split}" for split, count in sorted(self.dropped.items())) or "no"
        sets = ", ".join(
            f"{name}: {', '.join(f'{count} by {way}' for way, count in ways.items())}"
            for name, ways in self.found.items()
        )
        unread = "".join(f"; not compared: {name} ({why})" for name, why in self.unread.items())
        return (
            f"{split} pairs dropped that are in published test sets{f' ({sets})' if sets else ''}; "
            f"compared: {', '.join(self.checked) or 'none'}{unread}"
        )

    def tags(self) -> dict[str, str]:
        """Tags of an MLflow run."""
        counts = {f"leaks.{name}.{way}": str(n) for name, ways in self.found.items() for way, n in ways.items()}
        dropped = {f"leaks.dropped.{split}": str(count) for split, count in self.dropped.items()}
        # MLflow takes tags of 5,000 characters.
        return {"leaks": self.summary[:5000]} | counts | dropped


def read_counts(folder: Path = FOLDER) -> LeakCounts | None:
    """The counts; None if stage `prepare` has not written them."""
    path = folder / COUNTS
    if not path.is_file():
        return None
    return read_record(LeakCounts, path, "run `dvc repro -f prepare`")


def _read_keys(table: Table, path: Path) -> dict[bytes, str]:
    if not path.exists():
        return {}
    rows = table.read(path)
    return dict(zip(rows.column("key").to_pylist(), rows.column("test_set").to_pylist(), strict=True))


@dataclass(frozen=True)
class TestSetKeys:
    """Keys of the texts and pictures of published test sets -> one of the test sets that contain them."""

    __test__ = False

    texts: Mapping[bytes, str] = field(default_factory=dict)
    pictures: Mapping[bytes, str] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path = FOLDER) -> TestSetKeys:
        """The keys written by stage `prepare`; empty if it has compared none."""
        return TestSetKeys(
            _read_keys(PUBLISHED_TEXTS, folder / TEXTS), _read_keys(PUBLISHED_PICTURES, folder / PICTURES)
        )

    def find(self, texts: Iterable[str], pictures: Iterable[bytes] = ()) -> str | None:
        """A test set that contains one of the texts or encoded pictures, if any."""
        sets = [self.texts.get(key) for text in texts if self.texts and (key := text_key(text)) is not None]
        sets += [self.pictures.get(picture_key(picture)) for picture in pictures if self.pictures]
        return next(filter(None, sets), None)

    def hashes(self) -> dict[str, str]:
        """Hashes of the keys, for a checkpoint's fingerprint; without empty sets."""
        kinds = {"published texts": self.texts, "published pictures": self.pictures}
        return {name: content_hash(*sorted(keys)) for name, keys in kinds.items() if keys}
