"""The training loop: one step, its exact gradients, the schedule, what is logged and saved."""
