"""The model registry: candidates, the gate, promotion to the alias `champion`, and the record of each decision."""
