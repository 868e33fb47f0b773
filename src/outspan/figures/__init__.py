"""Figures. They take arrays and return a Figure; only the command line writes files."""
