// The cost of a step: the edge functions of paths/cost/models.py, the same operations in the same order.
// Compiled without fused multiply-add (cuda/device.py), so the bits agree.
//
// Macros:
//   MODEL         one of the names below
//   SCALED        1 multiplies the cost by the mean friction of both cells
//   CELL          type of the heights
//   FRICTION      type of the frictions if HAS_FRICTION is 1; else the heights are the frictions
//   DISTANCE      U32, U64 or F64
//   FORMULA_STEPS statements that compute `cost`, if MODEL is FORMULA (paths/cost/formula/program.py)
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

#define ABSDIFF 0
#define FRICTION_MODEL 1
#define SURFACE 2
#define TOBLER 3
#define LANGMUIR 4
#define MINIMAX 5
#define HOPS 6
#define FORMULA 7

#define U32 0
#define U64 1
#define F64 2

#if DISTANCE == F64
typedef f64 dist;
typedef f64 value;
#elif DISTANCE == U32
typedef u32 dist;
typedef i32 value;
#else
typedef u64 dist;
typedef i64 value;
#endif

#if MODEL == FORMULA
#include "formula.cuh"
#endif

// Parameters of langmuir.
struct Parameters {
    f64 a, b, c, d, slope_factor, lam;
};

__device__ __forceinline__ Parameters parameters_of(const f64* p) {
    Parameters found = {};
#if MODEL == LANGMUIR
    found = {p[0], p[1], p[2], p[3], p[4], p[5]};
#endif
    return found;
}

// exp(x) for x >= 0; see `exponential` in paths/cost/models.py.
__device__ __forceinline__ f64 exponential(f64 x) {
    const f64 shifter = 6755399441055744.0;
    f64 shifted = x * 1.44269504088896338700 + shifter;
    f64 k = shifted - shifter;
    f64 high = x - k * 6.93147180369123816490e-01;
    f64 low = k * 1.90821492927058770002e-10;
    f64 r = high - low;
    f64 t = r * r;
    f64 c = 4.13813679705723846039e-08;
    c = -1.65339022054652515390e-06 + t * c;
    c = 6.61375632143793436117e-05 + t * c;
    c = -2.77777777770155933842e-03 + t * c;
    c = 1.66666666666666019037e-01 + t * c;
    c = r - t * c;
    f64 y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    y = y * __longlong_as_double((__double_as_longlong(shifted) + 1022) << 52) * 2.0;
    return x > 709.782712893384 ? __longlong_as_double(0x7ff0000000000000LL) : y;
}

__device__ __forceinline__ f64 mean(f64 fa, f64 fb) { return 0.5 * (fa + fb); }

// Cost of going from a cell of height a and friction fa to one of height b and friction fb.
__device__ __forceinline__ dist edge(
    const Parameters& p, value a, value b, f64 fa, f64 fb, f64 length
) {
#if DISTANCE != F64
    return a > b ? (dist)a - (dist)b : (dist)b - (dist)a;
#else
    f64 cost;
#if MODEL == ABSDIFF
    cost = (b > a ? b : a) - (b < a ? b : a);
#elif MODEL == FRICTION_MODEL
    cost = mean(fa, fb) * length;
#elif MODEL == SURFACE
    cost = sqrt(length * length + (b - a) * (b - a));
#elif MODEL == TOBLER
    cost = length * 0.6 * exponential(3.5 * fabs((b - a) / length + 0.05));
#elif MODEL == LANGMUIR
    f64 dz = b - a;
    f64 slope = dz / length;
    f64 factor = slope >= 0.0 ? p.b : (slope < p.slope_factor ? p.d : p.c);
    f64 walk = dz * factor + p.a * length;
    walk = 0.0 > walk ? 0.0 : walk;
    cost = walk + p.lam * mean(fa, fb) * length;
#elif MODEL == FORMULA
    FORMULA_STEPS
#elif MODEL == MINIMAX
    cost = (b > a ? b : a) + 0.0;
#else
    cost = 1.0;
#endif
#if SCALED
    cost = cost * mean(fa, fb);
#endif
    return cost;
#endif
}

// Distance after one more step. Never overflows, see `infinity_of` in paths/cost/edges.py.
__device__ __forceinline__ dist join(dist distance, dist cost) {
#if MODEL == MINIMAX
    return cost > distance ? cost : distance;
#else
    return distance + cost;
#endif
}

// The values that mean "not reached" and "no cell here"; no distance equals them.
__device__ __forceinline__ dist top() {
#if DISTANCE == F64
    return __longlong_as_double(0x7ff0000000000000LL);
#elif DISTANCE == U32
    return 0x7fffffffu;
#else
    return 0x7fffffffffffffffull;
#endif
}

__device__ __forceinline__ dist absent() {
#if DISTANCE == F64
    return __longlong_as_double(0x7ff8000000000000LL);
#elif DISTANCE == U32
    return 0xffffffffu;
#else
    return 0xffffffffffffffffull;
#endif
}

__device__ __forceinline__ bool is_absent(dist d) {
#if DISTANCE == F64
    return d != d;
#else
    return d == absent();
#endif
}
