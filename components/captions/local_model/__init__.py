"""A causal language model in this process: its weights, and prompts that begin alike."""
