"""An encoder exported to S3, fetched and read by open_clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from components.core.pictures.storage import S3
from components.encoders.adapter.encoder import Encoder
from components.registry.export import export_encoder
from components.registry.formats import find_format


@pytest.mark.integration
def test_exported_to_s3_and_fetched(bucket: str, tmp_path: Path, tiny_encoder: Encoder) -> None:
    tiny_encoder.save(tmp_path / "tiny")
    url = f"s3://{bucket}/encoders/tiny"
    assert url in export_encoder(str(tmp_path / "tiny"), "open_clip", url)
    (tmp_path / "fetched").mkdir()
    for one in S3().etags(f"{url}/"):
        (tmp_path / "fetched" / one.removeprefix(f"{url}/")).write_bytes(S3().read(one))
    found = find_format("open_clip").read(tmp_path / "fetched", ["a dog"], [Image.new("RGB", (16, 16))])
    np.testing.assert_allclose(found.texts, tiny_encoder.embed_texts(["a dog"]), atol=1e-5)
