"""Experiments: models × tasks × methods × seeds under one protocol."""
