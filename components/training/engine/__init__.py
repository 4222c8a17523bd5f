"""The training loop: one step, its exact gradients, the schedule, metrics and checkpoints."""
