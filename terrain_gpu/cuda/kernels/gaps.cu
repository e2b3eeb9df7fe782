// Find the absent cells of a window from a layer of heights, frictions or barriers.
// Macro: CELL, the type of the layer.
typedef unsigned char u8;
typedef unsigned long long u64;
typedef long long i64;
typedef CELL Cell;

#define BARRIERS 1
#define NOT_NEGATIVE 2 // a layer of frictions
#define NOT_FAR 4      // differences of integers beyond 2**61 may overflow

// Rows have `pitch` cells; `faults` counts the cells that a run would refuse.
extern "C" __global__ void gaps(
    const Cell* cells, i64 height, i64 width, i64 pitch, int has_nodata, Cell nodata, int kind,
    u8* absent, u64* faults
) {
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, far = 1ll << 61;
    for (i64 k = first; k < height * width; k += (i64)gridDim.x * blockDim.x) {
        const i64 at = k / width * pitch + k % width;
        const Cell v = cells[at];
        const bool good = !(has_nodata && v == nodata) && v - v == 0; // neither NaN nor infinite
        if (kind & BARRIERS) {
            if (good && v != (Cell)0) absent[at] = 1;
            continue;
        }
        if (!good) absent[at] = 1;
        bool fault = kind & NOT_NEGATIVE && (double)v < 0;
        fault |= kind & NOT_FAR && (v > (Cell)0 ? (u64)v > (u64)far : (i64)v < -far);
        if (good && fault) atomicAdd(faults, 1ull);
    }
}
