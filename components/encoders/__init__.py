"""Image-text encoders: the adapter over open_clip and language models, their files, and stage `embed`."""
