// Copy cells of layers to their place in padded rasters. See paths.cu.
//
// Macros: RAW (type of the layer), CELL (type in the padded raster), DISTANCE.
#define MODEL ABSDIFF
#include "costs.cuh"
#include "notes.cuh"

__device__ __forceinline__ bool has_value(RAW v, int has_nodata, RAW nodata) {
    if (has_nodata && v == nodata) return false;
    return v - v == 0; // neither NaN nor infinite
}

// Only differences of 16-bit integers matter: signed ones are shifted so that the least is 0.
__device__ __forceinline__ CELL converted(RAW v) {
#if DISTANCE == U32
    return (CELL)((i32)v + ((RAW)-1 < (RAW)1 ? 1 << (8 * sizeof(RAW) - 1) : 0));
#else
    return (CELL)v;
#endif
}

// Copy the heights or frictions of a window to (row, col), counted without the ring. Cells without
// a value become absent; with `appear`, the others become unreached. Notes number the cells as
// first + row * cols + col.
extern "C" __global__ void place(
    const RAW* block, i64 height, i64 width, i64 row, i64 col, i64 first, i64 cols, i64 pitch,
    CELL* cells, dist* distances, int has_nodata, RAW nodata, int appear, int frictions, Notes* notes
) {
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 r = row + k / width, c = col + k % width, at = (r + 1) * pitch + c + 1;
        RAW v = block[k];
        bool good = has_value(v, has_nodata, nodata);
        cells[at] = good ? converted(v) : (CELL)0;
        if (!good) distances[at] = absent();
        else if (appear) distances[at] = top();
        u64 id = first + r * cols + c;
        if (good && frictions && (f64)v < 0) atomicMin(&notes->negative, id);
#if DISTANCE == U64
        const i64 far = 1ll << 61;
        bool beyond = (RAW)-1 < (RAW)1 ? (i64)v > far || (i64)v < -far : (u64)v > (u64)far;
        if (good && beyond) atomicMin(&notes->far, id);
#endif
    }
}

// Make the cells absent that a layer of barriers marks.
extern "C" __global__ void close(
    const RAW* block, i64 height, i64 width, i64 row, i64 col, i64 pitch, dist* distances,
    int has_nodata, RAW nodata
) {
    for (i64 k = thread(); k < height * width; k += threads()) {
        RAW v = block[k];
        // As on the CPU, NaN and infinities are not barriers.
        if (v != (RAW)0 && has_value(v, has_nodata, nodata))
            distances[(row + k / width + 1) * pitch + col + k % width + 1] = absent();
    }
}
