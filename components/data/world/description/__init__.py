"""What scenes hold, and how sentences describe them."""
