"""Stage `train` from a small world to a saved encoder and its MLflow run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from components.cli.commands.write_shards import write_shards
from components.core.compute import devices
from components.core.compute.distributed import World as Ranks
from components.core.compute.provenance import path_hash
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.core.tables.records import PAIRS
from components.core.tracking import TrackedRun, make_client
from components.data.leak_guard import Guard, KnownSet, _keys
from components.data.leaks.keys import text_key
from components.data.leaks.report import COUNTS, LeakCounts
from components.encoders.adapter.encoder import Encoder
from components.training import train
from components.training.data import load_data
from components.training.engine.gradients import Objective, Towers
from components.training.engine.stepper import NonFiniteError
from components.training.fine_tuning import check_ensemble
from components.training.held_out import watch
from components.training.methods.paraclip import Paraclip
from components.training.methods.registry import find_entry
from components.training.train import TrainingJob
from tests.support.toy_world import World, world_settings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all runs of this module."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(autouse=True)
def _tracked(store: Path, track_in: Callable[[Path], None]) -> None:
    track_in(store)


def _settings(world: World, entries: dict[str, dict[str, Any]], **options: Any) -> Settings:
    settings = world_settings(world.folder / "state", **options)
    small = {"batch_size": 16, "epochs": 2, "lr": 0.001}
    return settings.model_copy(update={"methods": {name: small | entry for name, entry in entries.items()}})


def _run(world: World, entry: dict[str, Any], folder: Path, name: str = "tried", **options: Any) -> Path:
    """Train one entry; returns its folder."""
    train.run(_settings(world, {name: entry}, **options), name, replace(world.files, models=folder))
    return folder / name


def _last_run() -> Any:
    client = make_client()
    experiment = client.get_experiment_by_name("synthetic")
    return client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1)[0]


def _state(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = Encoder.load(folder).model.state_dict()
    return found


def test_an_encoder_its_run_and_its_metrics_are_written(world: World, tmp_path: Path) -> None:
    found = {"coco_retrieval": {"name": 2, "text": 1}}
    counts = LeakCounts(benchmarks="sets", checked=["coco_retrieval"], unread={}, found=found, dropped={"train": 3})
    write_json(tmp_path / "leaks" / COUNTS, counts.model_dump())
    beside = replace(world, files=replace(world.files, leaks=tmp_path / "leaks"))
    folder = _run(beside, {"method": "semclip", "warmup_steps": 1}, tmp_path)
    reference, run = json.loads((folder / "run.json").read_text("utf-8")), _last_run()
    assert reference["run_id"] == run.info.run_id
    assert run.info.status == "FINISHED"
    assert {file.path for file in make_client().list_artifacts(run.info.run_id)} == {"tried"}

    speed = ("samples_per_second", "tokens_per_second", "data_wait_share", "peak_memory_mb", "lost_samples")
    expected = {"loss/total", "processor_seconds"}
    expected |= {f"train/{name}" for name in ("lr", "logit_scale", "gradient_norm", *speed)}
    expected |= {"validation/loss", "validation/r_at_5", "validation/ao_at_10"}
    expected |= {
        f"{part}/{term}" for part in ("loss", "validation/loss") for term in ("contrastive", "paraphrase", "negation")
    }
    # The logged model has the early metrics of its step.
    expected |= {f"checkpoint/{name}" for name in expected if name.startswith("validation/")}
    assert set(run.data.metrics) == expected
    history = make_client().get_metric_history(run.info.run_id, "validation/ao_at_10")
    assert [metric.step for metric in history] == [2, 4, 6]
    assert run.data.params["lr"] == "0.001"
    assert run.data.params["train.validation_images"] == "12"
    inputs = {f"input.{name}.sha256" for name in ("paraphrases", "negations", "embeddings", "base")}
    assert inputs <= set(run.data.tags)
    assert run.data.tags["leaks"].startswith("3 train pairs dropped that are in published test sets")
    leaks = {"leaks.coco_retrieval.name": "2", "leaks.coco_retrieval.text": "1", "leaks.dropped.train": "3"}
    assert run.data.tags.items() >= leaks.items()

    encoder, base = Encoder.load(folder), Encoder.load(world.files.base)
    assert (encoder.sidecar.name, encoder.sidecar.method) == ("tried", "semclip")
    assert encoder.sidecar.settings["lr"] == 0.001
    assert str(world.files.validated / "negations.parquet") in encoder.sidecar.data_hashes
    assert encoder.sidecar.from_base
    assert set(encoder.extra) == {"directions"}
    assert encoder.image_tower_hash() == base.image_tower_hash()
    assert np.abs(encoder.embed_texts(["red dog"]) - base.embed_texts(["red dog"])).max() > 1e-3
    assert [path.name for path in (world.folder / "state").iterdir()] == ["tokens"]


def _validate(world: World, encoder: Encoder, entry: dict[str, Any]) -> dict[str, float]:
    settings = _settings(world, {"tried": entry})
    method = find_entry(settings.methods, "tried").method
    _, data = load_data(settings.train, method, encoder, world.files, Ranks())
    towers, extra = Towers(encoder.model, "cpu"), nn.Module()
    validate = watch(data, encoder.tokenizer, lambda *_: None)
    assert validate is not None
    objective = Objective(towers, encoder.model, extra, method.losses, None, Ranks(), "cpu")
    return validate(objective, 0)


# Runs that get worse again: random paraphrases are memorised, and random images separated.
WORSENING = [
    ("validation/loss", min, {"terms": ["l2"], "learn_logit_scale": False, "lr": 0.003, "epochs": 8}),
    ("validation/r_at_5", max, {"lr": 0.0003}),
]


@pytest.mark.parametrize(("metric", "pick", "options"), WORSENING)
def test_the_best_is_exported(metric: str, pick: Any, options: dict[str, Any], world: World, tmp_path: Path) -> None:
    entry = {"method": "paraclip", "schedule": "constant"} | options
    folder = _run(world, entry, tmp_path, select_checkpoint=metric, validate_every=1)
    values = [metric.value for metric in make_client().get_metric_history(_last_run().info.run_id, metric)]
    assert pick(values) != pytest.approx(values[-1], rel=1e-3)
    assert _validate(world, Encoder.load(folder), entry)[metric] == pytest.approx(pick(values), rel=1e-5)


class _StoppedError(Exception):
    """Ends a run in the middle of it."""


@pytest.mark.parametrize(
    ("stops", "options"), [((), {"weight_ensemble": 0.3}), ((5, 9), {}), ((9,), {"weight_ensemble": 0.5})], ids=str
)
@pytest.mark.parametrize("select", ["validation/loss", "validation/r_at_5", "last"])
def test_the_logged_model_has_the_metrics_of_the_exported_weights(
    select: str,
    stops: tuple[int, ...],
    options: dict[str, Any],
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a run that was stopped after its best step, and with weights averaged with the base's."""
    logged: list[tuple[int, dict[str, float]]] = []

    def log_model(_run: Any, _name: str, step: int, metrics: dict[str, float], _folder: Any = None) -> None:
        logged.append((step, metrics))

    monkeypatch.setattr(TrackedRun, "log_model", log_model)
    entry = {"method": "paraclip", "terms": ["l2"], "learn_logit_scale": False, "schedule": "constant", "lr": 0.003}
    entry |= options
    given = {"select_checkpoint": select, "validate_every": 2, "checkpoint_every": 3}
    for last in (*stops, None):

        def report(step: Any, last: int | None = last) -> None:
            if step.number == last:
                raise _StoppedError

        monkeypatch.setattr(train, "report_to", lambda _run, report=report: report)
        with nullcontext() if last is None else pytest.raises(_StoppedError):
            folder = _run(world, entry, tmp_path, **given)
    ((step, metrics),) = logged
    assert step == 12 or select != "last"
    found = _validate(world, Encoder.load(folder), entry)
    assert {name: found[name] for name in metrics} == pytest.approx(metrics, rel=1e-5)
    assert set(metrics) == set(found)


def test_a_number_that_is_not_finite_fails_the_run_and_keeps_the_batch(world: World, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="tried: the loss is not finite at step"):
        _run(world, {"method": "paraclip", "lr": 1e30}, tmp_path)
    run = _last_run()
    assert run.info.status == "FAILED"
    (artifact,) = make_client().list_artifacts(run.info.run_id)
    report = json.loads(Path(make_client().download_artifacts(run.info.run_id, artifact.path)).read_text("utf-8"))
    assert artifact.path == f"non_finite_step_{report['step']}.json"
    assert len(report["ids"]) == 16
    assert set(report["ids"]) <= set(world.captions)
    assert "not finite" in report["reason"]
    assert not (tmp_path / "tried").exists()
    assert list((world.folder / "state").glob(f"tried-*/step-{report['step'] - 1:08d}"))


def test_a_killed_run_ends_like_an_undisturbed_one(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"method": "laclip_ft", "rewrites": ["rewrite"], "warmup_steps": 1}
    options = {"checkpoint_every": 3, "select_checkpoint": "validation/loss"}
    whole = _state(_run(world, entry, tmp_path / "whole", **options))
    steps: list[int] = []

    def noting(last: int) -> Any:
        def report(step: Any) -> None:
            steps.append(step.number)
            if step.number == last:
                raise KeyboardInterrupt

        return lambda _run: report

    monkeypatch.setattr(train, "report_to", noting(last=8))
    with pytest.raises(KeyboardInterrupt):
        _run(world, entry, tmp_path / "killed", **options)
    assert _last_run().info.status == "KILLED"
    monkeypatch.setattr(train, "report_to", noting(last=99))
    _run(world, entry, tmp_path / "killed", **options)
    assert steps == [*range(1, 9), *range(7, 13)]
    torch.testing.assert_close(_state(tmp_path / "killed" / "tried"), whole, rtol=0, atol=0)


def test_weights_are_averaged_with_the_bases_where_they_start_from_them(world: World, tmp_path: Path) -> None:
    share = 0.5
    entry = {"method": "paraclip", "epochs": 1}
    tuned = _state(_run(world, entry, tmp_path / "whole"))
    mixed = _state(_run(world, entry | {"weight_ensemble": share}, tmp_path / "mixed"))
    base = _state(world.files.base)
    assert not torch.equal(tuned["text_projection"], base["text_projection"])
    for name, weights in mixed.items():
        torch.testing.assert_close(weights, share * tuned[name] + (1 - share) * base[name])
    for name, start, message in [
        ("new", torch.ones(2), "averages .* the base has no 'new'"),
        ("a", torch.ones(3), "averages .* the base has no 'a'"),
        ("a", torch.zeros(2), "but 'a' starts at random: set it to 1"),
    ]:
        weights, base = {name: nn.Parameter(start)}, {"a": torch.ones(2)}
        check_ensemble(1.0, weights, base)
        check_ensemble(0.5, {"a": nn.Parameter(torch.ones(2))}, base)
        with pytest.raises(InputError, match=message):
            check_ensemble(0.5, weights, base)


def test_retention_keeps_texts_nearer_to_the_base(world: World, tmp_path: Path) -> None:
    texts = ["a red dog", "two boats under a tree"]
    base, cosines = Encoder.load(world.files.base).embed_texts(texts), []
    for weight in (0, 100):
        folder = _run(world, {"method": "paraclip", "retention": weight}, tmp_path / str(weight))
        cosines.append((Encoder.load(folder).embed_texts(texts) * base).sum(axis=1).mean())
        assert ("loss/retention" in _last_run().data.metrics) == (
            "validation/loss/retention" in _last_run().data.metrics
        )
    assert cosines[0] < cosines[1] < 1
    with pytest.raises(InputError, match=r"matryoshka is \[8, 999\], but vectors have \d+ dimensions: name fewer"):
        _run(world, {"method": "paraclip", "matryoshka": [8, 999]}, tmp_path)


def test_proclip_first_distils_and_then_contrasts(world: World, tmp_path: Path, language_model: Path) -> None:
    entry = {"method": "proclip", "language_model": str(language_model), "image_tower": "frozen", "warmup_steps": 1}
    folder = _run(world, entry | {"strategy": "alignment", "alignment_layers": 1}, tmp_path)
    assert not Encoder.load(folder).sidecar.from_base
    run = _last_run()
    steps = {
        name: {point.step for point in make_client().get_metric_history(run.info.run_id, f"loss/{name}")}
        for name in ("instance", "infonce")
    }
    assert steps["infonce"] < steps["instance"]
    assert max(steps["instance"] - steps["infonce"]) < min(steps["infonce"])


@pytest.mark.parametrize(
    ("method", "extra"), [({"method": "paraclip"}, set()), ({"method": "semclip", "n": 3}, {"directions"})]
)
def test_an_encoder_with_tensors_of_its_method_can_be_the_base_and_warnings_of_the_method_are_printed(
    method: dict[str, Any], extra: set[str], world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    semclip = _run(world, {"method": "semclip", "n": 1, "epochs": 1, "warmup_steps": 1}, tmp_path, "first")
    assert "first: semclip with n: 1" in capsys.readouterr().out
    second = replace(world, files=replace(world.files, base=semclip))
    tuned = Encoder.load(_run(second, method | {"epochs": 1, "warmup_steps": 1}, tmp_path, "second"))
    assert set(tuned.extra) == extra
    assert all(len(directions) == 3 for directions in tuned.extra.values())


def test_checkpoints_belong_to_all_that_decides_weights(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"method": "paraclip"}

    def fingerprint(changes: dict[str, Any], hashes: dict[str, str] | None = None, **options: Any) -> str:
        settings = _settings(world, {"tried": entry | changes}, **options)
        unread: Any = None
        job = TrainingJob(settings, find_entry(settings.methods, "tried"), unread, unread, unread, hashes or {"a": "1"})
        return job.fingerprint

    known = [
        fingerprint({}),
        fingerprint({"lr": 0.5}),
        fingerprint({"method": "laclip_ft"}),
        fingerprint({}, {"a": "2"}),
    ]
    options: list[dict[str, Any]] = [{"seed": 4}, {"validation_images": 5}, {"precision": "bf16"}]
    known += [fingerprint({}, **option) for option in (*options, {"select_checkpoint": "validation/loss"})]
    with monkeypatch.context() as patch:
        patch.setattr(Paraclip, "epoch_unit", "pairs")
        known.append(fingerprint({}))
    assert len(set(known)) == len(known)
    assert fingerprint({}, micro_batch=4, log_every=7, checkpoint_every=2, keep_checkpoints=5) == known[0]


def test_a_run_continues_and_says_so_when_its_code_has_changed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for code, warnings in (("one", 0), ("one", 0), ("other", 1)):
        monkeypatch.setattr(train, "code_hash", lambda stage, code=code: f"{stage}-{code}")
        _checkpoints_of(world, {"method": "paraclip", "warmup_steps": 2}, tmp_path)
        assert sum("made by other code" in record.getMessage() for record in caplog.records) == warnings


def _checkpoints_of(world: World, entry: dict[str, Any], folder: Path, **options: Any) -> str:
    """The name of the folder that a run which cannot finish leaves its checkpoint in."""
    before = set((world.folder / "state").glob("tried-*"))
    with pytest.raises(NonFiniteError):
        _run(world, entry | {"lr": 1e30}, folder, **options)
    (found,) = set((world.folder / "state").glob("tried-*")) - before or {Path("an earlier one")}
    return found.name


def test_the_chosen_precision_is_logged(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, found = {"method": "paraclip", "warmup_steps": 1}, []
    for native, wanted, precision in ((True, "auto", "bf16"), (True, "bf16", "bf16"), (False, "auto", "fp32")):
        monkeypatch.setattr(devices, "bf16_is_native", lambda _device, native=native: native)
        folder = _run(world, entry, tmp_path / f"{native}", wanted, precision=wanted)
        assert _last_run().data.params["train.precision"] == precision
        found.append(_state(folder)["text_projection"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_run_with_a_changed_language_model_starts_over(world: World, tmp_path: Path, language_model: Path) -> None:
    copy = tmp_path / "lm"
    shutil.copytree(language_model, copy)
    entry = {"method": "lm_text_tower", "language_model": str(copy), "image_tower": "frozen", "warmup_steps": 0}
    _checkpoints_of(world, entry, tmp_path)
    assert _checkpoints_of(world, entry, tmp_path) == "an earlier one"
    weights = load_file(copy / "model.safetensors")
    name = next(name for name in weights if "word_embeddings" in name)
    save_file(weights | {name: weights[name] + 1}, copy / "model.safetensors", metadata={"format": "pt"})
    assert _checkpoints_of(world, entry, tmp_path) != "an earlier one"
    done = Encoder.load(_run(world, entry, tmp_path / "done")).sidecar
    assert done.data_hashes["language_model"] == path_hash(copy)


def test_changed_shards_start_over(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shards, leaks, entry = tmp_path / "shards", tmp_path / "leaks", {"method": "caption_ft", "image_tower": "trained"}
    write_shards(world.files.pairs / "train.parquet", shards, 30)
    options = {"shards": {"urls": str(shards), "columns": {"caption": "txt"}, "max_error_share": 1.0}}
    leaks.mkdir()
    texts = PAIRS.read(world.files.pairs / "train.parquet")["caption"].to_pylist()
    Guard(None, False, [KnownSet("coco_retrieval", texts=_keys(map(text_key, texts[:40])))]).write(leaks)
    train.run(
        _settings(world, {"tried": entry}, **options), "tried", replace(world.files, models=tmp_path, leaks=leaks)
    )
    assert "in the test set coco_retrieval" in caplog.text
    assert _last_run().data.metrics["train/lost_samples"] >= 10
    assert "published texts" in Encoder.load(tmp_path / "tried").sidecar.data_hashes
    shard, found = shards / "00000.tar", []
    for content in (shard.read_bytes(), shard.read_bytes(), shard.read_bytes().replace(b"dog", b"cat")):
        shard.write_bytes(content)
        found.append(_checkpoints_of(world, entry, tmp_path, **options))
    assert found[1] == "an earlier one" != found[2]


def test_a_changed_image_tower_is_not_saved_where_the_index_is_kept(world: World, tmp_path: Path) -> None:
    entry = {"method": "caption_ft", "epochs": 1}
    assert (_run(world, entry, tmp_path, "frozen", keep_index=True) / "encoder.safetensors").is_file()
    with pytest.raises(InputError, match=r"training changed the image tower although train\.keep_index is set"):
        _run(world, entry | {"image_tower": "trained"}, tmp_path, "trained", keep_index=True)
    assert not (tmp_path / "trained").exists()


def test_what_cannot_be_exported_or_found_is_refused_before_the_training(world: World, tmp_path: Path) -> None:
    settings = _settings(world, {"one": {"method": "paraclip"}, "two": {"method": "nothing"}})
    assert find_entry(settings.methods, "one").method.name == "paraclip"
    messages = {
        "three": r"no block methods.three: add one .*, or use one, two",
        "two": r"methods\.two: method 'nothing' is unknown",
        "base": r"methods\.base would replace the base encoder: give the entry another name",
    }
    for name, message in messages.items():
        with pytest.raises(InputError, match=message):
            find_entry(settings.methods, name)
    with pytest.raises(InputError, match=r"train\.select_checkpoint 'validation/loss' needs train.validate_every"):
        _run(world, {"method": "paraclip"}, tmp_path, select_checkpoint="validation/loss", validate_every=None)
    assert _last_run().info.status == "FAILED"
    assert "loss/total" not in _last_run().data.metrics


def test_an_observer_sees_early_metrics_and_may_stop_the_run(world: World, tmp_path: Path) -> None:
    seen: list[int] = []

    def observe(metrics: Mapping[str, float], step: int) -> None:
        assert "validation/loss" in metrics
        seen.append(step)
        if len(seen) == 2:
            raise train.StoppedEarlyError

    settings = _settings(world, {"tried": {"method": "paraclip", "epochs": 4}}, validate_every=1, validation_images=10)
    before = set(settings.train.checkpoint_dir.glob("tried-*"))
    assert not train.run(settings, "tried", replace(world.files, models=tmp_path), observe)
    assert len(seen) == 2
    assert not (tmp_path / "tried").exists()
    run = _last_run()
    assert (run.info.status, run.data.tags["stopped"]) == ("FINISHED", "early")
    assert set(settings.train.checkpoint_dir.glob("tried-*")) == before


@pytest.mark.parametrize(("wanted", "steps"), [("none", []), ("best", [4]), ("all", [2, 3, 4])])
def test_kept_checkpoints_are_logged_models(world: World, tmp_path: Path, wanted: str, steps: list[int]) -> None:
    options = {"validate_every": 1, "validation_images": 10, "checkpoint_every": 1, "log_checkpoints": wanted}
    entry = {"method": "paraclip", "epochs": 4, "batch_size": 64}
    settings = _settings(world, {"tried": entry}, **options)
    train.run(settings, "tried", replace(world.files, models=tmp_path))
    run, client = _last_run(), make_client()
    models = [client.get_logged_model(one.model_id) for one in run.outputs.model_outputs] if run.outputs else []
    assert sorted(int(model.params["step"]) for model in models) == steps
    for model in models:
        assert {metric.key for metric in model.metrics} >= {"checkpoint/validation/loss"}
        assert str(model.status).endswith("READY")
        files = {artifact.path for artifact in client.list_logged_model_artifacts(model.model_id)}
        # The encoder's files are those of the run.
        in_run = model.tags.get("artifacts") == f"runs:/{run.info.run_id}/tried"
        assert in_run != bool(files)
        assert files <= {"state.safetensors", "state.json"}
