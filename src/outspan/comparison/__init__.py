"""Compare runs: several policies with several seeds each, and grids of recipes."""
