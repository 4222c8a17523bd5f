"""As vLLM's, as far as they are used."""


class VLLMServerError(Exception):
    """The engine is dead."""
