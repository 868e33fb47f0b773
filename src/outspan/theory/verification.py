"""Verify every result of the paper: the printed and the repaired value beside the exact and the simulated value."""

from collections.abc import Mapping
from dataclasses import dataclass

from outspan import rng
from outspan.theory.checks import Case
from outspan.theory.checks_invariant import invariant_cases
from outspan.theory.checks_minnorm import minnorm_cases, update_cases
from outspan.theory.checks_mixup import mixup_cases


@dataclass(frozen=True)
class Row:
    """A row of the table: one result of the paper in one case. Positive values are decreases of the error."""

    result: str
    case: str
    claim: str  # "≥", "=" or "→", as in `Statement`
    conditions: Mapping[str, bool]
    printed: float
    repaired: float
    exact: float
    simulated: float | None  # None: there is nothing random
    standard_error: float | None
    verdict: str
    repaired_holds: bool


def verify(*, draws: int = 10_000, seed: int = 0) -> list[Row]:
    """Check every result of the paper and return one row per result and case.

    `draws` is the number of noise draws per simulated value. Results that are limits are checked at n and at 4n samples.
    """
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    cases = [*invariant_cases(seed), *mixup_cases(seed), *minnorm_cases(seed), *update_cases(seed)]
    return [_row(case, draws, seed) for case in cases]


def _row(case: Case, draws: int, seed: int) -> Row:
    check, statement = case.final, case.final.statement
    mean = error = None
    if check.sample is not None:
        values = check.sample(draws, rng.generator(seed, "theory", case.result, case.name))
        mean, error = float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
    return Row(
        result=case.result,
        case=case.name,
        claim=statement.claim,
        conditions=dict(statement.conditions),
        printed=statement.printed,
        repaired=statement.repaired,
        exact=check.exact,
        simulated=mean,
        standard_error=error,
        verdict=case.verdict,
        repaired_holds=case.holds("repaired"),
    )
