"""Models, judges and text perturbations of the experiments."""
