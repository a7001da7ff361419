"""Prints the polynomial coefficients of crates/douse-core/src/math/vector.rs and of the GELU in
crates/douse-compiler/src/emit/cuda/math.cuh, constant term first.

    python scripts/fit_polynomials.py    # with numpy and mpmath installed

Each fit is near minimax: least squares reweighted towards the largest errors (Lawson's method). The coefficients are
rounded to float32 one by one, the constant first, and the rest fitted anew each time, so that the last ones make up
for the rounding of the first.
"""

import mpmath
import numpy

mpmath.mp.dps = 40
LN2 = mpmath.log(2)


def over(numerator, x, power):
    """numerator(x) / x^power for functions whose series starts there; x is never 0 among the nodes."""
    return numerator(mpmath.mpf(x)) / mpmath.mpf(x) ** power


def log2_tail(t):
    """log2 of the normal distribution's part beyond t."""
    return mpmath.log(mpmath.erfc(t / mpmath.sqrt(2)) / 2) / LN2


def from_square(function):
    return lambda s: function(mpmath.sqrt(s))


# name: function to fit, interval, degree, weight of an error there
FITS = {
    "EXP: (e^r - 1 - r) / r^2": (
        lambda r: over(lambda r: mpmath.exp(r) - 1 - r, r, 2),
        -0.3467,
        0.3467,
        5,
        lambda r: abs(r) + 0.05,
    ),
    "EXP2: (2^r - 1) / r": (
        lambda r: over(lambda r: mpmath.expm1(r * LN2), r, 1),
        -0.5,
        0.5,
        5,
        lambda r: abs(r) + 0.05,
    ),
    "LOG: (ln(1 + f) - f + f^2 / 2) / f^3": (
        lambda f: over(lambda f: mpmath.log1p(f) - f + f * f / 2, f, 3),
        -0.2930,
        0.4143,
        8,
        lambda f: f * f + 0.002,
    ),
    "LOG2: (log2(1 + f) - f) / f": (
        lambda f: over(lambda f: mpmath.log1p(f) / LN2 - f, f, 1),
        -0.2930,
        0.4143,
        9,
        lambda f: 1,
    ),
    "TANH: (tanh(x) - x) / x^3, in x^2": (
        from_square(lambda x: over(lambda x: mpmath.tanh(x) - x, x, 3)),
        0,
        0.625**2,
        4,
        lambda s: s + 0.005,
    ),
    "ERF: (erf(x) - x) / x, in x^2": (
        from_square(lambda x: over(lambda x: mpmath.erf(x) - x, x, 1)),
        0,
        1,
        6,
        lambda s: 1,
    ),
    "ERFC: ln(erfc(x)) / x": (
        lambda x: over(lambda x: mpmath.log(mpmath.erfc(x)), x, 1),
        1,
        4,
        7,
        lambda x: x * float(mpmath.erfc(x)),
    ),
    "SIN: (sin(r) - r) / r^3, in r^2": (
        from_square(lambda r: over(lambda r: mpmath.sin(r) - r, r, 3)),
        0,
        0.7855**2,
        3,
        lambda s: s + 0.005,
    ),
    "COS: (cos(r) - 1 + r^2 / 2) / r^4, in r^2": (
        from_square(lambda r: over(lambda r: mpmath.cos(r) - 1 + r * r / 2, r, 4)),
        0,
        0.7855**2,
        2,
        lambda s: s * s + 0.001,
    ),
    "GELU: (log2(tail(t)) + 1) / t": (
        lambda t: over(lambda t: log2_tail(t) + 1, t, 1),
        0,
        5.6,
        9,
        lambda t: t / (1 + t * t),
    ),
    "GELU, short: (log2(tail(t)) + 1) / t": (
        lambda t: over(lambda t: log2_tail(t) + 1, t, 1),
        0,
        6.5,
        6,
        lambda t: t,
    ),
}


def lawson(matrix, target, weight):
    emphasis = numpy.ones(len(target))
    for _ in range(30):
        scale = numpy.sqrt(emphasis) * weight
        coefficients = numpy.linalg.lstsq(matrix * scale[:, None], target * scale, rcond=None)[0]
        error = numpy.abs(matrix @ coefficients - target) * weight
        emphasis *= error + 1e-3 * error.max()
        emphasis /= emphasis.mean()
    return coefficients


def fit(function, low, high, degree, weight, nodes=401):
    angles = (numpy.arange(nodes) + 0.5) * numpy.pi / nodes
    x = (low + high) / 2 + (high - low) / 2 * numpy.cos(angles)
    x = numpy.where(numpy.abs(x) < 1e-9, 1e-9, x)
    target = numpy.array([float(function(mpmath.mpf(float(v)))) for v in x])
    weights = numpy.array([float(weight(v)) for v in x])
    powers = numpy.stack([x**k for k in range(degree + 1)], axis=1)
    fixed = []
    for k in range(degree + 1):
        rest = target - powers[:, :k] @ numpy.array(fixed) if fixed else target
        free = lawson(powers[:, k:], rest, weights)
        fixed.append(float(numpy.float32(free[0])))
    error = numpy.abs(powers @ numpy.array(fixed) - target) * weights
    return fixed, error.max()


def main():
    for name, arguments in FITS.items():
        coefficients, error = fit(*arguments)
        digits = ", ".join(f"{numpy.float32(c)!s}" for c in coefficients)
        print(f"{name}: weighted error 2^{numpy.log2(error):.1f}\n    [{digits}]")


if __name__ == "__main__":
    main()
