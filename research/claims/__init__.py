"""The study of the papers' claims: encoders trained with several seeds, and their results."""
