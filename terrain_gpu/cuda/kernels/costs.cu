// The edge functions over arrays, to compare them with those of the CPU.
#include "costs.cuh"

extern "C" __global__ void evaluate(
    const value* a, const value* b, const f64* fa, const f64* fb, const f64* length, const f64* p,
    i64 count, dist* costs
) {
    Parameters parameters = parameters_of(p);
    i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) costs[k] = edge(parameters, a[k], b[k], fa[k], fb[k], length[k]);
}
