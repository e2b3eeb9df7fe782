// Follow least-cost paths from targets to sources, over one or several planes of distances: what
// paths/cost_matrix/walk.py does on the CPU, the same operations in the same order.
//
// Macros: those of costs.cuh, DIAGONAL, KNIGHTS, CORNERS, REVERSE, HAS_FRICTION, HAS_LENGTH as for paths.cu.
#include "costs.cuh"
#include "steps.cuh"
#include "terrain.cuh"
#include "notes.cuh"

enum { INSIDE, ENDED, ON_FLAT }; // state of a path

struct Path {
    i64 plane, row, col;
    i64 state, steps; // steps so far
    f64 length[2], climb[2]; // each a sum of twice the precision
};

// The cells from which the planes start, those of a plane in ascending order.
struct Roots {
    const i64* first; // of each plane, and the end
    const i64* cells; // row * cols + col
    const dist* starts;
};

__device__ __forceinline__ bool is_root(const Roots& roots, i64 plane, i64 cell, dist here) {
    i64 low = roots.first[plane], high = roots.first[plane + 1], end = high;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (roots.cells[middle] < cell) low = middle + 1;
        else high = middle;
    }
    return low < end && roots.cells[low] == cell && roots.starts[low] == here;
}

// Add to a sum of twice the precision (D. E. Knuth's two-sum).
__device__ __forceinline__ void add(f64* sum, f64 value) {
    f64 high = sum[0] + value, part = high - sum[0];
    sum[1] += (sum[0] - (high - part)) + (value - part);
    sum[0] = high;
}

// Direction to the strictly nearer predecessor with the lowest direction; -1 if there is none.
__device__ __forceinline__ int predecessor(
    const Terrain& t, const Parameters& p, const dist* distances, i64 row, i64 at, dist here
) {
    dist there[8 + 8 * KNIGHTS]; // all loads are issued before the first value is used
#pragma unroll
    for (int k = 0; k < 8 + 8 * KNIGHTS; k++)
        there[k] = distances[at + row_step_16(k) * t.pitch + col_step_16(k)];
#pragma unroll
    for (int k = 0; k < 8; k++) {
#if !DIAGONAL
        if (k & 1) continue;
#endif
        if (there[k] < here && is_tight(t, p, distances, row, at, k, here, there[k])) return k;
    }
#if KNIGHTS
#pragma unroll
    for (int k = 8; k < 16; k++)
        if (there[k] < here && is_tight_move(t, p, distances, row, at, k, here, there[k])) return k;
#endif
    return -1;
}

// Follow each path for at most `most` steps. `codes` has the predecessors of all cells of the one
// plane, or is null: then they are found on the way, and paths stop at flats. The codes of the
// steps of path k are written from first[k] on, unless `first` is null.
extern "C" __global__ void walk(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    const dist* distances, const f64* p, const u8* codes, const i64* first_root, const i64* roots,
    const dist* starts, i64 cols, int backwards, Path* paths, i64 count, i64 most, const i64* first,
    u8* steps
) {
    const Parameters parameters = parameters_of(p);
    const Terrain terrain = {heights, frictions, lengths, rows, pitch};
    const Roots given = {first_root, roots, starts};
    for (i64 n = thread(); n < count; n += threads()) {
        Path path = paths[n];
        const dist* plane = distances + path.plane * rows * pitch;
        for (i64 left = most; left > 0 && path.state == INSIDE; left--) {
            i64 cell = path.row * cols + path.col, row = path.row + 1;
            i64 at = row * pitch + path.col + 1;
            dist here = plane[at];
            if (is_root(given, path.plane, cell, here)) {
                path.state = ENDED;
                break;
            }
            int k = codes ? way_of(codes[cell])
                          : predecessor(terrain, parameters, plane, row, at, here);
            if (k < 0) {
                path.state = ON_FLAT;
                break;
            }
            int dy = row_step_16(k), dx = col_step_16(k);
            int kind = k < 8 ? (dx && dy ? 1 : (dy ? 2 : 0)) : (dx == 2 || dx == -2 ? 3 : 4);
            add(path.length, lengths[kind * rows + (dy < 0 ? row + dy : row)]);
            value from = (value)heights[at + dy * pitch + dx], to = (value)heights[at];
            f64 rise = to > from ? (f64)(to - from) : -(f64)(from - to);
            if (backwards) rise = -rise;
            add(path.climb, rise > 0 ? rise : 0.0);
            if (first) steps[first[n] + path.steps] = code_of(k);
            path.steps++;
            path.row += dy;
            path.col = (path.col + dx + cols) % cols; // only with a seam does it leave the raster
        }
        paths[n] = path;
    }
}
