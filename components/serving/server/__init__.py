"""The HTTP server: text embeddings, compatible with OpenAI's API."""
