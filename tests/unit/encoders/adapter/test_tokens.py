"""Tokenising keeps the end token and counts what matters, with either kind of tokenizer."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from transformers import AutoTokenizer

from components.core.system.errors import InputError
from components.encoders.adapter.architecture import build, image_tower
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.language_tower import packaged_model
from components.encoders.adapter.model_configs import model_config
from components.encoders.adapter.tokens import ClipTokenizer, HuggingFaceTokenizer, Tokenizer, token_lengths, trimmed
from tests.conftest import TINY
from tests.support.shard_making import encoded

END = 49407


def _kinds(language_folders: dict[str, Path]) -> list[Tokenizer]:
    return [ClipTokenizer(24), *(HuggingFaceTokenizer(folder, 24) for folder in language_folders.values())]


def test_long_texts_keep_their_end_and_many_have_the_tokens_of_each(language_folders: dict[str, Path]) -> None:
    clip, texts = ClipTokenizer(24), ["word " * 100, "word"]
    tokens = clip(texts)
    assert tokens.shape == (2, 24)
    assert tokens[0, -1] == END
    assert clip.lengths(tokens).tolist() == [24, 3]
    assert token_lengths(texts).tolist() == [102, 3]
    for kind, pad in (("bert", 0), ("roberta", 1)):
        tokenizer = HuggingFaceTokenizer(language_folders[kind], 6)
        tokens = tokenizer(["a dog on the long sofa with a hat", "dog"])
        assert tokens[0, -1] == tokens[1, 2]
        assert tokens[1, 3:].tolist() == [pad] * 3
        assert tokenizer.lengths(tokens).tolist() == [6, 3]
    texts = ["a dog", "hats", "two small hats"] * 700
    for tokenizer in _kinds(language_folders):
        np.testing.assert_array_equal(tokenizer(texts), np.tile(tokenizer(texts[:3]), (700, 1)))


@given(texts=st.lists(st.text(alphabet="ado g\n<", max_size=60), max_size=5))
def test_only_padding_follows_the_end_of_a_text(language_folders: dict[str, Path], texts: list[str]) -> None:
    for tokenizer in _kinds(language_folders):
        tokens = tokenizer(texts)
        lengths = tokenizer.lengths(tokens)
        assert tokens.dtype == np.int32
        assert tokens.shape == (len(texts), 24)
        assert lengths.dtype == np.int64
        for row, length in zip(tokens, lengths, strict=True):
            assert 2 <= length <= 24
            assert len(set(row[length:].tolist())) <= 1
        assert trimmed(tokens, lengths).shape == (len(texts), max(lengths, default=1))


def test_special_tokens_are_letters_and_its_own_limit_counts(language_folders: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(packaged_model(), 12)
    padded, plain = tokenizer(["red [PAD] dog", "red dog"])
    assert tokenizer.pad_id not in padded[: tokenizer.lengths(padded[None])[0]]
    assert tokenizer.lengths(padded[None])[0] > tokenizer.lengths(plain[None])[0]
    AutoTokenizer.from_pretrained(language_folders["bert"], model_max_length=7).save_pretrained(tmp_path)
    assert HuggingFaceTokenizer(tmp_path, 24)(["a dog"]).shape == (1, 7)


def test_a_saved_tokenizer_keeps_its_own_identity(language_folders: dict[str, Path], tmp_path: Path) -> None:
    tokenizer, texts = HuggingFaceTokenizer(language_folders["roberta"], 24), ["a dog", "two hats"]
    tokenizer.save(tmp_path)
    loaded = HuggingFaceTokenizer(tmp_path, 24)
    assert loaded.identity == tokenizer.identity
    np.testing.assert_array_equal(loaded(texts), tokenizer(texts))
    identities = [tokenizer.identity for tokenizer in _kinds(language_folders)]
    assert identities[0] == "clip-bpe"
    assert len(set(identities)) == 3
    assert HuggingFaceTokenizer(language_folders["bert"], 24, clean="lower").identity not in identities


def _noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(width * 100 + height).integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def _input(pictures: list[bytes], preparation: Preparation) -> torch.Tensor:
    return preparation.normalise(preparation.decode(pictures))[0]


@given(
    width=st.integers(5, 90),
    height=st.integers(5, 90),
    size=st.sampled_from([16, 17, 24]),
    mode=st.sampled_from(["RGB", "L", "RGBA", "P", "LA"]),
    resize_mode=st.sampled_from(["shortest", "longest", "squash"]),
    interpolation=st.sampled_from(["bicubic", "bilinear"]),
)
def test_pixels_equal_open_clips_transform(
    width: int, height: int, size: int, mode: str, resize_mode: Any, interpolation: Any
) -> None:
    image = _noise(width, height).convert(mode)
    values = {"mean": (0.5, 0.4, 0.3), "std": (0.3, 0.2, 0.1), "fill_color": 7}
    ways = {"resize_mode": resize_mode, "interpolation": interpolation}
    wanted = open_clip.image_transform(size, is_train=False, **values, **ways)(image)
    found = _input([encoded(image)], Preparation(size=size, **values, **ways))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def _tiff_of_12_bits(grey: npt.NDArray[np.uint16]) -> bytes:
    """Pillow writes none, so by the TIFF 6.0 specification: two pixels in three bytes, one strip, nine tags."""
    pairs = grey.reshape(-1, 2).astype(np.uint32)
    packed = b"".join(int(one << 12 | other).to_bytes(3, "big") for one, other in pairs)
    height, width = grey.shape
    tags = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    header, count = struct.pack("<2sHI", b"II", 42, 8 + len(packed)), struct.pack("<H", len(tags))
    return header + packed + count + entries + struct.pack("<I", 0)


def test_damaged_pictures_bombs_and_pixels_without_a_known_range_are_refused() -> None:
    whole = encoded(_noise(40, 40))
    for cut in (0, 30, 200):
        with pytest.raises(InputError, match=r"image row 1 cannot be decoded \("):
            Preparation(size=16).decode([whole, whole[:cut]])
    with pytest.raises(InputError, match="too long and narrow"):
        Preparation(size=224).decode([encoded(Image.new("1", (20_000, 2)))])
    for kind in (np.float32, np.int32):
        picture = encoded(Image.fromarray(np.linspace(0, 1, 256).reshape(16, 16).astype(kind)), "TIFF")
        with pytest.raises(InputError, match=r"image x\.tif cannot be decoded \(.* save it with 8 or 16 bits\)"):
            Preparation(size=16).decode([picture], ["x.tif"])


def test_pictures_are_turned_and_grey_of_16_and_12_bits_becomes_8() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = encoded(_noise(20, 40), exif=exif)
    opened = Image.open(io.BytesIO(picture))
    assert opened.getexif()[0x0112] == 6
    wanted = open_clip.image_transform(16, is_train=False)(ImageOps.exif_transpose(opened))
    torch.testing.assert_close(_input([picture], Preparation(size=16)), wanted, atol=1e-6, rtol=0)
    grey = np.arange(256, dtype=np.uint16).reshape(16, 16)
    between = Image.fromarray(np.full((16, 16), 100 * 257 + 100, dtype=np.uint16))
    for kind in ("PNG", "TIFF"):
        assert (Preparation(size=16).decode([encoded(Image.fromarray(grey * 257), kind)])[0].numpy() == grey).all()
        assert Preparation(size=16).decode([encoded(between, kind)]).unique().tolist() == [100]
    grey = np.array([[0, 1000], [2048, 4095]], dtype=np.uint16).repeat(8, axis=0).repeat(8, axis=1)
    found = Preparation(size=16).decode([_tiff_of_12_bits(grey)])[0].numpy()[0][::8, ::8]
    assert found.tolist() == [[0, 62], [128, 255]]


VISION = TINY["vision_cfg"]


def _roberta_base(folder: Path) -> dict[str, Any]:
    """The published roberta-ViT-B-32, made tiny."""
    published = open_clip.get_model_config("roberta-ViT-B-32")
    files = {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder), "context_length": 24}
    return {**published, "embed_dim": 16, "vision_cfg": VISION, "text_cfg": {**published["text_cfg"], **files}}


def test_a_roberta_base_is_loaded_without_its_source(language_folders: dict[str, Path], tmp_path: Path) -> None:
    texts = ["a dog", "two small hats on the long sofa"]
    encoder = Encoder.create("base", "roberta", _roberta_base(language_folders["roberta"]), "test")
    assert encoder.sidecar.quick_gelu
    sidecar = encoder.save(tmp_path)
    assert str(language_folders["roberta"]) not in (tmp_path / "encoder.json").read_text()
    loaded = Encoder.load(tmp_path)
    assert loaded.sidecar == sidecar
    np.testing.assert_array_equal(loaded.embed_texts(texts), encoder.embed_texts(texts))
    encoder.model.train()
    tokens = torch.from_numpy(encoder.tokenizer(texts).astype("int64"))
    assert torch.equal(encoder.model.encode_text(tokens), encoder.model.encode_text(tokens))


def test_model_files_name_folders(language_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = language_folders["roberta"]
    config = _roberta_base(folder)
    config["text_cfg"] |= {"hf_model_name": folder.name, "hf_tokenizer_name": folder.name}
    path = folder.parent / "small-roberta.json"
    path.write_text(json.dumps(config))
    read = model_config(str(path))
    assert read["text_cfg"]["hf_model_name"] == str(folder)
    assert isinstance(build(read), open_clip.CustomTextCLIP)
    path.write_text("{}")
    with pytest.raises(InputError, match=r"small-roberta\.json is not an open_clip configuration"):
        model_config(str(path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = TINY["text_cfg"]
    for config, refusal in (
        ({**TINY, "text_cfg": text | {"hedas": 2}}, r"open_clip does not know this configuration \(.*'hedas'\): corr"),
        (_roberta_base(Path("someone/roberta")), r"'someone/roberta'.*hf_model_name"),
    ):
        with pytest.raises(InputError, match=refusal):
            build(config)


@pytest.mark.parametrize(("name", "mean"), [("vit-b-32-imagenet", 0.5), ("rn50-imagenet", 0.485)])
def test_models_with_towers_of_timms_are_what_it_publishes_for_imagenet(name: str, mean: float) -> None:
    vision = model_config(name)["vision_cfg"]
    published = timm.get_pretrained_cfg(vision["timm_model_name"])
    assert (published.num_classes, published.mean[0]) == (1000, mean)
    assert published.input_size == (3, vision["image_size"], vision["image_size"])


def test_an_image_tower_has_the_shapes_of_a_whole_models(tiny_encoder: Encoder) -> None:
    tower = image_tower(tiny_encoder.sidecar.architecture).state_dict()
    whole = tiny_encoder.model.visual.state_dict()
    assert {name: weights.shape for name, weights in tower.items()} == {n: w.shape for n, w in whole.items()}
    assert not torch.equal(tower["proj"], whole["proj"])
