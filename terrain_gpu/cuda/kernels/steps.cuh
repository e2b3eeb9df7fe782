// Steps between neighbours, and the lesser of two distances.

#include "neighbours.cuh"

// Returns a if b is NaN.
__device__ __forceinline__ dist lesser(dist a, dist b) { return b < a ? b : a; }
