"""What a synthesised text must fulfil, one kind of check per file."""
