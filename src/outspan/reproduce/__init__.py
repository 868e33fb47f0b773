"""Reproduce the tables and figures of the paper, cell by cell.

`list_paper()` returns every table and figure with its status, `describe("table-3")` one with its rows, and
`run_table("table-3", rows=["svhn/wrn-28-10"], scale=0.01)` trains cells of a table and compares them with the paper.
"""

from outspan.reproduce.cells import Cell as Cell
from outspan.reproduce.cells import Reproduction as Reproduction
from outspan.reproduce.cells import run_table as run_table
from outspan.reproduce.status import ItemStatus as ItemStatus
from outspan.reproduce.status import describe as describe
from outspan.reproduce.status import list_paper as list_paper

__all__ = ["Cell", "ItemStatus", "Reproduction", "describe", "list_paper", "run_table"]
