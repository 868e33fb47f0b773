"""Backends that execute the same plans to the same bytes as the reference, faster."""
