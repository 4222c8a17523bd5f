"""OpenAI-compatible servers, as engine `server` uses them."""
