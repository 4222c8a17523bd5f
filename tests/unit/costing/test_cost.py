"""Costs of stages at the rates of the package or of a file, and counts of questions without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from components.captions.generating.engines import engine_of
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS
from components.costing.cost import _VIT_B_32_OPERATIONS, _VIT_B_32_TEXT, Cost, Costing
from components.costing.questions import TaskQuestions, count_questions
from components.costing.rates import Rates, load_rates
from components.encoders.adapter.architecture import build
from components.encoders.adapter.language_tower import from_config, packaged_model
from components.encoders.adapter.model_configs import model_config

STAGES = ["prepare", "base", "embed", "synthesize@paraphrase_1", "validate@paraphrases"]
STAGES += ["train@paraclip", "evaluate@paraclip"]
MODEL = build(model_config("cliptune-tiny"))
with FlopCounterMode(display=False) as counter, torch.no_grad():
    MODEL.visual(torch.empty(1, 3, 64, 64))
TEXT = sum(weights.numel() for weights in MODEL.transformer.parameters()) + 2 * 128 + 128 * 128 + 1
MINILM = sum(
    weights.numel() for name, weights in from_config(packaged_model()).named_parameters() if "embedding" not in name
)
SPEEDS = {"trained_texts_per_second": 1000 * TEXT / _VIT_B_32_TEXT}
SPEEDS |= {"embedded_images_per_second": 500 * counter.get_total_flops() / _VIT_B_32_OPERATIONS}
SPEEDS |= {"trained_text_us": 0, "embedded_image_us": 0, "layer_outputs_per_second": 1e18}
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
    # The table of people's paraphrases, before `prepare` has written it.
    raw_params["methods"]["paraclip"] |= {"train_data": "data/pairs/people_paraphrases.parquet"}
    assert cost(["train@paraclip"])["train@paraclip"].work == "20,000 samples of 3 texts"
    for base, work, seconds in (
        ({"source": "open_clip", "pretrained": "openai"}, "loads cliptune-tiny", 0),
        # The text tower is all-MiniLM-L6-v2.
        (
            {"source": "timm", "scratch": None, "fit": FIT},
            "120,000 samples",
            6 * 20_000 / 1000 * MINILM / TEXT + 20_000 / 500,
        ),
    ):
        raw_params["base"] |= base
        found = cost(["base"])
        assert found["base"].work == work
        assert _work(found)["base"] == pytest.approx(seconds)


def test_all_models_of_a_step_and_pictures_of_neighbours_are_counted(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    methods: dict[str, Any] = raw_params["methods"]
    common = {"epochs": 1, "batch_size": 100, "train_data": "data/validated", "image_tower": "frozen"}

    def tried(method: str, **given: Any) -> tuple[float, Cost]:
        methods["tried"] = common | {"method": method} | given
        found = cost(["train@tried"])
        return _work(found)["train@tried"], found["train@tried"]

    def texts(found: Cost) -> str:
        return found.work.partition(" samples of ")[2]

    rows = int(tried("negclip")[1].work.partition(" ")[0].replace(",", ""))
    # Image, caption and hard negative, and the neighbour's.
    assert texts(tried("negclip")[1]) == "4 texts"
    assert texts(tried("negclip", hard_images=False)[1]) == "2 texts"
    assert texts(tried("conclip")[1]) == texts(tried("conclip", distractors=False)[1]) == "2 texts"
    frozen, trained = (tried("negclip", image_tower=tower)[0] for tower in ("frozen", "trained"))
    assert trained - frozen == pytest.approx(3 * 2 * rows / 500)
    # A forward pass of the base, of the texts and of the pictures that train.
    assert tried("negclip", retention=1.0)[0] - frozen == pytest.approx(4 * rows / 1000 / 3)
    kept = tried("negclip", retention=1.0, image_tower="trained")[0]
    assert kept - trained == pytest.approx(4 * rows / 1000 / 3 + 2 * rows / 500)
    # Its tower and the base's see each caption.
    adapter, found = tried("query_adapter")
    assert adapter > int(found.work.partition(" ")[0].replace(",", "")) * 2 / 1000 / 3
    language = tried("lm_text_tower", strategy="frozen")[0]
    assert tried("proclip", strategy="frozen")[0] > language
    # The language model of READ-CLIP, which is many times the tiny tower.
    without = tried("negclip", hard_images=False)[0]
    assert tried("read_clip")[0] > without + rows / 1000 * 134_515_008 / TEXT / 2
    more = tried("read_clip")[1].memory - tried("negclip", hard_images=False)[1].memory
    assert more == pytest.approx(4 * 134_515_008)
    inside = {"parts": {"negclip": {}, "read_clip": {}}}
    assert tried("joint", **inside)[0] > tried("read_clip")[0]


def test_a_joint_run_of_the_bases_tower_is_no_guess(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    entry = {"epochs": 1, "batch_size": 100, "train_data": "data/validated", "image_tower": "frozen"}
    raw_params["methods"] |= {"one": entry | {"method": "paraclip"}, "several": entry | {"method": "joint"}}
    raw_params["methods"]["several"] |= {"parts": {"paraclip": {}}}
    one, several = cost(["train@one", "train@several"]).values()
    assert several.memory == one.memory
    assert not any("guess" in note for note in several.notes)
    raw_params["train"]["validate_every"] = None
    raw_params["methods"]["several"]["parts"] = {"lm_text_tower": {}}
    (language,) = cost(["train@several"]).values()
    assert language.notes == ()
    assert (language.seconds or 0) > (several.seconds or 0)


def test_smaller_patches_take_longer(cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]) -> None:
    times = {}
    for model in ("ViT-B-32", "ViT-B-16"):
        raw_params["base"] |= {"source": "open_clip", "pretrained": "openai", "model": model}
        times[model] = _work(cost(["embed"]))["embed"]
    # 196 patches instead of 49, and the same parameters.
    assert times["ViT-B-16"] / times["ViT-B-32"] == pytest.approx(4, rel=0.05)


def test_given_vectors_are_not_computed(cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]) -> None:
    (pictures,) = _work(cost(["embed"])).values()
    raw_params["prepare"] |= {"source": "embeddings", "folder": "data/mine"}
    found = cost(["embed"])
    assert found["embed"].work == "21,400 vectors"
    assert pictures - _work(found)["embed"] == pytest.approx(21_400 / 500)


def test_towers_whose_layers_write_much_take_longer(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    added = {}
    for model in ("ViT-B-32", "RN50"):
        raw_params["base"] |= {"source": "open_clip", "pretrained": "openai", "model": model}
        slow = RATES.model_copy(update={"layer_outputs_per_second": 1e9})
        added[model] = (_work(cost(["embed"], slow))["embed"] - _work(cost(["embed"]))["embed"]) / 21_400
    # Millions of numbers per picture, at a billion a second.
    assert added == pytest.approx({"ViT-B-32": 0.0061, "RN50": 0.0380}, rel=0.01)


def test_pictures_with_several_captions_count_once(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    raw_params["prepare"]["counts"] = {"train": 1000, "val": 1, "test": 1}
    raw_params["base"] |= {"source": "timm", "scratch": None, "fit": FIT}
    assert [found.work for found in cost(["base", "embed"]).values()] == ["6,000 samples", "1,002 pictures"]
    ids = [str(number) for number in range(1000)]
    pictures = [f"picture {number // 5}" for number in range(1000)]
    PAIRS.write(Path("data/pairs/train.parquet"), {"id": ids, "image_id": pictures, "caption": ids})
    assert [found.work for found in cost(["base", "embed"]).values()] == ["1,200 samples", "202 pictures"]


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
    rates = RATES.model_copy(update={"server": RATES.local})
    unjudged = cost([stage], rates=rates)[stage]
    raw_params["synthesize"]["tasks"]["paraphrase_1"]["judge_llm"] = "student"
    judged = cost([stage], rates=rates)[stage]
    assert judged.seconds > unjudged.seconds is not None
    assert any(f"{2 * judged.questions:,} questions to 'student'" in note for note in judged.notes)


def test_kinds_of_test_queries_that_the_data_set_has_cost_nothing(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any], tmp_path: Path
) -> None:
    raw_params["test_set"] = {"llm": next(iter(raw_params["synthesize"]["llms"])), "paraphrases": 3}
    (folder := tmp_path / "data" / "evaluation").mkdir(parents=True)
    whole = cost(["test_set"])["test_set"].questions
    (folder / "negations.parquet").touch()
    assert cost(["test_set"])["test_set"].questions == 4 / 5 * whole


def test_every_entry_of_methods_and_stages_of_the_study_have_a_cost(
    cost: Callable[..., dict[str, Cost]], raw_params: dict[str, Any]
) -> None:
    stages = [f"{stage}@{name}" for stage in ("train", "evaluate") for name in raw_params["methods"]]
    stages += ["seed@1", "repeat@1-paraclip", "repeat_mix@1-x", "claims@papers", "compare"]
    found = cost(stages)
    assert list(found) == stages
    assert all((value.seconds or 0) > 0 and value.memory > 0 for value in found.values())
    assert (found["repeat@1-paraclip"].seconds or 0) > (found["train@paraclip"].seconds or 0)
    assert any("tries for each batch" in note for note in found["train@leaf"].notes)
    assert (found["train@lm_frozen"].seconds or 0) < 0.5 * (found["train@lm_finetuned"].seconds or 0)
    raw_params["methods"]["lm_alignment"]["language_model"] = "nobody/has-fetched-it"
    unknown = cost(["evaluate@lm_alignment"])["evaluate@lm_alignment"].seconds or 0
    assert unknown == (found["evaluate@clip_scratch"].seconds or 0) + RATES.language_tower_load_s
    # A language model as text tower takes longer than the small base's.
    for stage, samples in (("evaluate", 1), ("train", 39_936 / 19_968)):
        language, scratch = (found[f"{stage}@{name}"].seconds or 0 for name in ("lm_alignment", "clip_scratch"))
        assert language * samples > 1.5 * scratch


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


CAPTIONS = 12
TABLE = Path("data/pairs/train.parquet")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """Settings with an empty store and replay, and a table of twelve captions."""
    monkeypatch.chdir(tmp_path)
    ids = [str(number) for number in range(CAPTIONS)]
    captions = [f"a dog and {number} cats on a red sofa" for number in range(CAPTIONS)]
    rows = {"id": ids, "image_id": ids, "image": [b"i"] * CAPTIONS, "caption": captions, "facts": [None] * CAPTIONS}
    PAIRS.write(TABLE, rows)
    raw_params["synthesize"] |= {
        "store": f"sqlite:///{tmp_path}/store.db",
        "cached_answers": str(tmp_path / "replay.parquet"),
        "max_captions": CAPTIONS,
        "llms": {name: {"engine": "local"} for name in ("student", *raw_params["synthesize"]["llms"])},
        "default_llm": "student",
    }

    def make(**task: Any) -> Settings:
        raw_params["synthesize"]["tasks"]["paraphrase_1"] |= {"always_ask_first": 0, "samples": 2} | task
        return Settings.model_validate(raw_params)

    return make


def _count(settings: Settings, task: str = "paraphrase_1") -> TaskQuestions:
    return count_questions(settings)[task]


def _answer(settings: Settings, first: int, last: int, replay: Path | None = None) -> None:
    """Answer some of the questions, in the store or in the `replay`."""
    questions = questions_of(settings, "paraphrase_1", engine_of(settings.synthesize, "paraphrase_1")).read()
    store = GenerationStore(f"sqlite:///{replay}.db" if replay else settings.synthesize.store)
    store.add([Reply(request, "a hound") for request in list(questions)[first:last]])
    if replay:
        store.export_parquet(replay)
    store.close()


def test_questions_without_an_answer_in_the_store_or_the_replay_are_open(
    made: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = made(max_tokens=30)
    found = _count(settings)
    request = questions_of(settings, "paraphrase_1", engine_of(settings.synthesize, "paraphrase_1")).read()
    characters = sum(len(content) for question in request for _, content in question.chat)
    assert (found.all, found.open, found.sure) == (24, 24, True)
    assert found.tokens_in == pytest.approx(characters / 4, abs=1)
    assert found.tokens_out == 24 * 30
    assert not Path("store.db").exists()
    _answer(settings, 0, 6)
    assert _count(settings).open == 18
    _answer(settings, 4, 12, tmp_path / "replay.parquet")
    assert _count(settings).open == 12
    (tmp_path / "store.db").unlink()
    _answer(settings, 0, 24, tmp_path / "replay.parquet")
    assert _count(made(always_ask_first=5)).open == 5, "the model answers the first, whatever the replay has"
    _answer(settings, 0, 24)
    assert _count(made(always_ask_first=5)).open == 0


def test_without_the_table_numbers_come_from_the_settings_and_the_replay(
    made: Callable[..., Settings], tmp_path: Path
) -> None:
    _answer(made(), 0, 6, tmp_path / "replay.parquet")
    TABLE.unlink()
    found = _count(made())
    assert (found.all, found.open, found.sure) == (24, 18, False)
    assert found.tokens_in > 0
    # A task about answers has a question about each of them.
    assert _count(made(), "paraphrase_2").all == 24


def test_questions_about_open_answers_are_open(made: Callable[..., Settings], tmp_path: Path) -> None:
    settings = made()
    read = questions_of(settings, "paraphrase_1", engine_of(settings.synthesize, "paraphrase_1")).read()
    store = GenerationStore(f"sqlite:///{tmp_path}/other.db")
    rows = [replace(request, task="paraphrase_2", chat=(*request.chat, ("user", "again"))) for request in read]
    store.add([Reply(request, "a hound") for request in rows])
    store.export_parquet(tmp_path / "replay.parquet")
    store.close()
    # The replay has as many answers as there are questions, but to what the first task would not answer again.
    assert _count(settings, "paraphrase_2").open == _count(settings, "paraphrase_2").all
    _answer(settings, 0, 24)
    always = settings.synthesize.tasks["paraphrase_2"].always_ask_first
    assert _count(settings, "paraphrase_2").open == always
