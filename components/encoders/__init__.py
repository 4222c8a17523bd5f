"""Image-text encoders: the adapter over open_clip, its checkpoint format, the `base` and `embed` stages."""
