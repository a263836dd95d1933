"""Engines: where runs are carried out."""
