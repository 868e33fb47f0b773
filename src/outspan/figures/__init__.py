"""Figures: arrays and small results in, a matplotlib Figure out. Nothing here trains, reads runs or writes files."""
