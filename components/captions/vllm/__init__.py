"""Worker processes of engine `vllm`, which run in vLLM's own environment."""
