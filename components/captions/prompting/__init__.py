"""Prompt tasks: their prompts, inputs and parsers."""
