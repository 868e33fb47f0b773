"""The run-time checker that the suite wraps every function of the package in: an int is a float, as type checkers have it."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
