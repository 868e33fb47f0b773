"""How long the exact error of ridge takes at n = 1,000 and p = 20,000, and how much memory.

python benchmarks/theory.py
"""

import resource
import time

from outspan import rng
from outspan.theory.minnorm import minnorm_error
from outspan.theory.ridge import ridge_error


def main() -> None:
    """Print seconds and the peak of the whole process, the data's 160 MB and the interpreter included."""
    g = rng.generator(0, "benchmark")
    X, beta = g.standard_normal((1000, 20_000)), g.standard_normal(20_000)
    for name, call in (
        ("ridge", lambda: ridge_error(X, beta, 0.1, 0.5)),
        ("minimum norm", lambda: minnorm_error(X, beta, 0.5)),
    ):
        start = time.perf_counter()
        error = call()
        seconds, peak = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name:>12}: {seconds:.2f} s, peak {peak:.2f} GiB (bias {error.bias:.6g}, variance {error.variance:.6g})")


if __name__ == "__main__":
    main()
