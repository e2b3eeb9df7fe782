"""exp, log and atan with the same bits everywhere: no library, no fused operations, no branches.

Written once for floats, for arrays of numpy and for numba; kernels/formula.cuh has the same
operations in the same order. After e_exp.c, e_log.c and s_atan.c of fdlibm (Sun Microsystems
1993); the errors are below 1 ulp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SHIFTER = 6755399441055744.0
"""1.5 * 2**52: adding it rounds to an integer, which its lowest bits then hold."""

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


# -- what numba compiles to an instruction each, see `machine` -----------------------------------


def bits_of(x: Any) -> Any:
    """A float64's bits as int64."""
    return np.asarray(x, np.float64).view(np.int64)


def float_of(bits: Any) -> Any:
    """The float64 with these bits."""
    return np.asarray(bits, np.int64).view(np.float64)


def real(whole: Any) -> Any:
    """An int64 as float64."""
    return np.asarray(whole, np.int64).astype(np.float64)


def quotient(a: Any, b: Any) -> Any:
    """a / b, also for b = 0."""
    return np.true_divide(a, b)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`."""
    return np.where(condition, yes, no)


# -- the functions -------------------------------------------------------------------------------


def exp(x: Any) -> Any:
    """The exponential of any number."""
    shifted = x * 1.44269504088896338700 + SHIFTER
    k = shifted - SHIFTER
    high = x - k * LN2_HIGH
    low = k * LN2_LOW
    r = high - low
    t = r * r
    c = 4.13813679705723846039e-08
    c = -1.65339022054652515390e-06 + t * c
    c = 6.61375632143793436117e-05 + t * c
    c = -2.77777777770155933842e-03 + t * c
    c = 1.66666666666666019037e-01 + t * c
    c = r - t * c
    y = 1.0 - ((low - quotient(r * c, 2.0 - c)) - high)
    # Times 2**k in two steps, as 2**k itself may be no normal float64.
    half = k * 0.5 + SHIFTER
    rest = (k - (half - SHIFTER)) + SHIFTER
    y = y * float_of((bits_of(half) + 1023) << 52) * float_of((bits_of(rest) + 1023) << 52)
    return select(x > 709.782712893384, np.inf, select(x < -745.2, 0.0, y))


def log(x: Any) -> Any:
    """The natural logarithm; NaN below 0."""
    tiny = x < 2.2250738585072014e-308
    scaled = select(tiny, x * 18014398509481984.0, x)  # 2**54
    # x = 2**k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
    n = bits_of(scaled) + 0x00095F6200000000
    k = real((n >> 52) - 1023) - select(tiny, 54.0, 0.0)
    f = float_of((n & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E00000000) - 1.0
    s = quotient(f, 2.0 + f)
    z = s * s
    w = z * z
    even = 2.222219843214978396e-01 + w * 1.531383769920937332e-01
    even = w * (3.999999999940941908e-01 + w * even)
    odd = 1.818357216161805012e-01 + w * 1.479819860511658591e-01
    odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * odd))
    square = 0.5 * f * f
    y = s * (square + (odd + even)) + k * LN2_LOW - square + f + k * LN2_HIGH
    y = select(x == np.inf, np.inf, select(x == 0.0, -np.inf, y))
    return select(x >= 0.0, y, np.nan)


def atan(x: Any) -> Any:
    """The arc tangent."""
    a = select(x < 0.0, -x, x)
    # atan(a) = atan(c) + atan((a - c) / (1 + a c)), for the nearest c of 0, 1/2, 1, 3/2, infinity.
    one, two, three, four = a < 0.4375, a < 0.6875, a < 1.1875, a < 2.4375
    up = select(two, 2.0 * a - 1.0, select(three, a - 1.0, select(four, a - 1.5, -1.0)))
    down = select(two, 2.0 + a, select(three, a + 1.0, select(four, 1.0 + 1.5 * a, a)))
    t = quotient(select(one, a, up), select(one, 1.0, down))
    high = select(three, 7.85398163397448278999e-01, 9.82793723247329054082e-01)
    high = select(four, high, 1.57079632679489655800e00)
    high = select(one, 0.0, select(two, 4.63647609000806093515e-01, high))
    low = select(three, 3.06161699786838301793e-17, 1.39033110312309984516e-17)
    low = select(four, low, 6.12323399573676603587e-17)
    low = select(one, 0.0, select(two, 2.26987774529616870924e-17, low))
    z = t * t
    w = z * z
    odd = 4.97687799461593236017e-02 + w * 1.62858201153657823623e-02
    odd = 9.09088713343650656196e-02 + w * (6.66107313738753120669e-02 + w * odd)
    odd = z * (3.33333333333329318027e-01 + w * (1.42857142725034663711e-01 + w * odd))
    even = -5.83357013379057348645e-02 + w * -3.65315727442169155270e-02
    even = -1.11111104054623557880e-01 + w * (-7.69187620504482999495e-02 + w * even)
    even = w * (-1.99999999998764832476e-01 + w * even)
    y = high - ((t * (odd + even) - low) - t)
    return select(x < 0.0, -y, y)
