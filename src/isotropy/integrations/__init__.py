"""Adapters to training frameworks, one module each; import the one that you use."""
