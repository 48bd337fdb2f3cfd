r"""Work and energy on one segment: the value at its ends, and the integral of the supplied gradient between them.

Along a path x(t) a callable with a cotangent u has the value \(\varphi(t) = \langle u, f(x(t))\rangle\), and its backward supplies
\(\gamma(t) = \langle g(x(t)), \dot x(t)\rangle\). For a coherent callable the residual \(\varphi(t) - \int\gamma\) is constant; its slope is minus the
coherence defect along the path (eq. coherence-defect). A panel takes both at 17 Chebyshev points, integrates the interpolant of \(\gamma\), and fits the
residual by a cubic. The coefficients are the signal; what the cubic leaves is the noise, from the same numbers; the last Chebyshev coefficients of
\(\gamma\) tell what the quadrature missed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from pairgrad.coherence.measure.limits import threshold
from pairgrad.coherence.measure.path import Line

INTERVALS = 16
DEGREE = 3  # of the fit of the residual: a defect that varies over the panel like a parabola
_FREE = INTERVALS + 1 - (DEGREE + 1)

NODES = -np.cos(np.pi * np.arange(INTERVALS + 1) / INTERVALS)
NODES[INTERVALS // 2] = 0.0
_VANDERMONDE = chebyshev.chebvander(NODES, INTERVALS)
_COEFFICIENTS = np.linalg.inv(_VANDERMONDE)  # values at the nodes -> Chebyshev coefficients
# Antiderivative of each Chebyshev polynomial at the nodes, zero at the middle.
_ANTIDERIVATIVES = np.stack(
    [chebyshev.chebval(NODES, chebyshev.chebint(np.eye(INTERVALS + 1)[k], lbnd=0)) for k in range(INTERVALS + 1)], axis=1
)
INTEGRATION = _ANTIDERIVATIVES @ _COEFFICIENTS  # values of the integrand -> its integral from the middle to each node
_LOW = _VANDERMONDE[:, : DEGREE + 1]
_FIT = np.linalg.pinv(_LOW)
_SPREAD = np.sqrt(np.diag(_FIT @ _FIT.T))  # standard error of each coefficient for noise of size one
_TAIL = slice(INTERVALS - 4, INTERVALS + 1)
_TAIL_TO_NOISE = math.sqrt(INTERVALS / 2)  # noise of size one at the nodes gives coefficients of size sqrt(2 / INTERVALS)
# Noise of size one in gamma moves the coefficients of its integral over [-1, 1] by this much at most. A step of gamma inside the panel moves them by less than
# a step's own coefficients, taken for noise, allow.
_INTEGRATED = float(np.sqrt(np.diag((_FIT @ INTEGRATION) @ (_FIT @ INTEGRATION).T))[1:].max())
_ROUNDING = 2.0  # units in the last place of the value that may pass for a drift: the errors inside a function are smooth now and then


@dataclass(frozen=True, eq=False)
class Panel:
    """What one segment says.

    Attributes:
        middle, half: the segment [middle - half, middle + half] of the path's parameter.
        drift: coefficients T_1..T_3 of the residual, in units of the value.
        noise: standard deviation of the value about the fit.
        gradient_noise: standard deviation of gamma, from its last Chebyshev coefficients: noise, or structure finer than the nodes.
        quadrature: estimate of what the quadrature missed, in units of the value.
        allowance: what |drift| may be without being called significant: noise, quadrature and rounding together.
        defect: gamma - phi' at the middle, per unit of the parameter.
        gradient_size: sqrt(sum (g_j dx_j/dt)^2), root mean square over the panel: the size that |gamma| has for random signs of the direction.
        value_size: sqrt(sum (u_i f_i)^2), largest over the panel.
        work: integral of gamma; absolute_work: of |gamma|.
        residual: total change of value - work over the panel.
        slope: phi' at the middle: gamma - defect.
        step: largest change of gamma from one node to the next.
        rounding: one unit in the last place of the value.
        ruggedness: how far the value itself is from a smooth curve, from its last Chebyshev coefficients.
    """

    middle: float
    half: float
    drift: tuple[float, ...]
    noise: float
    gradient_noise: float
    quadrature: float
    allowance: float
    defect: float
    gradient_size: float
    value_size: float
    work: float
    absolute_work: float
    residual: float
    slope: float
    step: float
    ruggedness: float
    rounding: float

    @property
    def size(self) -> float:
        """Of the derivative along the path: as supplied, or as the value really moves if that is larger."""
        return max(self.gradient_size, abs(self.slope))

    @property
    def true(self) -> float:
        """The derivative of the value in the middle."""
        return self.slope

    @property
    def scale(self) -> float:
        """What a defect is relative to."""
        return self.size

    @property
    def significant(self) -> bool:
        return max(map(abs, self.drift)) > self.allowance

    @property
    def relative(self) -> float:
        return abs(self.defect) / self.size if self.size > 0 else 0.0

    @property
    def limit(self) -> float:
        """The smallest relative defect the panel would have called significant."""
        return self.allowance / self.half / self.size if self.size > 0 else 0.0 if self.flat else math.inf

    @property
    def flat(self) -> bool:
        """Whether neither the value nor the supplied gradient has anything to tell: the value does not move, and the gradient is zero."""
        return self.size == 0 and self.noise == 0 and not any(self.drift)

    @property
    def beyond_rounding(self) -> bool:
        """Whether the value stays within its noise along the segment, as the gradient says: nothing is wrong, and nothing more can be seen."""
        at_rounding = self.noise <= 2.0**10 * self.rounding
        return at_rounding and not self.significant and self.half * self.size <= self.allowance and not self.rough

    @property
    def unexplained(self) -> float:
        """How far the value is from any smooth curve that the gradient could explain: what kinks, jumps and narrow regions leave, and noise."""
        return self.noise + self.quadrature

    @property
    def rough(self) -> bool:
        """Whether the quadrature, not the noise, decides what can be seen: a kink, or structure finer than the nodes."""
        return self.quadrature > 0.5 * self.allowance


def noise_allowance(noise: float) -> float:
    """What a drift may be on account of noise in the value alone."""
    return threshold(_FREE) * noise * float(_SPREAD[1:].max())


def work_and_energy(line: Line, panel: Panel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nodes of a panel, the value there and the work done up to there, both from the middle on."""
    nodes = panel.middle + panel.half * NODES
    samples = [sample for sample in map(line.at, nodes.tolist()) if sample is not None]
    phi, gamma = np.array([sample.value for sample in samples]), np.array([sample.work for sample in samples])
    return nodes, phi - phi[INTERVALS // 2], panel.half * (INTEGRATION @ gamma)


@np.errstate(over="ignore", invalid="ignore")  # values next to overflow make a panel that says nothing
def measure(line: Line, middle: float, half: float) -> Panel | None:
    """The panel around `middle`, or None where the callable is not finite on all of it."""
    line.panels += 1
    samples = []
    for node in (middle + half * NODES).tolist():
        sample = line.at(node)
        if sample is None:
            return None
        samples.append(sample)
    phi = np.array([sample.value for sample in samples])
    gamma = np.array([sample.work for sample in samples])
    value_size = max(sample.value_size for sample in samples)
    gradient_size = math.sqrt(sum(sample.gradient_size**2 for sample in samples) / len(samples))
    work = half * (INTEGRATION @ gamma)
    residual = (phi - phi[INTERVALS // 2]) - work
    fit = _FIT @ residual
    left = residual - _LOW @ fit
    noise = math.sqrt(float(left @ left) / _FREE)
    tail = (_COEFFICIENTS @ gamma)[_TAIL]
    gradient_noise = _TAIL_TO_NOISE * math.sqrt(float(tail @ tail) / len(tail))
    ends = (_COEFFICIENTS @ (phi - phi[INTERVALS // 2]))[_TAIL]
    quantile = threshold(_FREE)
    quadrature = quantile * _INTEGRATED * half * gradient_noise
    rounding = line.epsilon * (_ROUNDING * value_size + 4 * half * gradient_size)
    allowance = noise_allowance(noise) + quadrature + rounding
    slope_of_fit = chebyshev.chebval(0.0, chebyshev.chebder(fit))
    defect = -float(slope_of_fit) / half
    return Panel(
        middle=middle,
        half=half,
        drift=tuple(float(c) for c in fit[1:]),
        noise=noise,
        gradient_noise=gradient_noise,
        quadrature=quadrature,
        allowance=allowance,
        defect=defect,
        gradient_size=gradient_size,
        value_size=value_size,
        work=float(work[-1] - work[0]),
        absolute_work=float(half * ((INTEGRATION @ np.abs(gamma))[-1] - (INTEGRATION @ np.abs(gamma))[0])),
        residual=float(residual[-1] - residual[0]),
        slope=float(gamma[INTERVALS // 2]) - defect,
        ruggedness=_TAIL_TO_NOISE * math.sqrt(float(ends @ ends) / len(ends)),
        rounding=line.epsilon * value_size,
        step=float(np.abs(np.diff(gamma)).max()),
    )
