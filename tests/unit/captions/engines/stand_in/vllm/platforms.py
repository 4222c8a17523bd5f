"""As vLLM's, as far as it is used."""

import os
from types import SimpleNamespace

current_platform = SimpleNamespace(is_cpu=lambda: "CUDA_VISIBLE_DEVICES" not in os.environ)
