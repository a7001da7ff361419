"""Writes crates/douse-core/src/math/reference.txt: PyTorch's float64 answers for every function of the math table.

    python scripts/make_math_reference.py    # with torch installed

A line is a function's name, then `x=value` or `x,y=value` items. Arguments are exact, values have 11 digits, those of nextafter 17.
"""

import itertools
import pathlib

import torch

INF, NAN = float("inf"), float("nan")
EDGES = [0.0, -0.0, INF, -INF, NAN]
WIDE = EDGES + [
    1e-300,
    -1e-8,
    1e-4,
    0.25,
    -0.5,
    0.75,
    1.0,
    -1.0,
    1.5,
    2.0,
    -2.5,
    3.25,
    3.5,
    -5.5,
    8.5,
    -9.75,
    14.0,
    23.5,
    40.0,
    -100.5,
    700.0,
]
POSITIVE = EDGES + [
    -1.0,
    1e-300,
    1e-8,
    1e-3,
    0.1,
    0.5,
    1.0,
    1.75,
    2.0,
    2.25,
    3.0,
    3.5,
    5.25,
    7.75,
    10.0,
    16.5,
    24.5,
    40.0,
    100.25,
    600.0,
    1e4,
]
UNIT = EDGES + [
    1e-300,
    1e-20,
    -1e-9,
    1e-3,
    0.02,
    -0.1,
    0.25,
    0.3,
    0.5,
    -0.625,
    0.75,
    0.9,
    0.99,
    -0.999,
    0.9999999,
    1 - 2**-40,
    1 - 2**-53,
    -1.0,
    1.0,
    1.5,
    -2.0,
]
SMALL = EDGES + [-1.25, -0.75, 0.5, 1.0, 2.5, 3e5]
GAMMA_FIRST = [0.0, 1e-3, 0.3, 1.0, 2.5, 10.0, 30.0, 200.0, 1e4, INF, NAN, -1.0]
GAMMA_SECOND = [0.0, 1e-6, 0.2, 1.0, 2.75, 9.0, 35.0, 190.0, 1.01e4, INF, NAN, -0.5]
DEGREES = [-1, 0, 1, 2, 5, 7, 10, 31.9, INF, NAN]
POINTS = [0.0, INF, NAN, 1.0, -1.0, 0.5, -0.3, 0.875, 0.0625, 1.25, -2.0]

special = torch.special


def rows():
    unary = {
        "airy_ai": (special.airy_ai, WIDE + [-3.0, -7.5, -8.5, -20.0, 1.1]),
        "bessel_j0": (special.bessel_j0, WIDE),
        "bessel_j1": (special.bessel_j1, WIDE),
        "bessel_y0": (special.bessel_y0, POSITIVE),
        "bessel_y1": (special.bessel_y1, POSITIVE),
        "i0": (special.i0, WIDE),
        "i0e": (special.i0e, WIDE + [1e10]),
        "i1": (special.i1, WIDE),
        "i1e": (special.i1e, WIDE + [1e10]),
        "modified_bessel_k0": (special.modified_bessel_k0, POSITIVE),
        "modified_bessel_k1": (special.modified_bessel_k1, POSITIVE),
        "scaled_modified_bessel_k0": (special.scaled_modified_bessel_k0, POSITIVE),
        "scaled_modified_bessel_k1": (special.scaled_modified_bessel_k1, POSITIVE),
        "spherical_bessel_j0": (special.spherical_bessel_j0, WIDE),
        "erf": (torch.erf, WIDE),
        "erfc": (torch.erfc, WIDE),
        "erfcx": (special.erfcx, WIDE + [-26.0, -30.0, 11.5, 12.5, 1e9]),
        "erfinv": (torch.erfinv, UNIT),
        "log_ndtr": (special.log_ndtr, WIDE + [-1.5, -38.0, 6.0]),
        "ndtr": (special.ndtr, [x for x in WIDE if not -INF < x < -8]),
        "ndtri": (special.ndtri, UNIT),
        "frac": (torch.frac, WIDE),
        "round": (torch.round, WIDE),
        "sign": (torch.sign, WIDE),
        "digamma": (torch.digamma, WIDE + [-0.3, -7.1, 9.99, 1e18]),
        "lgamma": (torch.lgamma, WIDE + [-0.3, -7.1, 1e18, -3.0]),
        "entr": (special.entr, WIDE),
        "logit": (torch.logit, UNIT),
        "sinc": (torch.sinc, WIDE),
    }
    binary = {
        "copysign": (torch.copysign, SMALL, SMALL),
        "floor_divide": (torch.floor_divide, SMALL + [1.0, 0.3], SMALL + [0.1]),
        "fmax": (torch.fmax, SMALL, SMALL),
        "fmin": (torch.fmin, SMALL, SMALL),
        "fmod": (torch.fmod, SMALL, SMALL),
        "heaviside": (torch.heaviside, SMALL, [0.0, 2.5, NAN]),
        "hypot": (torch.hypot, SMALL, SMALL),
        "ldexp": (torch.ldexp, SMALL, [0.0, 3.0, -4.0, 1100.0, -1080.0]),
        "maximum": (torch.maximum, SMALL, SMALL),
        "minimum": (torch.minimum, SMALL, SMALL),
        "nextafter": (torch.nextafter, SMALL, [0.0, INF, -INF, NAN, 1.0]),
        "remainder": (torch.remainder, SMALL, SMALL),
        "igamma": (torch.igamma, GAMMA_FIRST, GAMMA_SECOND),
        "igammac": (torch.igammac, GAMMA_FIRST, GAMMA_SECOND),
        "zeta": (
            special.zeta,
            [1.0, 0.5, 1.5, 2.0, 3.0, 7.0, 30.0, NAN],
            [0.0, 0.1, 1.0, 2.5, 30.0, 1e6, -1.0, -0.25, -3.6, NAN, INF],
        ),
        "polygamma": (
            lambda n, x: special.polygamma(int(n), x),
            [0.0, 1.0, 2.0, 3.0, 7.0],
            [0.1, 1.0, 2.5, 12.0, 150.0, -0.25, -3.6, 0.0, -2.0, NAN, INF],
        ),
        "logaddexp": (torch.logaddexp, SMALL, SMALL),
        "logaddexp2": (torch.logaddexp2, SMALL, SMALL),
        "xlog1py": (special.xlog1py, SMALL, SMALL),
        "xlogy": (torch.xlogy, SMALL, SMALL),
        "round_decimals": (
            lambda x, n: torch.round(x, decimals=int(n)),
            [2.675, -1234.5678, 0.125, 1e300, INF, NAN],
            [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0],
        ),
    }
    for kind in (
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
        "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
    ):
        binary[kind] = (getattr(special, kind), POINTS, [float(n) for n in DEGREES])
    for name, (function, xs) in unary.items():
        yield name, function, [(x,) for x in xs]
    for name, (function, xs, ys) in binary.items():
        yield name, function, list(itertools.product(xs, ys))


def call(name, function, arguments):
    tensors = [torch.tensor(a, dtype=torch.float64) for a in arguments]
    if name in ("polygamma", "round_decimals"):
        scalar = 0 if name == "polygamma" else 1
        tensors[scalar] = arguments[scalar]
    return function(*tensors).item()


def text(x):
    return repr(x).removesuffix(".0")


def main():
    path = pathlib.Path(__file__).parents[1] / "crates/douse-core/src/math/reference.txt"
    lines = []
    for name, function, cases in rows():
        digits = 17 if name == "nextafter" else 11
        items = (f"{','.join(map(text, c))}={call(name, function, c):.{digits}g}" for c in cases)
        lines.append(" ".join([name, *items]))
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
