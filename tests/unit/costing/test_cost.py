"""The cost of each stage grows with its work, at the rates of the package or of a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.costing.cost import _VIT_B_32_IMAGE, _VIT_B_32_TEXT, Cost, Costing, Rates, load_rates
from components.encoders.adapter.architecture import build, model_config

STAGES = ["prepare", "base", "embed", "synthesize@paraphrase_1", "validate@paraphrases"]
STAGES += ["train@paraclip", "evaluate@paraclip"]
MODEL = build(model_config("cliptune-tiny"))
IMAGE = sum(weights.numel() for name, weights in MODEL.named_parameters() if name.startswith("visual."))
TEXT = sum(weights.numel() for weights in MODEL.transformer.parameters()) + 2 * 128 + 128 * 128 + 1
SPEEDS = {"trained_texts_per_second": 1000 * TEXT / _VIT_B_32_TEXT}
SPEEDS |= {"embedded_images_per_second": 500 * IMAGE / _VIT_B_32_IMAGE}
RATES = load_rates().model_copy(update=SPEEDS)
"""The base's towers compute 1,000 texts and 500 images in a second."""
START = {name: rate.start_s for name, rate in RATES.stages.items()}
FIT = {"epochs": 6, "batch_size": 256, "lr": 5e-5, "projection_lr": 0.001, "warmup_steps": 0, "weight_decay": 0.01}


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., dict[str, Cost]]:
    """Costs of a project without any output."""
    monkeypatch.chdir(tmp_path)
    raw_params["synthesize"] |= {"store": f"sqlite:///{tmp_path}/store.db", "cached_answers": None}
    raw_params["base"] |= {"source": "scratch", "model": "cliptune-tiny"}

    def make(stages: list[str], rates: Rates = RATES, prices: tuple[float, float] | None = None) -> dict[str, Cost]:
        costing = Costing(Settings.model_validate(raw_params), rates, prices)
        return {found.stage: found for found in costing.of(stages)}

    return make


def _work(costs: dict[str, Cost]) -> dict[str, float]:
    """Seconds without the start of the stage."""
    return {stage: (cost.seconds or 0) - START[stage.partition("@")[0]] for stage, cost in costs.items()}


def test_time_is_work_by_the_rates(cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]) -> None:
    before = _work(cost(STAGES))
    raw_params["methods"]["paraclip"]["epochs"] *= 2
    raw_params["prepare"]["counts"]["train"] *= 2
    after = _work(cost(STAGES))
    # 41,400 pairs instead of 21,400; still 4,800 questions and texts of 1,000 test pictures.
    pairs = 41_400 / 21_400
    assert {stage.partition("@")[0]: after[stage] / before[stage] for stage in STAGES} == pytest.approx(
        {"prepare": pairs, "base": 2, "embed": pairs, "synthesize": 1, "validate": 1, "train": 2, "evaluate": 1},
        rel=0.02,
    )


def test_only_what_is_trained_costs_training_time(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    raw_params["methods"]["paraclip"] |= {"epochs": 1, "batch_size": 100}
    (frozen,) = _work(cost(["train@paraclip"])).values()
    assert frozen == pytest.approx(4800 * RATES.stages["train"].row_us / 1e6 + 3 * 4800 / 1000)
    raw_params["methods"]["paraclip"] |= {"image_tower": "trained"}
    (trained,) = _work(cost(["train@paraclip"])).values()
    assert trained - frozen == pytest.approx(3 * 4800 / 500)
    for base, work, seconds in (
        ({"source": "open_clip", "pretrained": "openai"}, "loads cliptune-tiny", 0),
        ({"source": "timm", "scratch": None, "fit": FIT}, "120,000 samples", 6 * 20_000 / 1000 + 20_000 / 500),
    ):
        raw_params["base"] |= base
        found = cost(["base"])
        assert found["base"].work == work
        assert _work(found)["base"] == pytest.approx(seconds)


def test_a_server_has_a_time_only_with_a_rate_and_a_price_only_with_prices(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    server = {"engine": "server", "urls": ["http://127.0.0.1:9/v1"], "model": "m"}
    raw_params["synthesize"]["llms"]["student"] = server
    stage = "synthesize@paraphrase_1"
    priced = cost([stage], prices=(2.0, 10.0))[stage]
    assert priced.seconds is None
    assert any("give `server` with --rates" in note for note in priced.notes)
    assert priced.price == pytest.approx((2 * priced.tokens_in + 10 * priced.tokens_out) / 1e6)
    assert priced.tokens_out == priced.questions * 40
    assert cost([stage], rates=RATES.model_copy(update={"server": RATES.embedded}))[stage].seconds is not None


def test_every_entry_of_methods_and_stages_of_the_study_have_a_cost(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    stages = [f"train@{name}" for name in raw_params["methods"]]
    stages += ["seed@1", "repeat@1-paraclip", "repeat_mix@1-x", "claims@papers", "compare"]
    found = cost(stages)
    assert list(found) == stages
    assert all((value.seconds or 0) > 0 and value.memory > 0 for value in found.values())
    assert (found["repeat@1-paraclip"].seconds or 0) > (found["train@paraclip"].seconds or 0)
    assert any("tries for each batch" in note for note in found["train@leaf"].notes)


def test_rates_of_a_file_replace_those_of_the_package(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "machine: eight GPUs\nserver: {tokens_in_per_second: 90000, tokens_out_per_second: 9000}\n"
        "stages:\n  validate: {start_s: 1, row_us: 2, memory_gb: 3, row_memory_bytes: 4, row_disk_bytes: 5}\n"
    )
    rates, usual = load_rates(file), load_rates()
    assert (rates.machine, rates.stages["validate"].row_us) == ("eight GPUs", 2)
    assert rates.stages["train"] == usual.stages["train"]
    assert rates.server is not None
    assert rates.server.seconds(180_000, 9000) == 3
    assert usual.server is None
    for text, fault in {
        "trained_text_per_second: 3": "'trained_text_per_second': did you mean 'trained_texts_per_second'?",
        "similarities_per_second: 0": "key 'similarities_per_second': Input should be greater than 0",
        "server: {": "is not valid YAML: line 1",
        "[1]": "has no keys",
    }.items():
        file.write_text(text)
        with pytest.raises(InputError, match=rf"{re.escape(str(file))}.*{re.escape(fault)}"):
            load_rates(file)
