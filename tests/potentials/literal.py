"""The finite recurrence as the paper prints it, in mpmath at the working precision, and running error bounds of its float64 ratios."""

from __future__ import annotations

import math

import mpmath

EPSILON = 1e-20
UNIT = 2.0**-53  # unit roundoff of float64
# torch.special.i0e and i1e are sums of 25 to 30 Chebyshev terms times exp: Cephes states a peak error of 3e-16; we allow 8 units each.
BESSEL_UNITS = 8


def literal(nu, start, x, epsilon=EPSILON):
    """Value (eq. miller-potential with the source's log(x + epsilon)) and raw ratio (eq. miller-three) at the working precision."""
    x = mpmath.mpf(x)
    above, here = mpmath.mpf(0), mpmath.mpf(1)  # b_{M+1}, b_M
    kept = {start + 1: above, start: here}
    for i in range(start, 0, -1):
        above, here = here, 2 * i / x * here + above
        if i - 1 in (0, nu, nu + 1):
            kept[i - 1] = here
    value = mpmath.log(mpmath.besseli(0, x)) + mpmath.log(kept[nu] / kept[0]) - nu * mpmath.log(x + mpmath.mpf(epsilon))
    return value, kept[nu + 1] / kept[nu]


def literal_slope(nu, start, x, epsilon=EPSILON):
    """Numerical derivative of the literal value, at a precision of which 30 digits or more survive."""
    return mpmath.diff(lambda y: literal(nu, start, y, epsilon)[0], mpmath.mpf(x), relative=True)


def running_bounds(nu, start, x):
    """Running error bounds of the float64 recurrence: absolute of the value, relative of the raw ratio, absolute of the tangent slope.

    d, relative error of rho: four roundings (2/x, times i, sum, quotient), and the previous error times the share rho rho' of the sum.
    e, absolute error of l: errors of both ratios and three roundings on |l|, and 2u + e on the weight rho rho'.
    The value adds nu logarithms of factors with error d + 3u, and rounds each partial sum twice; the slope adds nu tangents.
    """
    rho, d, l, e = 0.0, 0.0, 0.0, 0.0
    at_nu, product, partial, partial_error, tangents, tangent_error = None, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(start, 0, -1):
        below = 1 / (2 * i / x + rho)
        share = below * rho
        d_below = 4 * UNIT + share * d
        l_below = -share * (2 + l)
        e = abs(l_below) * (d + d_below + 3 * UNIT) + share * (e + 2 * UNIT)
        rho, d, l = below, d_below, l_below
        if i - 1 == nu:
            at_nu = d
        if i - 1 < nu:
            product += d + 3 * UNIT
            partial += max(abs(math.log(x)), math.log(2 * i))
            partial_error += 2 * UNIT * (partial + 1)
            tangents += abs(l)
            tangent_error += e + UNIT * tangents
    value = product + partial_error + (BESSEL_UNITS + 3 * x + 2 * partial + 2 * math.log(1 + x)) * UNIT
    return value, at_nu, tangent_error / x + ((2 * BESSEL_UNITS + 4) * min(1.0, x / 2) + 2 * tangents / x) * UNIT
