"""Torch code that training and students share: devices, ranks and resume checkpoints."""
