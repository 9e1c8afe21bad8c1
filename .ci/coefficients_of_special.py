"""The smooth functions behind the special functions' polynomials: rows for `FITS` of `make_coefficients.py`.

Each is named for the function it serves; the module of that in `flambeau_kernels/scalar/` says how it is put together again.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mpmath as mp

Z = mp.mpf
DIGAMMA_ZERO = mp.findroot(mp.digamma, Z("1.4616321449683623"))


def lgamma_two(d):                                    # lgamma(2 + d) = d two(d)
    return mp.loggamma(2 + d) / d if abs(d) > Z(10) ** -25 else 1 - mp.euler


def digamma_one(u):                                   # digamma(3/2 + u) = (3/2 + u - its zero) one(u)
    return mp.digamma(Z("1.5") + u) / (Z("1.5") + u - DIGAMMA_ZERO)


def near(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of x in [0, 8] as one of (x/8)**2, away from 0 where quotients would be 0/0."""
    return lambda z: function(8 * mp.sqrt(z if z > Z(10) ** -25 else Z(10) ** -25))


def centred(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of x in [0, 8] as one of (x/8)**2 - 1/2: without the large terms of both signs of powers of (x/8)**2."""
    return lambda u: near(function)(u + Z("0.5"))


def far(function: Callable[[Any], Any], start: int = 8) -> Callable[[Any], Any]:
    """A function of x in [start, inf) as one of start / x."""
    return lambda t: function(start / t)


def i_scaled(order: int) -> Callable[[Any], Any]:
    return lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)


def k_scaled(order: int) -> Callable[[Any], Any]:
    return lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)


def k0_rest(z):                                       # K0(x) = rest((x/2)**2) - log(x/2) I0(x)
    x = 2 * mp.sqrt(z)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k1_rest(z):                                       # K1(x) = 1/x + x rest((x/2)**2) + log(x/2) I1(x)
    x = 2 * mp.sqrt(z)
    return (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x) - 1 / x) / x


J0_ZEROS = (mp.besseljzero(0, 1), mp.besseljzero(0, 2))
J1_ZEROS = (mp.besseljzero(1, 1), mp.besseljzero(1, 2))


def without_zeros(function: Callable[[Any], Any], zeros: tuple[Any, ...]) -> Callable[[Any], Any]:
    return lambda x: function(x) / mp.fprod(x * x - zero**2 for zero in zeros)


def y0_rest(x):                                       # Y0(x) = rest + 2/pi log(x) J0(x)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1_rest(x):                                       # Y1(x) = x rest + 2/pi (log(x) J1(x) - 1/x)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def phase(order: int, part: str) -> Callable[[Any], Any]:
    """P and x Q of Hankel's expansions (Abramowitz and Stegun 1964, 9.2.5 to 9.2.10), functions of (8/x)**2."""
    def function(w):
        x = 8 / mp.sqrt(w)
        chi = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        size = mp.sqrt(mp.pi * x / 2)
        if part == "P":
            return size * (j * mp.cos(chi) + y * mp.sin(chi))
        return size * (y * mp.cos(chi) - j * mp.sin(chi)) * x

    return function


def ndtri_tail(t):                                    # -ndtri(q) = v tail(1/v), v = sqrt(-2 log(q))
    v = 1 / t
    target = -v * v / 2
    a = v - mp.log(v * mp.sqrt(2 * mp.pi)) / v
    for _ in range(60):                               # Newton's method on the logarithm of the distribution function
        tail = mp.erfc(a / mp.sqrt(2)) / 2
        step = (mp.log(tail) - target) * tail / (mp.exp(-a * a / 2) / mp.sqrt(2 * mp.pi))
        a += step
        if abs(step) < Z(10) ** -40:
            break
    return a / v


def ndtri_middle(w):                                  # ndtri(1/2 + r) = r middle(r**2)
    r = mp.sqrt(w)
    return mp.sqrt(2) * mp.erfinv(2 * r) / r


AIRY_ZEROS = (mp.airyaizero(1), mp.airyaizero(2))


def airy_without_zeros(x):
    return mp.airyai(x) / mp.fprod(x - zero for zero in AIRY_ZEROS)


def airy_turns(part: str) -> Callable[[Any], Any]:
    """P and zeta Q of Ai's expansion for large -x (DLMF 9.7.9, 9.7.11), functions of (8/zeta)**2, zeta = 2/3 (-x)**(3/2)."""
    def function(w):
        zeta = 8 / mp.sqrt(w)
        x = (3 * zeta / 2) ** (Z(2) / 3)
        chi = zeta - mp.pi / 4
        ai, bi = mp.airyai(-x), mp.airybi(-x)
        size = mp.sqrt(mp.pi) * mp.root(x, 4)
        if part == "P":
            return size * (ai * mp.cos(chi) - bi * mp.sin(chi))
        return size * (ai * mp.sin(chi) + bi * mp.cos(chi)) * zeta

    return function


# name: function, interval, degree for float32, degree for float64 (None: not used there).
# The incomplete gamma functions of a large parameter `a` at x = a (1 + mu) are those of the normal distribution at eta, the root of
# eta**2 / 2 = mu - log(1 + mu) with the sign of mu, but for exp(-a eta**2 / 2) / sqrt(2 pi a) times the sum of c_k(eta) / a**k: Temme 1979,
# "The asymptotic expansion of the incomplete gamma functions", SIAM J. Math. Anal. 10; DLMF 8.12.
UNIFORM, POWERS = 13, 64                              # of those functions, and of eta


@functools.cache
def uniform_series() -> list[list[Any]]:
    """The power series of c_0, c_1, ... in eta: DLMF 8.12.10 to 8.12.13."""
    mu = [Z(0), Z(1)]                                 # of mu in eta, by mu mu' = eta (1 + mu)
    for n in range(2, POWERS + 2 * UNIFORM + 2):
        mu.append((mu[n - 1] - sum(mu[i] * (n + 1 - i) * mu[n + 1 - i] for i in range(2, n))) / (n + 1))
    logarithm = [Z(0) if n % 2 == 0 else mp.bernoulli(n + 1) / (n * (n + 1)) for n in range(UNIFORM)]
    stirling = [Z(1)]                                 # of Gamma(a) / (sqrt(2 pi / a) (a/e)**a) in 1/a
    for n in range(1, UNIFORM):
        stirling.append(sum(j * logarithm[j] * stirling[n - j] for j in range(1, n + 1)) / n)
    first = [(n + 2) * mu[n + 2] for n in range(len(mu) - 2)]
    first[0] = first[0] - 1
    made = [first]
    for k in range(1, UNIFORM):
        before = made[-1]
        made.append([(-1) ** k * stirling[k] * first[n] + (n + 2) * before[n + 2] for n in range(len(before) - 2)])
    return made


def uniform(k: int) -> Callable[[Any], Any]:
    return lambda eta: mp.polyval(list(reversed(uniform_series()[k][:POWERS])), eta)


SPECIAL = {
    "lgamma_two": (lgamma_two, (-Z("0.5"), Z("0.5")), None, 19),
    "digamma_one": (digamma_one, (-Z("0.5"), Z("0.5")), None, 21),
    "i0": (near(lambda x: mp.besseli(0, x)), (Z(0), Z(1)), 11, 18),
    "i0_far": (far(i_scaled(0)), (Z("1e-6"), Z(1)), 6, 22),
    "i1": (near(lambda x: mp.besseli(1, x) / x), (Z(0), Z(1)), 10, 18),
    "i1_far": (far(i_scaled(1)), (Z("1e-6"), Z(1)), 6, 22),
    "k0": (k0_rest, (Z("1e-30"), Z(1)), 6, 10),
    "k0_far": (far(k_scaled(0), 2), (Z("1e-6"), Z(1)), 9, 24),
    "k1": (k1_rest, (Z("1e-30"), Z(1)), 6, 10),
    "k1_far": (far(k_scaled(1), 2), (Z("1e-6"), Z(1)), 9, 24),
    "j0": (centred(without_zeros(lambda x: mp.besselj(0, x), J0_ZEROS)), (-Z("0.5"), Z("0.5")), 9, 18),
    "j1": (centred(without_zeros(lambda x: mp.besselj(1, x) / x, J1_ZEROS)), (-Z("0.5"), Z("0.5")), 9, 18),
    "y0": (centred(y0_rest), (-Z("0.5"), Z("0.5")), 13, 20),
    "y1": (centred(y1_rest), (-Z("0.5"), Z("0.5")), 13, 20),
    "p0": (phase(0, "P"), (Z("1e-8"), Z(1)), 4, 12),
    "q0": (phase(0, "Q"), (Z("1e-8"), Z(1)), 4, 12),
    "p1": (phase(1, "P"), (Z("1e-8"), Z(1)), 4, 12),
    "q1": (phase(1, "Q"), (Z("1e-8"), Z(1)), 4, 12),
    "airy_far": (far(lambda z: mp.sqrt(z) * mp.exp(z) * mp.besselk(Z(1) / 3, z), 2), (Z("1e-6"), Z(1)), 9, 24),
    "airy_middle": (lambda u: mp.airyai(u + 1) * mp.exp(Z("1.25") * (u + 1)), (Z("-1.0001"), Z("1.0802")), 10, 18),
    "airy_near": (lambda u: airy_without_zeros(Z("2.625") * (u - 1)), (Z(-1), Z(1)), 18, 29),
    "airy_p": (airy_turns("P"), (Z("1e-8"), Z(1)), 4, 12),
    "airy_q": (airy_turns("Q"), (Z("1e-8"), Z(1)), 4, 12),
    "ndtri": (ndtri_middle, (Z("1e-28"), Z("0.0901")), 9, 17),
    "ndtri_tail": (ndtri_tail, (Z("0.0258"), Z("0.56")), None, 15),
    "ndtri_tail_single": (ndtri_tail, (Z("0.069"), Z("0.56")), 12, None),
    **{f"igamma_{k}": (uniform(k), (-Z("0.61"), Z("0.51")), 7 - k if k < 6 else None, 15 - k) for k in range(UNIFORM)},
}
