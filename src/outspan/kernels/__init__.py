"""Backends: the same plan, the same bytes, faster."""
