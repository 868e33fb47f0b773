"""The exact linear theory of data augmentation of arXiv:2005.00695: how a transformed sample changes the error.

All of it is float64 numpy, in the letters of the paper: X [n, p] are the samples, beta [p] is the true parameter,
Y = X beta + noise of standard deviation sigma are the labels, lam is the ridge parameter, and z is the part of a new
sample outside the span of the rows of X.

>>> import numpy as np
>>> import outspan
>>> X, beta = np.eye(2, 3), np.ones(3)
>>> outspan.theory.ridge_error(X, beta, lam=0.5, sigma=0.0).bias
1.5

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from outspan.lazy import attach

if TYPE_CHECKING:
    from outspan.theory.bounds import Setting as Setting
    from outspan.theory.bounds import Statement as Statement
    from outspan.theory.bounds import theorem_1 as theorem_1
    from outspan.theory.bounds import theorem_1_rate as theorem_1_rate
    from outspan.theory.counterexample import counterexamples as counterexamples
    from outspan.theory.curves import Curve as Curve
    from outspan.theory.curves import theory_curves as theory_curves
    from outspan.theory.generate import flip as flip
    from outspan.theory.generate import projection as projection
    from outspan.theory.generate import rotation as rotation
    from outspan.theory.minnorm import minnorm_error as minnorm_error
    from outspan.theory.minnorm import minnorm_estimate as minnorm_estimate
    from outspan.theory.mixup import mixup_gain as mixup_gain
    from outspan.theory.mixup import theorem_2 as theorem_2
    from outspan.theory.ranking import Ranking as Ranking
    from outspan.theory.ranking import rank as rank
    from outspan.theory.ridge import Error as Error
    from outspan.theory.ridge import ridge_error as ridge_error
    from outspan.theory.ridge import ridge_estimate as ridge_estimate
    from outspan.theory.rows import Rows as Rows
    from outspan.theory.rows import is_label_invariant as is_label_invariant
    from outspan.theory.rows import mixed as mixed
    from outspan.theory.rows import projected as projected
    from outspan.theory.rows import transformed as transformed
    from outspan.theory.verification import verify as verify

_MODULES = {
    **dict.fromkeys(("Setting", "Statement", "theorem_1", "theorem_1_rate"), "bounds"),
    "counterexamples": "counterexample",
    **dict.fromkeys(("Curve", "theory_curves"), "curves"),
    **dict.fromkeys(("flip", "projection", "rotation"), "generate"),
    **dict.fromkeys(("minnorm_error", "minnorm_estimate"), "minnorm"),
    **dict.fromkeys(("mixup_gain", "theorem_2"), "mixup"),
    **dict.fromkeys(("Ranking", "rank"), "ranking"),
    **dict.fromkeys(("Error", "ridge_error", "ridge_estimate"), "ridge"),
    **dict.fromkeys(("Rows", "is_label_invariant", "mixed", "projected", "transformed"), "rows"),
    "verify": "verification",
}

__all__ = [
    "Curve",
    "Error",
    "Ranking",
    "Rows",
    "Setting",
    "Statement",
    "counterexamples",
    "flip",
    "is_label_invariant",
    "minnorm_error",
    "minnorm_estimate",
    "mixed",
    "mixup_gain",
    "projected",
    "projection",
    "rank",
    "ridge_error",
    "ridge_estimate",
    "rotation",
    "theorem_1",
    "theorem_1_rate",
    "theorem_2",
    "theory_curves",
    "transformed",
    "verify",
]

__getattr__, __dir__ = attach(__name__, {name: f"outspan.theory.{module}" for name, module in _MODULES.items()})
