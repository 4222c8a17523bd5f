"""From the validated tables to batches."""
