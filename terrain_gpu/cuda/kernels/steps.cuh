// Steps between neighbours, and the lesser of two distances.

#include "neighbours.cuh"

// The code of a backlink to neighbour k: a knight's move has those of the two it passes between.
__device__ constexpr int code_of(int way) {
    return way < 8 ? 1 << way : 1 << (way - 8) | 1 << (way - 7) % 8;
}

// The neighbour with a code, or -1 for 0.
__device__ __forceinline__ int way_of(u32 code) {
    int first = __ffs(code) - 1;
    if (!(code & (code - 1))) return first;
    return code == code_of(15) ? 15 : 8 + first;
}

#if KNIGHTS && MODEL != HOPS
// Cost of a knight's move from a cell of height a and friction fa to one of height b and friction
// fb, through the middle between cells of heights u and v: as `_move` in paths/cost/steps.py.
__device__ __forceinline__ dist move_cost(
    const Parameters& p, f64 a, f64 b, f64 fa, f64 fb, f64 u, f64 v, f64 fu, f64 fv, f64 length
) {
    f64 z = 0.5 * (u + v), f = 0.5 * (fu + fv), half = 0.5 * length;
    dist there = edge(p, a, z, fa, f, half);
    return join(there, edge(p, z, b, f, fb, half));
}
#endif

// Returns a if b is NaN.
__device__ __forceinline__ dist lesser(dist a, dist b) { return b < a ? b : a; }
