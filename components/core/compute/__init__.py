"""Torch beyond one model: devices, ranks and resume checkpoints. Training and students share it."""
