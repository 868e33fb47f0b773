"""Figures: arrays and small results in, a matplotlib Figure, or SVG and HTML out. Nothing here trains, or reads runs."""
