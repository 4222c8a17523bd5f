"""Pretrained language models as text towers."""
