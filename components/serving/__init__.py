"""`cliptune serve`: text embeddings over HTTP, in the shape of OpenAI's API."""
