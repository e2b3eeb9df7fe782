// exp, log and atan as in paths/cost/formula/functions.py, the same operations in the same order.

#define SHIFTER 6755399441055744.0
#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW 1.90821492927058770002e-10
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)

__device__ __forceinline__ f64 formula_exp(f64 x) {
    f64 shifted = x * 1.44269504088896338700 + SHIFTER;
    f64 k = shifted - SHIFTER;
    f64 high = x - k * LN2_HIGH;
    f64 low = k * LN2_LOW;
    f64 r = high - low;
    f64 t = r * r;
    f64 c = 4.13813679705723846039e-08;
    c = -1.65339022054652515390e-06 + t * c;
    c = 6.61375632143793436117e-05 + t * c;
    c = -2.77777777770155933842e-03 + t * c;
    c = 1.66666666666666019037e-01 + t * c;
    c = r - t * c;
    f64 y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    f64 half = k * 0.5 + SHIFTER;
    f64 rest = (k - (half - SHIFTER)) + SHIFTER;
    y = y * __longlong_as_double((__double_as_longlong(half) + 1023) << 52);
    y = y * __longlong_as_double((__double_as_longlong(rest) + 1023) << 52);
    return x > 709.782712893384 ? INFINITE : (x < -745.2 ? 0.0 : y);
}

__device__ __forceinline__ f64 formula_log(f64 x) {
    bool tiny = x < 2.2250738585072014e-308;
    f64 scaled = tiny ? x * 18014398509481984.0 : x;
    i64 n = __double_as_longlong(scaled) + 0x00095F6200000000LL;
    f64 k = (f64)((n >> 52) - 1023) - (tiny ? 54.0 : 0.0);
    f64 f = __longlong_as_double((n & 0x000FFFFFFFFFFFFFLL) + 0x3FE6A09E00000000LL) - 1.0;
    f64 s = f / (2.0 + f);
    f64 z = s * s;
    f64 w = z * z;
    f64 even = 2.222219843214978396e-01 + w * 1.531383769920937332e-01;
    even = w * (3.999999999940941908e-01 + w * even);
    f64 odd = 1.818357216161805012e-01 + w * 1.479819860511658591e-01;
    odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * odd));
    f64 square = 0.5 * f * f;
    f64 y = s * (square + (odd + even)) + k * LN2_LOW - square + f + k * LN2_HIGH;
    y = x == INFINITE ? INFINITE : (x == 0.0 ? -INFINITE : y);
    return x >= 0.0 ? y : __longlong_as_double(0x7ff8000000000000LL);
}

__device__ __forceinline__ f64 formula_atan(f64 x) {
    f64 a = x < 0.0 ? -x : x;
    bool one = a < 0.4375, two = a < 0.6875, three = a < 1.1875, four = a < 2.4375;
    f64 up = two ? 2.0 * a - 1.0 : (three ? a - 1.0 : (four ? a - 1.5 : -1.0));
    f64 down = two ? 2.0 + a : (three ? a + 1.0 : (four ? 1.0 + 1.5 * a : a));
    f64 t = (one ? a : up) / (one ? 1.0 : down);
    f64 high = three ? 7.85398163397448278999e-01 : 9.82793723247329054082e-01;
    high = four ? high : 1.57079632679489655800e+00;
    high = one ? 0.0 : (two ? 4.63647609000806093515e-01 : high);
    f64 low = three ? 3.06161699786838301793e-17 : 1.39033110312309984516e-17;
    low = four ? low : 6.12323399573676603587e-17;
    low = one ? 0.0 : (two ? 2.26987774529616870924e-17 : low);
    f64 z = t * t;
    f64 w = z * z;
    f64 odd = 4.97687799461593236017e-02 + w * 1.62858201153657823623e-02;
    odd = 9.09088713343650656196e-02 + w * (6.66107313738753120669e-02 + w * odd);
    odd = z * (3.33333333333329318027e-01 + w * (1.42857142725034663711e-01 + w * odd));
    f64 even = -5.83357013379057348645e-02 + w * -3.65315727442169155270e-02;
    even = -1.11111104054623557880e-01 + w * (-7.69187620504482999495e-02 + w * even);
    even = w * (-1.99999999998764832476e-01 + w * even);
    f64 y = high - ((t * (odd + even) - low) - t);
    return x < 0.0 ? -y : y;
}
