"""The tables and figures of the paper, cell by cell."""
