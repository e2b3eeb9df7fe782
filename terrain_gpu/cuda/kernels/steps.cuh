// Steps between neighbours, and what is the lesser of two distances.

#include "neighbours.cuh"

// a where b is NaN.
__device__ __forceinline__ dist lesser(dist a, dist b) { return b < a ? b : a; }
