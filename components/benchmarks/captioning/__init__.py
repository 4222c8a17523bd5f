"""Image-difference captioning: a small CLIP4IDC on an encoder's frozen features (Guo et al. 2022)."""
