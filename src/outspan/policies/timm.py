"""timm's policy strings, such as "rand-m9-n2-mstd0.5", as proposals.

A string is a name and options, separated by "-". A magnitude is a number from 0 to 10. It can be drawn anew for every transform
of every image, and is then converted to a level.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypedDict, cast

import numpy as np
import torch

from outspan.limits import Between, OneOf
from outspan.messages import shown
from outspan.plan import Plan
from outspan.policies import sampler
from outspan.policies.proposals import any_of, one_pair, parse_pairs
from outspan.policies.published import AUTOAUGMENT_PAIRS, FACTORS, mix_chains
from outspan.policies.steps import Proposal, Step
from outspan.transforms.table import find


class _Options(TypedDict, total=False):
    """The values of the options of a string. docs/dropin.md says what they mean."""

    m: int
    n: int
    w: int
    d: int
    mmax: int
    p: float
    a: float
    mstd: float
    inc: str
    b: str
    tweights: str


_MAGNITUDE, _DEVIATION, _SWITCH = Between(0, 1000), Between(0, 1e6, whole=False), OneOf(("0", "1"))
_RAND_OPTIONS = {
    "m": _MAGNITUDE,
    "n": Between(0, 100),
    "p": Between(0, 1, whole=False),
    "mstd": _DEVIATION,
    "mmax": Between(1, 1000),
    "inc": _SWITCH,
    "tweights": OneOf(("",)),
}
_AUGMIX_OPTIONS = {
    "m": _MAGNITUDE,
    "w": Between(1, 100),
    "d": Between(0, 100),
    "a": Between(0, 1e6, open_low=True, whole=False),
    "b": _SWITCH,
    "mstd": _DEVIATION,
}
OPTIONS: Mapping[str, Mapping[str, Between | OneOf]] = MappingProxyType(
    {
        "rand": _RAND_OPTIONS,
        "augmix": _AUGMIX_OPTIONS,
        **{name: {"mstd": _DEVIATION} for name in ("original", "originalr", "v0", "v0r")},
    }
)
_BLUR = "needs a Gaussian blur, which outspan does not have"
# By name: options that timm has, or once had, and outspan has not.
_MISSING = {"rand": {"t3a": _BLUR, "t3aw": _BLUR, "w0": "was removed from timm; use 'tweights', whose weights are similar"}}
# The transforms of "rand", with the relative weights of "tweights". "identity" stands for SolarizeAdd.
_RAND = {
    **{"rotate": 60, "shear_x": 40, "shear_y": 40, "translate_x": 20, "translate_y": 20},
    **{"color": 5, "sharpness": 5, "auto_contrast": 5, "contrast": 1, "brightness": 1, "equalize": 1},
    **{"solarize": 1, "posterize": 1, "invert": 1, "identity": 1},
}
_AUGMIX = tuple(name for name in _RAND if name not in ("invert", "identity"))
# transform, probability, magnitude from 0 to 10
_V0_PAIRS = (
    "equalize 0.8, shear_y 0.8 4",
    "color 0.4 9, equalize 0.6",
    "color 0.4 1, rotate 0.6 8",
    "solarize 0.8 3, equalize 0.4",
    "solarize 0.4 2, solarize 0.6 2",
    "color 0.2 0, equalize 0.8",
    "equalize 0.4, identity 0.8",
    "shear_x 0.2 9, rotate 0.6 8",
    "color 0.6 1, equalize 1",
    "invert 0.4, rotate 0.6 0",
    "equalize 1, shear_y 0.6 3",
    "color 0.4 7, equalize 0.6",
    "posterize 0.4 6, auto_contrast 0.4",
    "solarize 0.6 8, color 0.6 9",
    "solarize 0.2 4, rotate 0.8 9",
    "rotate 1 7, translate_y 0.8 9",
    "shear_x 0 0, solarize 0.8 4",
    "shear_y 0.8 0, color 0.6 4",
    "color 1 0, rotate 0.6 2",
    "equalize 0.8, equalize 0",
    "equalize 1, auto_contrast 0.6",
    "shear_y 0.4 7, identity 0.6",
    "posterize 0.8 2, solarize 0.6 10",
    "solarize 0.6 8, equalize 0.6",
    "color 0.8 6, rotate 0.4 5",
)

# Levels from magnitudes, as fractions of 10, and random signs.
_Conversions = Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]
_PLAIN: _Conversions = {
    **dict.fromkeys(("rotate", "shear_x", "shear_y"), lambda fraction, sign: sign * fraction),  # 30 degrees, 0.3
    **dict.fromkeys(("translate_x", "translate_y"), lambda fraction, sign: sign * fraction * (0.45 / (10 / 32))),
    **dict.fromkeys(FACTORS, lambda fraction, sign: 2 * fraction - 1),  # 0.1 to 1.9
    "posterize": lambda fraction, sign: 2 - np.floor(4 * fraction) / 4,  # 0 to 4 bits are kept
    "solarize": lambda fraction, sign: 1 - np.floor(256 * fraction) / 256,  # thresholds from 0 to 256
}
_INCREASING: _Conversions = {
    **_PLAIN,
    **dict.fromkeys(FACTORS, lambda fraction, sign: np.maximum(sign * fraction, -1)),  # 1 plus or minus up to 0.9
    "posterize": lambda fraction, sign: 1 + np.floor(4 * fraction) / 4,  # 4 to 0 bits
    "solarize": lambda fraction, sign: np.floor(256 * fraction) / 256,  # 256 to 0
}
_LEVELS: Mapping[str, _Conversions] = {
    "plain": _PLAIN,
    "increasing": _INCREASING,
    "original": {**_PLAIN, "posterize": lambda fraction, sign: 1 - np.floor(4 * fraction) / 4},  # 4 to 8 bits
    "research": {**_PLAIN, "posterize": _INCREASING["posterize"]},
    "augmix": {**_INCREASING, **dict.fromkeys(("translate_x", "translate_y"), lambda fraction, sign: sign * fraction * 0.96)},
}


def parse_policy(text: str) -> Proposal:
    """Return the proposal of one of timm's policy strings, such as "rand-m9-n2-mstd0.5-inc1" or "augmix-m5-w4-d2".

    Args:
        text: "rand", "augmix", "original", "originalr", "v0" or "v0r", and options as in timm. docs/dropin.md lists them.
            An unknown option is a ValueError that shows its position.
    """
    name, options = _parse(text)
    if name == "rand":
        return _build_rand(options, text)
    if name == "augmix":
        depth, magnitude = options.get("d", 0), options.get("m", 3)
        lengths = (depth, depth) if depth else (1, 3)
        chains = any_of(_steps(((transform, 1.0, magnitude) for transform in _AUGMIX), magnitude), lengths[1])
        noisy = partial(_draw, chains, "augmix", _scale(magnitude), options.get("mstd", math.inf), 10)
        return mix_chains(noisy, options.get("w", 3), lengths, options.get("a", 1.0))
    levels = {"original": "original", "v0": "plain"}.get(name, "research")
    pairs = _V0_PAIRS if name.startswith("v0") else AUTOAUGMENT_PAIRS["imagenet"]
    return partial(_draw, one_pair(_steps(parse_pairs(pairs), 10)), levels, _scale(10), options.get("mstd", 0), 10)


def _build_rand(options: _Options, text: str) -> Proposal:
    magnitude, depth, most = options.get("m", 10), options.get("n", 2), options.get("mmax", 10)
    steps = _steps(((name, options.get("p", 0.5), magnitude) for name in _RAND), magnitude)
    if "tweights" not in options:
        chosen = any_of(steps, depth)
    elif depth > len(steps):
        raise ValueError(f"policy {shown(text)}: n must be at most {len(steps)} with 'tweights', got {depth}")
    else:
        chosen = sampler.propose(steps, depth, partial(_pick_weighted, [*_RAND.values()]))
    deviation = options.get("mstd", 0)
    deviation = math.inf if deviation > 100 else deviation
    levels = "increasing" if options.get("inc") == "1" or "tweights" in options else "plain"
    return partial(_draw, chosen, levels, _scale(magnitude), deviation, most)


def _scale(magnitude: int) -> int:
    """Return the magnitude that stands at level 1 in the steps, before they are converted."""
    return max(10, magnitude)


def _steps(entries: Iterable[tuple[str, float, int]], largest: int) -> list[Step]:
    """Return steps whose levels are magnitudes, as fractions of `_scale(largest)`."""
    scale = _scale(largest)
    return [Step(name, m / scale, m / scale, probability, mirrored=find(name).signed) for name, probability, m in entries]


def _draw(
    propose: Proposal,
    levels: str,
    scale: int,
    deviation: float,
    most: int,
    size: int,
    *,
    rng: np.random.Generator,
    candidates: int = 1,
) -> Plan:
    """Draw a plan whose levels are magnitudes and signs, add the noise to the magnitudes, and convert them to levels."""
    plan = propose(size, rng=rng, candidates=candidates)
    ops, drawn = plan.ops.numpy(), plan.levels.numpy()
    magnitude, sign = np.rint(scale * np.abs(drawn).astype(np.float64)), np.copysign(1.0, drawn)
    if math.isinf(deviation):
        magnitude *= rng.random(magnitude.shape)
    elif deviation:
        magnitude += deviation * rng.standard_normal(magnitude.shape)
    fraction, result = magnitude.clip(0, most) / 10, np.zeros_like(drawn)
    for op, name in enumerate(plan.names):
        if find(name).graded:
            low, high = find(name).levels
            converted = _LEVELS[levels][name](fraction, sign).astype(np.float32).clip(low, high)
            result = np.where(ops == op, converted, result)
    return replace(plan, levels=torch.from_numpy(result))


def _pick_weighted(weights: list[int], bits: np.ndarray, generators: Any) -> np.ndarray:
    """Choose different steps for each row, one after another, each in proportion to its weight."""
    rows = len(bits) // len(generators)
    waiting = np.concatenate([rng.standard_exponential((rows, len(weights))) for rng in generators]) / weights
    return waiting.argsort(axis=1)[:, : bits.shape[1]]  # the first of several exponential times


def _parse(text: str) -> tuple[str, _Options]:
    """Return the name of a policy string and the values of its options."""
    if not isinstance(text, str):
        raise ValueError(f"policy takes a text such as 'rand-m9-mstd0.5', got {shown(text)}")
    name, *parts = text.split("-")
    where = f"policy {shown(text)}"
    if name == "3a":
        raise ValueError(f"{where}: {name!r} at character 1 {_BLUR}")
    if name not in OPTIONS:
        raise ValueError(f"{where}: unknown name {shown(name)} at character 1 (known: {', '.join(OPTIONS)})")
    options: dict[str, Any] = {}
    known, position = OPTIONS[name], len(name) + 2
    for part in parts:
        here = f"{where}: {shown(part)} at character {position}"
        position += len(part) + 1
        key = re.split(r"[^a-z]", part)[0]
        if part in _MISSING.get(name, {}):
            raise ValueError(f"{here} {_MISSING[name][part]}")
        if key not in known:
            raise ValueError(f"{here} is unknown (known: {', '.join(known)})")
        if key in options:
            raise ValueError(f"{here} sets {key!r} a second time: remove one")
        options[key] = _value(part.removeprefix(key), known[key])
        if options[key] is None:
            raise ValueError(f"{here} is wrong: after {key!r} comes {_describe(known[key])}")
    return name, cast(_Options, options)


def _value(text: str, allowed: Between | OneOf) -> Any:
    """Return the value of an option, or None if it is not allowed."""
    value: Any = text
    if isinstance(allowed, Between):
        form = r"\d{1,9}" if allowed.whole else r"\d{1,9}(\.\d{1,9})?"
        if not re.fullmatch(form, text, re.ASCII):
            return None
        value = int(text) if allowed.whole else float(text)
    return value if allowed.holds(value) else None


def _describe(allowed: Between | OneOf) -> str:
    if isinstance(allowed, OneOf):
        return " or ".join(allowed.names) or "nothing"
    return f"a {'whole number from' if allowed.whole else 'number in'} {allowed}"
