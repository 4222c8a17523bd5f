"""Cleaning of the texts that prompts quote, and parsing of answers."""
