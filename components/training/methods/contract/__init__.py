"""The contract of a method: its declaration, the features of its losses, and the settings of its optimisation."""
