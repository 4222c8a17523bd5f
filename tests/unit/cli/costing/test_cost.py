"""Costs of stages at the rates of the package or of a file, and counts of questions without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.captions.generating.engines import engine_of
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply
from components.cli.costing.cost import Cost, Costing, Rates, load_rates
from components.cli.costing.questions import TaskQuestions, count_questions
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.folders import TEST_SET
from components.core.tables.records import PAIRS
from components.core.tables.written_queries import SUMMARY

Costs = Callable[..., dict[str, Cost]]
Raw = dict[str, Any]
Make = Callable[..., Settings]
STAGES = ["prepare", "base", "embed", "synthesize@paraphrase_1", "validate@paraphrases"]
STAGES += ["train@paraclip", "evaluate@paraclip"]
BASE, MINILM = "cliptune-tiny", "all-MiniLM-L6-v2"
RATES = Rates(
    machine="a machine",
    start_s=5,
    per_second={
        "pictures": {BASE: 500, "efficientnet-lite2": 200},
        "trained_pictures": {BASE: 100},
        "texts": {BASE: 4000, MINILM: 300},
        "trained_texts": {BASE: 1000, MINILM: 50},
        "questions": {"local": 10},
        "rows": {"prepare": 4000, "synthesize": 10_000, "validate": 2000, "evaluate": 200},
    },
)
FIT = {"epochs": 6, "batch_size": 256, "lr": 5e-5, "projection_lr": 0.001, "warmup_steps": 0, "weight_decay": 0.01}


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw_params: Raw) -> Costs:
    """Costs of a project without any output."""
    monkeypatch.chdir(tmp_path)
    raw_params["synthesize"] |= {"store": f"sqlite:///{tmp_path}/store.db", "cached_answers": None}
    raw_params["base"] |= {"source": "scratch", "model": BASE}

    def make(stages: list[str], rates: Rates = RATES, prices: tuple[float, float] | None = None) -> dict[str, Cost]:
        costing = Costing(Settings.model_validate(raw_params), rates, prices)
        return {found.stage: found for found in costing.of(stages)}

    return make


def _work(costs: dict[str, Cost]) -> dict[str, float]:
    """Seconds after the start of the stage, by group."""
    return {stage.partition("@")[0]: (cost.seconds or 0) - RATES.start_s for stage, cost in costs.items()}


def test_time_is_counts_by_the_rates(cost: Costs, raw_params: Raw) -> None:
    raw_params["methods"]["paraclip"] |= {"epochs": 1, "batch_size": 100}
    raw_params["validate"]["measure_similarity"] = True
    raw_params["evaluate"]["benchmarks"] = ["paraphrased_retrieval", "retrieval"]
    assert _work(cost(STAGES)) == pytest.approx(
        {
            "prepare": 21_400 / 4000,
            "base": raw_params["base"]["scratch"]["epochs"] * 20_000 * (1 / 1000 + 1 / 100),
            "embed": 21_400 / 500,
            "synthesize": 4800 / 10_000 + 4800 / 10,
            "validate": 4800 / 2000 + 2 * 4800 / 300,
            "train": 3 * 4800 / 1000,
            "evaluate": 1000 / 200 + 2 * 1000 / 4000,
        }
    )


def test_a_rate_that_the_machine_lacks_is_named(cost: Costs, raw_params: Raw) -> None:
    raw_params["base"] |= {"source": "open_clip", "pretrained": "openai", "model": "ViT-B-32"}
    trained = cost(["train@paraclip"])["train@paraclip"]
    assert trained.seconds is None
    assert trained.notes[0] == "no rate for trained_texts of ViT-B-32 on a machine: give it with --rates"
    assert (cost(["train@paraclip"], load_rates("h200"))["train@paraclip"].seconds or 0) > 0
    found = cost(["prepare"], load_rates("h200"))["prepare"]
    assert found.seconds is None
    assert found.notes == ("no rate for rows of prepare on one H200: give it with --rates",)


def test_only_what_is_trained_costs_training_time(cost: Costs, raw_params: Raw) -> None:
    raw_params["methods"]["paraclip"] |= {"epochs": 1, "batch_size": 100}
    frozen = cost(["train@paraclip"])
    raw_params["methods"]["paraclip"] |= {"image_tower": "trained"}
    trained = cost(["train@paraclip"])
    assert _work(trained)["train"] - _work(frozen)["train"] == pytest.approx(4800 / 100)
    # The table of people's paraphrases, before `prepare` has written it.
    raw_params["methods"]["paraclip"] |= {"train_data": "data/pairs/people_paraphrases.parquet"}
    assert cost(["train@paraclip"])["train@paraclip"].work == "20,000 samples of 3 texts"
    raw_params["base"] |= {"source": "open_clip", "pretrained": "openai"}
    assert cost(["base"])["base"].work == f"loads {BASE}"
    assert _work(cost(["base"]))["base"] == 0
    # Its text tower is all-MiniLM-L6-v2.
    raw_params["base"] |= {"source": "timm", "model": "efficientnet-lite2", "scratch": None, "fit": FIT}
    assert cost(["base"])["base"].work == "120,000 samples"
    assert _work(cost(["base"]))["base"] == pytest.approx(120_000 / 50 + 20_000 / 200)


def test_pictures_and_texts_of_neighbours_are_counted(cost: Costs, raw_params: Raw) -> None:
    methods: dict[str, Any] = raw_params["methods"]
    common = {"epochs": 1, "batch_size": 100, "train_data": "data/validated", "image_tower": "frozen"}

    def tried(method: str, **given: Any) -> tuple[float, str]:
        methods["tried"] = common | {"method": method} | given
        found = cost(["train@tried"])
        return _work(found)["train"], found["train@tried"].work.partition(" samples of ")[2]

    # Image, caption and hard negative, and the neighbour's.
    assert tried("negclip")[1] == "4 texts"
    assert tried("negclip", hard_images=False)[1] == "2 texts"
    assert tried("conclip")[1] == tried("conclip", distractors=False)[1] == "2 texts"
    # Only forward, and a joint run has the tower of its part.
    assert tried("lm_text_tower", strategy="frozen")[0] < tried("lm_text_tower", strategy="finetuned")[0] / 5
    language = tried("joint", parts={"lm_text_tower": {}})[0]
    assert language == pytest.approx(20 * tried("joint", parts={"caption_ft": {}})[0])


def test_given_vectors_are_not_computed(cost: Costs, raw_params: Raw) -> None:
    raw_params["prepare"] |= {"source": "embeddings", "folder": "data/mine"}
    found = cost(["embed"])
    assert found["embed"].work == "21,400 vectors"
    assert _work(found)["embed"] == 0


def test_pictures_with_several_captions_count_once(cost: Costs, raw_params: Raw) -> None:
    raw_params["prepare"]["counts"] = {"train": 1000, "val": 1, "test": 1}
    raw_params["base"] |= {"source": "timm", "scratch": None, "fit": FIT}
    assert [found.work for found in cost(["base", "embed"]).values()] == ["6,000 samples", "1,002 pictures"]
    ids = [str(number) for number in range(1000)]
    pictures = [f"picture {number // 5}" for number in range(1000)]
    PAIRS.write(Path("data/pairs/train.parquet"), {"id": ids, "image_id": pictures, "caption": ids})
    assert [found.work for found in cost(["base", "embed"]).values()] == ["1,200 samples", "202 pictures"]


def test_a_server_has_a_time_only_with_a_rate_and_a_price_only_with_prices(cost: Costs, raw_params: Raw) -> None:
    server = {"engine": "server", "urls": ["http://127.0.0.1:9/v1"], "model": "m"}
    raw_params["synthesize"]["llms"]["student"] = server
    stage = "synthesize@paraphrase_1"
    priced = cost([stage], prices=(2.0, 10.0))[stage]
    assert priced.seconds is None
    assert "no rate for questions of server on a machine: give it with --rates" in priced.notes
    assert priced.price == pytest.approx((2 * priced.tokens_in + 10 * priced.tokens_out) / 1e6)
    assert priced.tokens_out == priced.questions * 40
    assert priced.batch_price == pytest.approx((priced.price or 0) / 2)
    # The prices of the model's block, and in a batch its own.
    raw_params["synthesize"]["llms"]["student"] |= {"prices": [4, 20], "batch_prices": [1, 5]}
    own = cost([stage])[stage]
    assert (own.price, own.batch_price) == pytest.approx((2 * (priced.price or 0), (priced.price or 0) / 2))
    rates = RATES.model_copy(update={"per_second": RATES.per_second | {"questions": {"server": 100}}})
    unjudged = cost([stage], rates)[stage]
    raw_params["synthesize"]["tasks"]["paraphrase_1"]["judge_llm"] = "student"
    judged = cost([stage], rates)[stage]
    assert (judged.seconds or 0) - (unjudged.seconds or 0) == pytest.approx(2 * judged.questions / 100)
    assert any(f"{2 * judged.questions:,} questions to 'student'" in note for note in judged.notes)


def test_kinds_of_test_queries_that_the_data_set_has_cost_nothing(cost: Costs, raw_params: Raw, tmp_path: Path) -> None:
    raw_params["test_set"] = {"llm": next(iter(raw_params["synthesize"]["llms"])), "paraphrases": 3}
    (folder := tmp_path / "data" / "evaluation").mkdir(parents=True)
    whole = cost(["test_set"])["test_set"].questions
    (folder / "negations.parquet").touch()
    assert cost(["test_set"])["test_set"].questions == 4 / 5 * whole
    # A test set is written once, whatever the settings are.
    (tmp_path / TEST_SET).mkdir(parents=True)
    (tmp_path / TEST_SET / SUMMARY).write_text('{"model": "m", "captions_sha256": "a"}')
    kept = cost(["test_set"])["test_set"]
    assert (kept.questions, kept.work) == (0, "keeps the test set")


def test_every_entry_of_methods_and_unknown_stages_have_a_cost(cost: Costs, raw_params: Raw) -> None:
    stages = [f"{stage}@{name}" for stage in ("train", "evaluate") for name in raw_params["methods"]]
    stages += ["seed@1", "compare"]
    found = cost(stages)
    assert list(found) == stages
    assert all((value.seconds or 0) > 0 for value in found.values())
    assert any("tries in each batch" in note for note in found["train@leaf"].notes)
    raw_params["methods"]["lm_alignment"]["language_model"] = "nobody/has-fetched-it"
    (note,) = cost(["evaluate@lm_alignment"])["evaluate@lm_alignment"].notes
    assert note.startswith("no rate for texts of has-fetched-it")


def test_rates_of_a_file_stand_alone(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("machine: eight GPUs\nper_second:\n  questions: {server: 150}\n")
    rates, usual = load_rates(str(file)), load_rates()
    assert (rates.machine, rates.per_second) == ("eight GPUs", {"questions": {"server": 150}})
    assert (usual.machine, load_rates("h200").machine) == ("two cores with AMX", "one H200")
    for text, fault in {
        "machines: x": "'machines': did you mean 'machine'?",
        "machine: x\nper_second: {text: {a: 1}}": "key 'per_second.text",
        "machine: x\nper_second: {texts: {a: 0}}": "key 'per_second.texts.a': Input should be greater than 0",
        "per_second: {": "is not valid YAML: line 1",
        "[1]": "has no keys",
    }.items():
        file.write_text(text)
        with pytest.raises(InputError, match=rf"{re.escape(str(file))}.*{re.escape(fault)}"):
            load_rates(str(file))
    with pytest.raises(InputError, match=r"rates 'h100' cannot be read .*or one of h200, two_cores"):
        load_rates("h100")


CAPTIONS = 12
TABLE = Path("data/pairs/train.parquet")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: Raw) -> Make:
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


def test_questions_without_an_answer_in_the_store_or_the_replay_are_open(made: Make, tmp_path: Path) -> None:
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


def test_without_the_table_numbers_come_from_the_settings_and_the_replay(made: Make, tmp_path: Path) -> None:
    _answer(made(), 0, 6, tmp_path / "replay.parquet")
    TABLE.unlink()
    found = _count(made())
    assert (found.all, found.open, found.sure) == (24, 18, False)
    assert found.tokens_in > 0
    # A task about answers has a question about each of them.
    assert _count(made(), "paraphrase_2").all == 24


def test_questions_about_open_answers_are_open(made: Make, tmp_path: Path) -> None:
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
