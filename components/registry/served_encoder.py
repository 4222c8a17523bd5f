"""The registered model. MLflow runs this file when it loads a version, so that no pickle is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from components.encoders.adapter.encoder import Encoder


class ServedEncoder(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """The text tower of an encoder."""

    def load_context(self, context: Any) -> None:
        """Load the encoder from the version's artifacts."""
        self.encoder = Encoder.load(Path(context.artifacts["encoder"]))

    # The type prevents a warning of MLflow, and MLflow does not infer a signature from it.
    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Unit vectors `[texts, dim]`, float32, of a list of texts or of a table's first column."""
        del context, params
        texts = model_input.iloc[:, 0] if isinstance(model_input, pd.DataFrame) else model_input
        return self.encoder.embed_texts([str(text) for text in texts])


mlflow.models.set_model(ServedEncoder())
