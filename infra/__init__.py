"""What runs the product: profiles and the local stack."""
