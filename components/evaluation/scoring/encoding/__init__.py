"""Features of a benchmark's pictures and texts, by the encoder that it scores."""
