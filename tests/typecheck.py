"""The run-time type checker of the suite. An int is accepted as a float, as static type checkers do."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
