"""Stage `base`: the encoder that everything starts from, trained here, fetched by open_clip or read from a file."""
