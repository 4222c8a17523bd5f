"""Benchmarks that run at a small size in seconds; speed is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import differences, explorer, ingest, speedrun, store
from benchmarks.paraphrase_checks import run
from benchmarks.paraphrase_labels import Labelled, hidden, shown
from benchmarks.query_expansion import EXPANSIONS, expansions
from benchmarks.test_set_agreement import agreement
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from components.core.system.profiles import settings_with
from components.data.world.description.scenes import Scene, draw_scenes


def _explorer(folder: Path) -> dict[str, Any]:
    found = explorer.measure(folder, rows=2000, dim=64, kind="lance")
    assert found["recall_at_10_1m"] > 0.99
    assert 0.02 < found["memory_gb_1m"] < 2
    return found


def _ingest(folder: Path) -> dict[str, Any]:
    found = ingest.measure(folder, pictures=40, embedded=70, model="cliptune-tiny", rounds=1)
    assert 0.05 < found["peak_memory_gb"] < 64
    return found


def _store(folder: Path) -> dict[str, Any]:
    with store.stores("sqlite", folder) as urls:
        found = store.measure(*urls, folder, rows=700, group=64)
    assert found["overhead_us_per_row"] == pytest.approx(found["look_up_us_per_row"] + found["add_us_per_row"])
    assert 0 < found["peak_rss_mb_after_a_tenth"] <= found["peak_rss_mb_after_filling"] <= found["peak_rss_mb"]
    return found


@pytest.mark.parametrize(
    ("measured", "positive"),
    [
        (_explorer, ("p95_ms_100k_exact", "p95_ms_1m", "build_vectors_per_second", "disk_gb_1m")),
        (_ingest, ("prepare_images_per_second", "prepare_speedup_two_processes", "embed_share_of_tower")),
        (_store, ("export_rows_per_s",)),
    ],
)
def test_figures_are_positive_and_json(
    measured: Any, positive: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without Flickr8k, as on most machines.
    monkeypatch.setattr(ingest, "FLICKR", tmp_path / "absent")
    found = measured(tmp_path)
    assert found == json.loads(json.dumps(found))
    assert all(found[name] > 0 for name in positive)


def test_differences_written_by_rule_are_true_of_their_scenes_in_their_order() -> None:
    scenes = [scene for _, scene in draw_scenes(3, {"train": 200, "val": 0, "test": 0})]
    facts, count, checked = [scene.to_json() for scene in scenes], 400, 0

    def sizes(scene: Scene) -> dict[str, str]:
        return {thing.name: thing.size for thing in (scene.first, scene.second) if thing is not None}

    for first, second, text in zip(*differences._drawn(facts, count, seed=0), strict=True):
        one, other = scenes[first], scenes[second]
        if "behind" in text.casefold():
            assert text.index(one.colour) < text.rindex(other.colour)
            assert one.colour != other.colour
            checked += 1
        elif "larger" in text or "smaller" in text:
            named = [name for name in sizes(one) if f" {name} " in text and name in sizes(other)]
            assert any((sizes(one)[name], sizes(other)[name]) == ("large", "small") for name in named)
            checked += 1
    assert checked > count / 3


class Rewriter:
    """Every attempt has another answer, but the last repeats the one before; counts requests."""

    model = "rewriter"
    requests = 0

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for request in requests:
            self.requests += 1
            text = request.chat[-1][1].rpartition(": ")[2]
            yield [Reply(request, f"{text} again {min(request.attempt, EXPANSIONS - 2)}")]


def test_query_expansions_are_requested_once_for_each_text_and_repeated_answers_count_once(tmp_path: Path) -> None:
    answers, engine = GenerationStore(f"sqlite:///{tmp_path}/store.db"), Rewriter()
    found = expansions(["a dog", "a cat", "a dog"], engine, answers)
    assert found == {text: [f"{text} again 0", f"{text} again 1"] for text in ("a dog", "a cat")}
    assert expansions(["a dog"], engine, answers) == {"a dog": found["a dog"]}
    assert engine.requests == 2 * EXPANSIONS
    answers.close()


CAPTION = "A dog with two red balls runs on the beach ."
TEXTS = st.text(st.characters(categories=("Lu", "Ll", "Zs", "Po"), max_codepoint=127), max_size=40)


@given(TEXTS, TEXTS)
def test_a_hidden_text_is_shown_again(text: str, caption: str) -> None:
    plain = " ".join(word if word.isupper() else word.lower() for word in text.split(" "))
    assert shown(hidden(plain, caption), caption) == plain


def test_every_check_of_the_table_is_scored() -> None:
    rows: list[tuple[str, str, str, Any]] = [
        ("paraphrase_1", CAPTION, "Two red balls are with a dog that runs on the beach.", "good"),
        ("paraphrase_2", "A dog runs.", "A dog runs.", "bad"),
        ("paraphrase_2", "Two red balls.", "A few crimson toys.", "bad"),
    ]
    labelled = [Labelled("1.jpg#0", row[0], CAPTION, *row[1:], "" if row[3] == "good" else "repeats") for row in rows]
    found = run(labelled, settings_with("flickr8k"), lambda answers, _settings: np.array([False, True, False]))
    assert found["judge"] == {
        "judge": {"bad_let_through": 1, "good_stopped": 0}, "all, and judge": {"bad_let_through": 0, "good_stopped": 0}
    }  # fmt: skip
    one = {"bad_let_through": 1, "good_stopped": 0}
    assert [found["checks"][name] for name in ("copies", "lost_number", "few_new_words")] == [one] * 3
    assert found["together"] == {"bad_let_through": 0, "good_stopped": 0}
    assert found["tried"]["few_new_words >= 1"] == one
    assert "fault" not in found["checks"]


def test_two_test_sets_agree_about_the_order_of_encoders() -> None:
    clear, unclear = np.linspace(0.4, 0.6, 100), np.tile([0.0, 1.0], 50)
    first = {"base": clear, "better": clear + 0.2, "worse": clear - 0.2}
    assert agreement(first, first) == {"pairs": 3, "alike": 3, "clear": 3, "clear_alike": 3}
    turned = {"base": clear, "better": clear - 0.1, "worse": clear - 0.2}
    assert agreement(first, turned) == {"pairs": 3, "alike": 2, "clear": 3, "clear_alike": 2}
    noisy = {"base": clear, "better": unclear + 0.01, "worse": clear - 0.2}
    assert agreement(first, noisy)["clear"] == 2


def test_a_speedrun_below_its_goal_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def timed(clone: Path, profile: str) -> tuple[float, str]:
        found = clone / "reports" / "metrics" / f"{profile}.json"
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(json.dumps({"metrics": {speedrun.METRIC: {"value": 0.4}}}))
        return 2.0, profile

    monkeypatch.setattr(speedrun, "timed", timed)
    monkeypatch.setattr(speedrun, "gflops", lambda: 100.4)
    monkeypatch.chdir(Path(__file__).parents[2])
    speedrun.main("best", 40.0)
    record = json.loads(capsys.readouterr().out)
    assert (record["minutes"], record["ao_at_10"], record["gflops"], len(record["commit"])) == (2.0, 40.0, 100, 40)
    with pytest.raises(SystemExit):
        speedrun.main("best", 40.1)
    assert "AO@10 is 40.0, below 40.1: this run does not count" in capsys.readouterr().err
