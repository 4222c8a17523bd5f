"""How prompts are made and how answers are taken apart."""
