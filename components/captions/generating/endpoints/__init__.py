"""OpenAI-compatible servers, as the engines `server` and `vllm` use them."""
