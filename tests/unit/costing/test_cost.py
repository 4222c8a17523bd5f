"""What each stage takes grows with its work, and by the rates that are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.costing import speeds
from components.costing.cost import Cost, Costing, Prices
from components.costing.rates import Rates, load_rates
from components.costing.towers import Speed, base_encoder, time_towers

STAGES = [
    "prepare",
    "base",
    "embed",
    "synthesize@paraphrase_1",
    "validate@paraphrases",
    "train@paraclip",
    "evaluate@paraclip",
]
SPEED = Speed(texts=1000, images=500, parameters=7_000_000, trained=1_000_000, dim=128)


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., dict[str, Cost]]:
    """Costs where nothing was made yet, on towers that do a thousand texts and 500 images in a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speeds, "time_towers", lambda *_args, **_named: SPEED)
    raw_params["synthesize"] |= {"store": f"sqlite:///{tmp_path}/store.db", "replay": None}
    raw_params["base"] |= {"source": "scratch", "model": "cliptune-tiny"}

    def make(stages: list[str] = STAGES, rates: Rates | None = None, prices: Prices | None = None) -> dict[str, Cost]:
        settings = Settings.model_validate(raw_params)
        return {found.stage: found for found in Costing(settings, rates or load_rates(), prices).of(stages)}

    return make


def test_time_is_work_by_the_rates(cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]) -> None:
    found, rates = cost(), load_rates().stages
    raw_params["methods"]["paraclip"]["epochs"] *= 2
    raw_params["prepare"]["counts"]["train"] *= 2
    more = cost()
    work = {stage: (found[stage].seconds or 0) - rates[stage.partition("@")[0]].start_s for stage in found}
    grown = {stage: (more[stage].seconds or 0) - rates[stage.partition("@")[0]].start_s for stage in more}
    ratios = {stage: grown[stage] / work[stage] for stage in STAGES}
    # 41,400 pairs for 21,400; 4,800 questions and texts of 1,000 test pictures as before.
    near_two = pytest.approx(41_400 / 21_400)
    assert ratios == pytest.approx(
        {
            "prepare": near_two.expected, "base": 2, "embed": near_two.expected, "synthesize@paraphrase_1": 1,
            "validate@paraphrases": 1, "train@paraclip": 2, "evaluate@paraclip": 1,
        },
        rel=0.02,
    )  # fmt: skip


def test_a_method_with_a_frozen_image_tower_sends_texts_alone_through_towers(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    raw_params["methods"]["paraclip"] |= {"epochs": 1, "batch_size": 100}
    stage = "train@paraclip"
    frozen, rate = cost([stage])[stage], load_rates().stages["train"]
    # 4,800 rows of three texts, a thousand texts a second.
    assert frozen.seconds == pytest.approx(rate.start_s + 4800 * rate.row_us / 1e6 + 3 * 4800 / 1000)
    raw_params["methods"]["paraclip"] |= {"image_tower": "trained"}
    trained = cost([stage])[stage]
    assert (trained.seconds or 0) - (frozen.seconds or 0) == pytest.approx(3 * 4800 / 500)


def test_given_rates_stand_for_the_towers_here(cost: Callable[..., dict[str, Cost]]) -> None:
    faster = load_rates().model_copy(update={"trained_texts_per_second": 1e12, "embedded_images_per_second": 1e12})
    found = cost(rates=faster)
    assert found["train@paraclip"].seconds == pytest.approx(load_rates().stages["train"].start_s, rel=0.1)
    assert found["embed"].seconds == pytest.approx(load_rates().stages["embed"].start_s, rel=0.1)


def test_a_fitted_base_sends_a_picture_through_its_frozen_image_tower_once(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    fit = {
        "epochs": 6,
        "batch_size": 256,
        "lr": 0.00005,
        "projection_lr": 0.001,
        "warmup_steps": 0,
        "weight_decay": 0.01,
    }
    raw_params["base"] |= {"source": "timm", "scratch": None, "fit": fit}
    found, start, pairs = cost(["base"])["base"], load_rates().stages["base"].start_s, 20_000
    assert (found.seconds or 0) - start == pytest.approx(6 * pairs / SPEED.texts + pairs / SPEED.images)


def test_a_base_that_is_only_loaded_is_not_trained(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    assert raw_params["base"]["scratch"]
    raw_params["base"] |= {"source": "open_clip", "pretrained": "openai"}
    found = cost(["base"])["base"]
    assert (found.work, found.seconds) == ("loads cliptune-tiny", load_rates().stages["base"].start_s)


def test_a_server_has_no_time_without_a_rate_and_a_price_where_prices_are_given(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    raw_params["synthesize"]["models"]["student"] = {
        "engine": "server",
        "urls": ["http://127.0.0.1:9/v1"],
        "model": "m",
    }
    stage = "synthesize@paraphrase_1"
    asked = cost([stage], prices=Prices(2.0, 10.0))[stage]
    assert asked.seconds is None
    assert any("give `server` with --rates" in note for note in asked.notes)
    assert asked.price == pytest.approx((2 * asked.tokens_in + 10 * asked.tokens_out) / 1e6)
    assert asked.tokens_out == asked.questions * 40
    rates = load_rates().model_copy(update={"server": load_rates().embedded})
    assert cost([stage], rates=rates)[stage].seconds is not None


def test_every_entry_of_methods_and_stages_of_the_study_have_a_cost(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    stages = [
        *(f"train@{name}" for name in raw_params["methods"]),
        "seed@1",
        "repeat@1-paraclip",
        "claims@papers",
        "compare",
    ]
    found = cost(stages)
    assert list(found) == stages
    assert all((one.seconds or 0) > 0 and one.memory > 0 for one in found.values())
    both = (found["train@paraclip"].seconds or 0, found["repeat@1-paraclip"].seconds or 0)
    assert both[1] > both[0]
    assert any("tries on each batch" in note for note in found["train@leaf"].notes)


def test_towers_are_timed_as_they_are_trained(settings: Settings) -> None:
    tiny = settings.model_copy(update={"base": settings.base.model_copy(update={"model": "cliptune-tiny"})})
    encoder = base_encoder(tiny)
    whole = time_towers(encoder, tiny, images=True)
    assert whole.trained == whole.parameters == sum(one.numel() for one in encoder.model.parameters())
    assert whole.texts > 0
    assert whole.images > 0
    encoder.model.requires_grad_(False)
    frozen = time_towers(encoder, tiny, images=False)
    assert frozen.trained == 0
    # Without a backward pass.
    assert frozen.texts > whole.texts
