"""The adapter over open_clip and language models: towers, tokenizers, sidecar, weights."""
