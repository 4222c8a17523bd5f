"""`cliptune serve`: text embeddings over HTTP, compatible with OpenAI's API."""
