"""Scales of the axes of SVG charts: from values to positions, and where the ticks are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outspan.figures.style import accuracy_ticks, is_log_accuracy

_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Scale:
    """An axis: the range of its values, the range of positions, and the ticks."""

    low: float
    high: float
    start: float  # the position of `low`
    end: float
    ticks: tuple[float, ...]
    transform: Callable[[float], float] = float  # to the quantity that is drawn linearly
    note: str = ""  # what the label of the axis must say

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        low, high = self.transform(self.low), self.transform(self.high)
        fraction = (self.transform(value) - low) / (high - low) if high > low else 0.5
        return round(self.start + fraction * (self.end - self.start), 2)


def linear(values: Sequence[float], start: float, end: float, *, whole: bool = False, margin: float = 0.0) -> Scale:
    """Return a linear scale for these values. With `whole` the ticks are whole numbers."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        half = 0.5 if whole or not low else abs(low) / 10
        low, high = low - half, high + half
    edge = margin * (high - low)
    low, high = low - edge, high + edge
    return Scale(low, high, start, end, tuple(_ticks(low, high, whole=whole)))


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale for positive values."""
    low, high = min(values), max(values)
    low, high = (low / 1.15, high * 1.15)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 1e3 else (1,)
    ticks = [m * 10.0**power for power in powers for m in factors if low <= m * 10.0**power <= high]
    return Scale(low, high, start, end, tuple(ticks or [low, high]), math.log10)


def accuracy(percents: Sequence[float], start: float, end: float) -> Scale:
    """Return a scale for accuracies in %, on which none is cut: linear, or of the logarithm of the error."""
    values = [percent / 100 for percent in percents]
    if not is_log_accuracy(values):
        return linear(percents, start, end, margin=0.05)
    low, high = 100 - 1.15 * (100 - min(percents)), 100 - (100 - max(percents)) / 1.15
    ticks = tuple(accuracy_ticks(max(low, 0), high))
    return Scale(low, high, start, end, ticks, lambda value: -math.log10(max(100 - value, 1e-9)), "logarithm of the error")


def shown(value: float) -> str:
    """Return a number as a tick shows it.

    >>> shown(0.25), shown(20000.0), shown(2.5e-6)
    ('0.25', '20,000', '2.5e-06')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 12):.6g}"


def rounded(value: float, decimals: int) -> float:
    """Return a value rounded to a number of decimals, but small values to three significant digits.

    >>> rounded(12.3456, 2), rounded(0.00012345, 2), rounded(0.0, 2)
    (12.35, 0.000123, 0.0)
    """
    small = 0 < abs(value) < 1
    return round(value, max(decimals, 2 - math.floor(math.log10(abs(value))))) if small else round(value, decimals)


def _ticks(low: float, high: float, *, whole: bool, most: int = 5) -> list[float]:
    if not math.isfinite(high - low):
        return []
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * factor for factor in _STEPS if (high - low) / (size * factor) <= most)
    step = max(1.0, float(math.ceil(step))) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(first * step + i * step, 10) for i in range(math.floor(high / step + 1e-9) - first + 1)]
