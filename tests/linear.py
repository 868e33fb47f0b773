"""Random data of every shape for the tests of the theory: more samples than dimensions, fewer, and as many."""

from outspan import rng
from outspan.theory.bounds import Setting
from outspan.theory.ridge import Error, ridge_error
from outspan.theory.rows import Rows


def setting(case: int, *, n: int = 0, p: int = 0) -> Setting:
    """Return Gaussian data whose sizes, unless given, penalty and noise follow from the number of the case."""
    g = rng.generator(case, "setting")
    n, p = n or int(g.integers(1, 30)), p or int(g.integers(1, 40))
    return Setting(g.standard_normal((n, p)), g.standard_normal(p), float(g.uniform(0.01, 2)), float(g.uniform(0, 2)))


def any_rows(case: int, s: Setting) -> Rows:
    """Return a few rows that have nothing to do with the labels that they are given."""
    g = rng.generator(case, "rows")
    k = int(g.integers(1, 4))
    return Rows(g.standard_normal((k, s.X.shape[1])), g.standard_normal((k, s.n)))


def ridge_fall(s: Setting, added: Rows, fixed_penalty: bool) -> Error:
    """Return by how much rows lower the error of ridge regression, by direct solves."""
    return ridge_error(s.X, s.beta, s.lam, s.sigma) - ridge_error(
        s.X, s.beta, s.lam, s.sigma, added=added, fixed_penalty=fixed_penalty
    )
