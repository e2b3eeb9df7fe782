// Shared by kernels that loop over all cells of a raster.

// Counts and faults found by a kernel.
struct Notes {
    u64 negative; // least id of a cell with a negative friction
    u64 far;      // least id of a cell whose height exceeds 2**61 in size
    u64 blocked;  // least number of a source on a cell without a value
    u64 below;    // least id of a cell that `find_refused` finds
    u64 reached, valid;
    u64 flats;    // cells of flats
    u64 lost;     // cells of flats without a path to a source
};

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 threads() { return (i64)gridDim.x * blockDim.x; }
