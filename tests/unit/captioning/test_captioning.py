"""A captioner that answers from the facts of drawn scenes: the right picture goes with each question and text."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from components.captioning.folder import CAPTIONS, QUARANTINE, PictureCaptions, caption_folder
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from components.core.settings import Counts, Prepare
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.data.sources import find_source
from components.data.world.description.evaluation_text import plain_query
from components.data.world.description.scenes import Scene, Split, draw_scenes
from components.data.world.drawing import draw
from components.validation.rules.world.checks import FactChecks

PICTURES, STORE = 6, "sqlite:///store.db"
FACTS = FactChecks()


class SeeingEngine:
    """Knows the scene of each picture by its bytes; `lies` are names of pictures about which it writes untrue texts."""

    model = "sees"

    def __init__(self, scenes: dict[str, tuple[str, Scene]], lies: Iterable[str] = (), die_after: int = 10**6) -> None:
        self.scenes, self.lies, self.die_after = scenes, set(lies), die_after
        self.asked: Counter[str] = Counter()

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for request in requests:
            if self.asked.total() == self.die_after:
                raise RuntimeError("killed")
            self.asked[request.task] += 1
            name, scene = self.scenes[content_hash(request.pictures[0].data)]
            said = self._write(name, scene) if request.task == "caption_picture" else self._check(request, scene)
            yield [Reply(request, said or None, None if said else "the model said nothing")]

    def _write(self, name: str, scene: Scene) -> str:
        others = [other for shown, other in self.scenes.values() if shown != name]
        described = others[0] if name in self.lies else scene
        texts = {key: plain_query(described, random.Random(key)) for key in ("caption", "query_1", "query_2")}
        absent = next(other.first.name for other in others if other.first.name not in scene.names)
        return f"Here it is:\n```json\n{json.dumps(texts | {'absent': absent})}\n```"

    def _check(self, request: Request, scene: Scene) -> str:
        question = request.chat[-1][1]
        texts = re.findall(r'"([^"]*)"', question.partition("Answer")[0])
        if "Does this picture show" in question:
            return "Yes." if texts[0] in scene.names else "No, it does not."
        return "Yes" if all(FACTS.find_fault(text, scene.to_json()) is None for text in texts) else "No"


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, Scene]]:
    """Drawn pictures in `pictures`, by the hash of their bytes."""
    monkeypatch.chdir(tmp_path)
    Path("pictures/below").mkdir(parents=True)
    drawn: dict[str, tuple[str, Scene]] = {}
    counts: dict[Split, int] = {"train": PICTURES, "val": 0, "test": 0}
    for number, (_, scene) in enumerate(draw_scenes(0, counts)):
        name = f"below/{number}.png" if number % 2 else f"{number}.png"
        encoded = draw(scene, str(number))
        Path("pictures", name).write_bytes(encoded)
        drawn[content_hash(encoded)] = name, scene
    return drawn


def _caption(engine: SeeingEngine) -> PictureCaptions:
    with closing(GenerationStore(STORE)) as store:
        return caption_folder(Path("pictures"), Path("pictures"), engine, store)


def _rows(name: str) -> list[dict[str, str]]:
    with Path("pictures", name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def test_every_text_is_true_of_its_picture_and_the_source_reads_it(scenes: dict[str, tuple[str, Scene]]) -> None:
    found = _caption(SeeingEngine(scenes))
    rows, of_name = _rows(CAPTIONS), dict(scenes.values())
    assert found.captioned == len({row["image"] for row in rows}) == PICTURES
    assert all(FACTS.find_fault(row["caption"], of_name[row["image"]].to_json()) is None for row in rows)
    assert {(row["kind"], row["written_by"]) for row in rows} <= {("caption", "sees"), ("query", "sees")}
    assert all(row["absent"] and row["absent"] not in of_name[row["image"]].names for row in rows)
    prepare = Prepare(source="folder", folder=Path("pictures"), counts=Counts(train=1, val=1, test=1))
    describe = find_source("folder").describe
    assert describe is not None
    assert describe(prepare).images == {"train": PICTURES}
    with pytest.raises(InputError, match=r"captions\.tsv exists: move it away"):
        _caption(SeeingEngine(scenes))


def test_untrue_texts_broken_pictures_and_answers_are_quarantined(scenes: dict[str, tuple[str, Scene]]) -> None:
    Path("pictures/9.jpg").write_bytes(b"\xff\xd8 no picture")
    Path("pictures/notes.txt").write_text("not a picture")
    found = _caption(SeeingEngine(scenes, lies=["0.png"]))
    assert (found.pictures, found.captioned) == (PICTURES + 1, PICTURES - 1)
    lost = {(row["image"], row["reason"]) for row in _rows(QUARANTINE)}
    assert {("9.jpg", "unreadable"), ("0.png", "untrue")} <= lost
    assert "0.png" not in {row["image"] for row in _rows(CAPTIONS)}
    assert f"of {PICTURES - 1} of {PICTURES + 1} pictures" in str(found)


def test_a_stopped_run_resumes_and_writes_nothing_before_its_end(scenes: dict[str, tuple[str, Scene]]) -> None:
    for more in (4, PICTURES - 1):
        with pytest.raises(RuntimeError, match="killed"):
            _caption(SeeingEngine(scenes, die_after=more))
        assert not Path("pictures", CAPTIONS).exists()
    engine = SeeingEngine(scenes)
    assert _caption(engine).captioned == PICTURES
    assert engine.asked.total() == 3 * PICTURES - (PICTURES + 3)


def test_a_model_that_does_not_answer_ends_the_run_in_one_line(scenes: dict[str, tuple[str, Scene]]) -> None:
    silent = SeeingEngine(scenes)
    silent._write = lambda _name, _scene: ""  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"write captions: 6 of 6 questions failed .*: run the command again"):
        _caption(silent)
    senseless = SeeingEngine(scenes)
    senseless._write = lambda _name, _scene: "I cannot see pictures."  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"no picture got a caption .*6 unanswered\): look at pictures/captions_q"):
        _caption(senseless)
    for wrong, message in (("none", "is not a folder"), ("empty", "has no pictures")):
        Path("empty").mkdir(exist_ok=True)
        with closing(GenerationStore(STORE)) as store, pytest.raises(InputError, match=message):
            caption_folder(Path(wrong), Path(wrong), silent, store)
