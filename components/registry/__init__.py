"""The model registry: candidate -> gate -> alias, with a written decision."""
