"""The estimated cost of a profile's stages: questions, tokens, time, disk, memory, money."""
