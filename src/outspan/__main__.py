"""`python -m outspan` is the command line."""

from outspan.cli import main

main()
