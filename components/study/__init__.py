"""The study of the papers' claims: encoders trained with several seeds, and what they show."""
