// What kernels over all cells of a raster share.

// What a kernel counts or finds wrong.
struct Notes {
    u64 negative; // least id of a cell with a negative friction
    u64 far;      // least id of a cell whose height is beyond 2**61
    u64 blocked;  // least number of a source that lies on no cell
    u64 reached, valid;
    u64 flats;    // cells of flats
    u64 lost;     // cells of flats that lead nowhere
};

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 threads() { return (i64)gridDim.x * blockDim.x; }
