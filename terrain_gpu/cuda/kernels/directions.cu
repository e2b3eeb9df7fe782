// Flow directions of a whole raster: its spanning forest rooted at the outlets. See
// hydrology/flow_direction/gpu.py. Macros: CELL, the type of cells, of at most 32 bits; ABSDIFF 0 and
// SLOPES 1, as in mst.cu.
#include "cells.cuh"
#include "weights.cuh"
#include "neighbours.cuh"
#include "raster.cuh"
#include "append.cuh"
#include "add_up.cuh"
typedef u32 Label;
#include "rem.cuh"

// What is known of a cell: the D8 direction in which it drains so far, or one of these. LOW: it
// drains inwards if it has a lower neighbour. BESIDE is added where such a cell does so.
constexpr u8 ROOT = 8, OUTLET = 9, LOW = 10, BESIDE = 16, NOWHERE = 255;

__device__ __forceinline__ u8 bare(u8 step) { return step == NOWHERE ? step : step & (BESIDE - 1); }

// The edge outwards from a low cell: as high as the cell and without slope. Its id is less than
// those of other edges.
__device__ __forceinline__ Key edge_outwards(const Region& g, Operand here, const Spot& s) {
    return edge_key(g, here, here, 0, s.row);
}

// Counters that the host reads.
enum { VALID, OUTLETS, EDGES, BAD, PITS };

// -- outlets ---------------------------------------------------------------------------------------

// Join cells without a value to their neighbours without one, and at the raster's edge to `outside`.
extern "C" __global__ void join_voids(
    const Region* region, const Cell* cells, Cell nodata, u32 outside, u32* parent
) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside || has_value<Cell>(cells[s.at], nodata, g.has_nodata)) return;
        if (s.row == 0 || s.col == 0 || s.row == g.rows - 1 || s.col == g.cols - 1)
            join(parent, (u32)s.at, outside);
        for (int k = 0; k < 4; k++) {
            Spot to;
            if (neighbour(g, s, k, to) && !has_value<Cell>(cells[to.at], nodata, g.has_nodata))
                join(parent, (u32)s.at, (u32)to.at);
        }
    });
}

// Find outlets: cells at the raster's edge and beside voids, with `parent` beside those joined to
// `outside`. They are marked as `mark`, unless that is NOWHERE.
extern "C" __global__ void find_outlets(
    const Region* region, const Cell* cells, Cell nodata, int mark, u32 outside, u32* parent,
    u8* steps, u64* notes
) {
    const Region g = *region;
    u64 valid = 0;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside) return;
        u8 found = NOWHERE;
        if (has_value<Cell>(cells[s.at], nodata, g.has_nodata)) {
            valid++;
            found = ROOT;
            for (int k = 0; k < 8 && mark != NOWHERE && found == ROOT; k++) {
                Spot to;
                if (!neighbour(g, s, k, to)) found = (u8)mark;
                else if (has_value<Cell>(cells[to.at], nodata, g.has_nodata)) continue;
                else if (!parent || to_root(parent, to.at) == to_root(parent, outside))
                    found = (u8)mark;
            }
        }
        steps[s.at] = found;
    });
    add_up(valid, &notes[VALID]);
}

extern "C" __global__ void place_outlets(
    const Region* region, const i64* rows, const i64* cols, i64 count, u8* steps
) {
    const Region g = *region;
    for (i64 k = blockIdx.x * (i64)blockDim.x + threadIdx.x; k < count;
         k += (i64)gridDim.x * blockDim.x)
        steps[cell_at(g, rows[k], cols[k])] = OUTLET;
}

// -- catchments ------------------------------------------------------------------------------------

// Point each cell along its least edge of the forest or outwards; count the edges, and those of
// cells without a value or to such.
extern "C" __global__ void descend(
    const Region* region, const Cell* cells, const u8* mask, u8* steps, u64* notes
) {
    const Region g = *region;
    u64 edges = 0, bad = 0;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside) return;
        const u8 own = steps[s.at], bits = mask[s.at];
        edges += __popc(bits);
        bad += bits > 15 || (bits && own == NOWHERE);
        if (own == NOWHERE) return;
        const Operand here = operand(cells[s.at]);
        Key least = 0;
        u8 found = ROOT;
        // In the order of the edges' ids: NW, N, NE, W, E, SW, S, SE.
        for (int i = 0; i < 8; i++) {
            const int k = i < 3 ? 5 + i : (i == 3 ? 4 : (i == 4 ? 0 : 8 - i));
            const int d = edge_of(k);
            Spot to;
            if (k < 4 && !(bits >> d & 1)) continue;
            if (!neighbour(g, s, k, to)) {
                bad += k < 4;
                continue;
            }
            if (k >= 4 && !(mask[to.at] >> d & 1)) continue;
            if (steps[to.at] == NOWHERE) {
                bad++;
                continue;
            }
            const Key key =
                edge_key(g, here, operand(cells[to.at]), d, k < 4 ? s.row : to.row);
            if (found != ROOT && key >= least) continue;
            least = key;
            found = (u8)k;
        }
        if (own == LOW)
            found = found == ROOT || least >= edge_outwards(g, here, s) ? OUTLET : found + BESIDE;
        if (own != OUTLET) steps[s.at] = found;
    });
    add_up(edges, &notes[EDGES]);
    add_up(bad, &notes[BAD]);
}

// The cell that each one points to; of two that point to each other one is the root, a pit.
extern "C" __global__ void attach(const Region* region, const u8* steps, u32* parent) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside) return;
        const u8 k = bare(steps[s.at]);
        Spot to = s;
        if (k < ROOT) {
            neighbour(g, s, k, to);
            if (bare(steps[to.at]) == opposite(k) && s.at < to.at) to = s;
        }
        parent[s.at] = (u32)to.at;
    });
}

// Point every cell to its root: the outlet or pit that it drains to.
extern "C" __global__ void flatten(const Region* region, const u8* steps, u32* parent) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (inside && steps[s.at] != NOWHERE) to_root(parent, s.at);
    });
}

// Number the roots in their own entries: pits from 1, all outlets are 0.
extern "C" __global__ void number(const Region* region, u8* steps, u32* parent, u64* notes) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        const bool root = inside && steps[s.at] != NOWHERE && parent[s.at] == (u32)s.at;
        const bool pit = root && steps[s.at] != OUTLET;
        const i64 at = append(pit, &notes[PITS]);
        if (!root) return;
        parent[s.at] = pit ? (u32)at + 1 : 0;
        if (pit) steps[s.at] = ROOT + (steps[s.at] & BESIDE);
    });
}

__device__ __forceinline__ u32 catchment(const u8* steps, const u32* parent, i64 at) {
    const u32 up = parent[at];
    const u8 step = bare(steps[at]);
    return step == ROOT || step == OUTLET ? up : parent[up];
}

// List the edges between catchments, and those outwards; without `keys`, only count them.
extern "C" __global__ void list_edges(
    const Region* region, const Cell* cells, const u8* mask, const u8* steps, const u32* parent,
    u64* keys, i64* ids, u32* us, u32* vs, u64* count
) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        const u32 bits = inside ? mask[s.at] : 0;
        const bool low = inside && steps[s.at] != NOWHERE && steps[s.at] >= BESIDE;
        const u32 u = bits || low ? catchment(steps, parent, s.at) : 0;
        for (int k = 0; k < 4; k++) {
            const int d = edge_of(k);
            Spot to;
            const bool there = bits >> d & 1 && neighbour(g, s, k, to);
            const u32 v = there ? catchment(steps, parent, to.at) : u;
            const i64 at = append(u != v, count);
            if (u == v || !keys) continue;
            keys[at] = edge_key(g, operand(cells[s.at]), operand(cells[to.at]), d, s.row);
            ids[at] = 4 * (s.row * g.cols + s.col) + d;
            us[at] = u;
            vs[at] = v;
        }
        const i64 at = append(low && u != 0, count);
        if (!low || u == 0 || !keys) return;
        keys[at] = edge_outwards(g, operand(cells[s.at]), s);
        ids[at] = (s.row - g.rows) * g.cols + s.col;
        us[at] = u;
        vs[at] = 0;
    });
}

// -- directions ------------------------------------------------------------------------------------

// Cells of catchments that reach no outlet drain nowhere.
extern "C" __global__ void strand(
    const Region* region, const bool* reached, const u32* parent, u8* steps
) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside || steps[s.at] == NOWHERE) return;
        if (!reached[catchment(steps, parent, s.at)]) steps[s.at] = NOWHERE;
    });
}

// Turn the way from the cell at which each catchment is left to its pit. An exit is twice the edge's
// id, plus 1 if the catchment is at the edge's upper end; less than 0 for an edge outwards.
extern "C" __global__ void turn(const Region* region, const i64* exits, i64 count, u8* steps) {
    const Region g = *region;
    for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < count;
         e += (i64)gridDim.x * blockDim.x) {
        const i64 id = exits[e] >> 1, cell = id < 0 ? id + g.rows * g.cols : id >> 2;
        int k = id < 0 ? OUTLET : edge_of((int)(id & 3));
        Spot s{0, cell / g.cols, cell % g.cols};
        s.at = cell_at(g, s.row, s.col);
        if (exits[e] & 1) {
            Spot to;
            neighbour(g, s, k, to);
            s = to;
            k = opposite(k);
        }
        for (;;) {
            const u8 before = bare(steps[s.at]);
            steps[s.at] = (u8)k;
            if (before >= ROOT) break;
            Spot to;
            neighbour(g, s, before, to);
            s = to;
            k = opposite(before);
        }
    }
}

// D8 codes in place; count the outlets.
extern "C" __global__ void encode(const Region* region, u8* steps, u64* notes) {
    const Region g = *region;
    u64 outlets = 0;
    each_cell(g, [&](const Spot& s, bool inside) {
        const u8 k = inside ? bare(steps[s.at]) : NOWHERE;
        outlets += k == OUTLET;
        steps[s.at] = k < ROOT ? (u8)(1 << k) : (k == OUTLET ? 0 : NOWHERE);
    });
    add_up(outlets, &notes[OUTLETS]);
}
