"""The image index: the vectors of one image tower, searched by any encoder that has this tower."""
