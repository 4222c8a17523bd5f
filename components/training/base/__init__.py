"""Stage `base`: the starting encoder, trained here, fetched by open_clip or read from a file."""
