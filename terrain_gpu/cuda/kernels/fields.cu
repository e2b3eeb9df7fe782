// Preparation before `relax` and results after it, on padded rasters. See paths.cu.
//
// Macros: MODEL, DISTANCE, CELL, KNIGHTS.
#include "costs.cuh"
#include "steps.cuh"
#include "pending.cuh"
#include "notes.cuh"
#include "add_up.cuh"

// -- sources ------------------------------------------------------------------------------------

// Sources in ascending order of their ids, row * cols + col.
struct Sources {
    const i64* ids;
    const dist* costs;
    const u32* names;
    i64 count;
};

// The number of the source at a cell, or -1.
__device__ __forceinline__ i64 source_at(const Sources& s, i64 id) {
    i64 low = 0, high = s.count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (s.ids[middle] < id) low = middle + 1;
        else high = middle;
    }
    return low < s.count && s.ids[low] == id ? low : -1;
}

// Start value of a source.
__device__ __forceinline__ dist start_of(dist cost, CELL height) {
#if MODEL == MINIMAX
    f64 own = (f64)height;
    return (cost == 0 || own > cost ? own : cost) + 0.0;
#else
    return cost;
#endif
}

// Whether a cell is on the edge: one of its neighbours is absent.
__device__ __forceinline__ bool at_rim(const dist* distances, i64 at, i64 pitch) {
    if (is_absent(distances[at])) return false;
    bool found = false;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) found |= is_absent(distances[at + dy * pitch + dx]);
    return found;
}

// Make the tile of a cell pending with `flags`, and also the other tiles that steps from it reach;
// of a plane with `down` rows of tiles, from row `above` on.
__device__ __forceinline__ void begin_in(
    const Pending& q, i64 above, i64 down, i64 row, i64 col, dist d, u32 flags
) {
    i64 i = row / SIDE, j = col / SIDE;
    for (i64 y = (row - HALO + SIDE) / SIDE - 1; y <= (row + HALO) / SIDE; y++)
        for (i64 x = (col - HALO + SIDE) / SIDE - 1; x <= (col + HALO) / SIDE; x++) {
            if (y < 0 || y >= down || x < 0 || x >= q.across) continue;
            u32 mine = y == i && x == j ? flags : 0;
            post(q, q.state->number, (above + y) * q.across + x, order_of(d), mine);
        }
}

// The same where there is one plane.
__device__ __forceinline__ void begin(const Pending& q, i64 row, i64 col, dist d, u32 flags) {
    begin_in(q, 0, q.down, row, col, d, flags);
}

// Flags of a tile with a lowered cell: a cell beyond the seam may lie inside of the last tile.
__device__ __forceinline__ u32 flags_at(const Pending& q, i64 row, i64 col) {
    bool inside = row >= 0 && col >= 0 && row < q.down * SIDE && col < q.across * SIDE;
    return inside ? WHOLE : 0;
}

extern "C" __global__ void sources(
    const i64* ids, const dist* costs, i64 count, i64 cols, i64 pitch, const CELL* heights,
    dist* distances, i64 down, i64 across, order* keys, u32* flags, u32* lists, State* state,
    Notes* notes
) {
    const Pending q = {down, across, keys, flags, lists, state};
    for (i64 k = thread(); k < count; k += threads()) {
        i64 row = ids[k] / cols, col = ids[k] % cols, at = (row + 1) * pitch + col + 1;
        if (is_absent(distances[at])) {
            atomicMin(&notes->blocked, (u64)k);
            continue;
        }
        dist d = start_of(costs[k], heights[at]);
        distances[at] = d;
        begin(q, row, col, d, WHOLE | CHANGED);
    }
}

// Make the edge a source; runs before `sources`, which overrides it with costs of its own.
extern "C" __global__ void rim_sources(
    i64 height, i64 width, i64 pitch, const CELL* heights, dist* distances, i64 down, i64 across,
    order* keys, u32* flags, u32* lists, State* state
) {
    const Pending q = {down, across, keys, flags, lists, state};
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 row = k / width, col = k % width, at = (row + 1) * pitch + col + 1;
        if (!at_rim(distances, at, pitch)) continue;
        dist d = start_of(0, heights[at]);
        distances[at] = d;
        begin(q, row, col, d, WHOLE | CHANGED);
    }
}

// Sources that kept their start value are roots: code 0.
extern "C" __global__ void roots(
    const i64* ids, const dist* costs, i64 count, i64 cols, i64 pitch, const CELL* heights,
    const dist* distances, u8* codes, mask* flat
) {
    for (i64 k = thread(); k < count; k += threads()) {
        i64 at = (ids[k] / cols + 1) * pitch + ids[k] % cols + 1;
        if (codes[ids[k]] == 255 || distances[at] != start_of(costs[k], heights[at])) continue;
        codes[ids[k]] = 0;
        flat[at] = 0;
    }
}

extern "C" __global__ void rim_roots(
    const i64* ids, i64 count, i64 height, i64 width, i64 pitch, const CELL* heights,
    const dist* distances, u8* codes, mask* flat
) {
    const Sources given = {ids, nullptr, nullptr, count};
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 at = (k / width + 1) * pitch + k % width + 1;
        if (codes[k] == 255 || !at_rim(distances, at, pitch)) continue;
        if (distances[at] != start_of(0, heights[at]) || source_at(given, k) >= 0) continue;
        codes[k] = 0;
        flat[at] = 0;
    }
}

// -- flats: DISTANCE is U32, MODEL is HOPS ---------------------------------------------------------

#if MODEL == HOPS
// Cells outside flats have 0 hops; those outside of the raster are unknown yet. Tiles with flats
// become pending; a warp per tile, a lane per column.
extern "C" __global__ void flats(
    const mask* flat, i64 height, i64 width, i64 pitch, dist* hops, i64 down, i64 across, order* keys, u32* flags, u32* lists,
    State* state, Notes* notes
) {
    const Pending q = {down, across, keys, flags, lists, state};
    int lane = threadIdx.x & 31;
    for (i64 tile = thread() / 32; tile < down * across; tile += threads() / 32) {
        i64 row = tile / across * SIDE, col = tile % across * SIDE;
        u32 count = 0;
        for (int y = 1; y <= SIDE; y++) {
            i64 at = (row + y) * pitch + col + 1 + lane;
            bool even = flat[at] != 0;
            bool inside = row + y <= height && col + lane < width;
            hops[at] = even || !inside ? top() : 0;
            count += __popc(__ballot_sync(0xffffffffu, even));
        }
        if (lane == 0 && count) {
            atomicAdd(&notes->flats, (u64)count);
            post(q, 0, tile, 0, WHOLE);
        }
    }
}

// Write the codes on flats: the lowest direction with one hop less.
extern "C" __global__ void close_flats(
    const mask* flat, const dist* hops, i64 height, i64 width, i64 pitch, u8* codes, Notes* notes
) {
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 at = (k / width + 1) * pitch + k % width + 1;
        u32 steps = flat[at], found = 0;
        if (!steps) continue;
#pragma unroll
        for (int d = 0; d < 8 * HALO; d++)
            if (!found && (steps >> d & 1) &&
                hops[at + row_step_16(d) * pitch + col_step_16(d)] + 1 == hops[at])
                found = code_of(d);
        codes[k] = found;
        if (!found) atomicAdd(&notes->lost, 1ull);
    }
}
#endif

// -- regions: pieces of a raster, which exchange their outer cells -----------------------------------

// A number of lines around a region, or along its sides, as a position: those from HALO on lie
// beyond the far side.
__device__ __forceinline__ i64 outside(i64 line, i64 size) {
    return line < HALO ? line - HALO : size + line - HALO;
}

__device__ __forceinline__ i64 along(i64 line, i64 size) {
    return line < HALO ? line : size - 1 - (line - HALO);
}

// Position of the k-th cell around: rows above and below with corners, then columns left and right.
__device__ __forceinline__ void find_on_ring(i64 k, i64 height, i64 width, i64& row, i64& col) {
    i64 across = width + 2 * HALO, side = k - 2 * HALO * across;
    row = side < 0 ? outside(k / across, height) : side % height;
    col = side < 0 ? k % across - HALO : outside(side / height, width);
}

// Write the distances that neighbours have around a region to its ring; where these are less than
// those seen before, tiles become pending.
extern "C" __global__ void receive(
    const dist* ring, const dist* seen, i64 height, i64 width, i64 pitch, dist* distances, i64 down,
    i64 across, order* keys, u32* flags, u32* lists, State* state
) {
    const Pending q = {down, across, keys, flags, lists, state};
    for (i64 k = thread(); k < 2 * HALO * (width + 2 * HALO + height); k += threads()) {
        i64 row, col;
        find_on_ring(k, height, width, row, col);
        i64 at = (row + 1) * pitch + col + 1;
        if (!(ring[k] < top()) || is_absent(distances[at])) continue;
        distances[at] = ring[k];
        if (ring[k] < seen[k]) begin(q, row, col, ring[k], flags_at(q, row, col));
    }
}

// Pass distances from both sides of a whole raster to the columns beyond its seam, HALO on each side,
// where they are less; of each plane, which has `tiles` rows of tiles.
extern "C" __global__ void seam(
    i64 height, i64 width, i64 padded, i64 pitch, dist* distances, i64 tiles, i64 down, i64 across,
    order* keys, u32* flags, u32* lists, State* state
) {
    const Pending q = {down, across, keys, flags, lists, state};
    const i64 lines = 2 * HALO;
    for (i64 k = thread(); k < down / tiles * lines * height; k += threads()) {
        i64 plane = k / (lines * height), row = k / lines % height, n = k % lines / 2;
        i64 from = k & 1 ? n : width - 1 - n, to = k & 1 ? width + n : -1 - n;
        i64 first = (plane * padded + row + 1) * pitch + 1;
        dist d = distances[first + from];
        if (!(d < distances[first + to])) continue; // absent is neither
        distances[first + to] = d;
        begin_in(q, plane * tiles, tiles, row, to, d, flags_at(q, row, to));
    }
}

// Clear AWAY of the tiles that are now loaded, and list those that have a key.
extern "C" __global__ void admit(
    const u8* ready, i64 down, i64 across, order* keys, u32* flags, u32* lists, State* state
) {
    const Pending q = {down, across, keys, flags, lists, state};
    for (i64 tile = thread(); tile < down * across; tile += threads()) {
        if (!ready[tile]) continue;
        atomicAnd(flags + tile, ~AWAY);
        if (keys[tile] != NONE) post(q, state->number, tile, keys[tile], 0);
    }
}

// Resume from saved distances: make every reached tile and its neighbours pending.
extern "C" __global__ void wake(
    const dist* distances, i64 pitch, i64 down, i64 across, order* keys, u32* flags, u32* lists,
    State* state
) {
    const Pending q = {down, across, keys, flags, lists, state};
    for (i64 tile = thread(); tile < down * across; tile += threads()) {
        i64 first = (tile / across * SIDE + 1) * pitch + tile % across * SIDE + 1;
        dist least = top();
        for (i64 k = 0; k < SIDE * SIDE; k++) {
            dist d = distances[first + k / SIDE * pitch + k % SIDE];
            if (d < least) least = d; // absent is never less
        }
        // Neighbours too: those that were not saved do not know these distances.
        for (i64 k = 0; k < 9 && least < top(); k++) {
            i64 i = tile / across + k / 3 - 1, j = tile % across + k % 3 - 1;
            if (i >= 0 && i < down && j >= 0 && j < across)
                post(q, 0, i * across + j, order_of(least), k == 4 ? WHOLE : 0);
        }
    }
}

// Copy a region's own outer cells: rows at the top and bottom, columns left and right, the outermost
// of each side first.
extern "C" __global__ void rim(
    const dist* distances, i64 height, i64 width, i64 pitch, dist* rim
) {
    for (i64 k = thread(); k < 2 * HALO * (width + height); k += threads()) {
        i64 side = k - 2 * HALO * width;
        i64 row = side < 0 ? along(k / width, height) : side % height;
        i64 col = side < 0 ? k % width : along(side / height, width);
        bool own = row >= 0 && row < height && col >= 0 && col < width; // not in a narrow region
        dist d = own ? distances[(row + 1) * pitch + col + 1] : top();
        rim[k] = is_absent(d) ? top() : d;
    }
}

// Copy a window to a block, and back; absent cells stay so, whatever was saved of them.
extern "C" __global__ void save(
    const dist* distances, i64 height, i64 width, i64 row, i64 col, i64 pitch, dist* block
) {
    for (i64 k = thread(); k < height * width; k += threads())
        block[k] = distances[(row + k / width + 1) * pitch + col + k % width + 1];
}

extern "C" __global__ void restore(
    dist* distances, i64 height, i64 width, i64 row, i64 col, i64 pitch, const dist* block
) {
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 at = (row + k / width + 1) * pitch + col + k % width + 1;
        if (!is_absent(distances[at])) distances[at] = block[k];
    }
}

// -- results --------------------------------------------------------------------------------------

// Write the distances of a window as they are stored.
extern "C" __global__ void finish(
    const dist* distances, i64 height, i64 width, i64 row, i64 col, i64 pitch, dist farthest,
    dist* block, Notes* notes
) {
    u32 reached = 0, valid = 0;
    for (i64 k = thread(); k < height * width; k += threads()) {
        dist d = distances[(row + k / width + 1) * pitch + col + k % width + 1];
        bool there = d < top() && d <= farthest;
        valid += !is_absent(d);
        reached += there;
        block[k] = there ? d : absent();
    }
    add_up(reached, &notes->reached);
    add_up(valid, &notes->valid);
}

// Copy a window of codes.
extern "C" __global__ void cut(
    const u8* codes, i64 height, i64 width, i64 row, i64 col, i64 cols, u8* block
) {
    for (i64 k = thread(); k < height * width; k += threads())
        block[k] = codes[(row + k / width) * cols + col + k % width];
}

#define OUTSIDE (-(1ll << 33)) // below the labels of all sources

// Number of a cell around a region, see `find_on_ring`.
__device__ __forceinline__ i64 place_around(i64 row, i64 col, i64 height, i64 width) {
    i64 across = width + 2 * HALO;
    if (row < 0) return (row + HALO) * across + col + HALO;
    if (row >= height) return (row - height + HALO) * across + col + HALO;
    return 2 * HALO * across + (col < 0 ? col + HALO : col - width + HALO) * height + row;
}

// The neighbour with a code, see `code_of`.
__device__ __forceinline__ int neighbour_of(u32 code) {
    int first = __ffs(code) - 1;
    return code & (code - 1) ? 8 + (code == 0x81 ? 7 : first) : first;
}

// Write where each cell's backlink leads: the number of a cell, -2 - the id of a source,
// OUTSIDE - the number of a cell around the region, or -1 if unreached.
extern "C" __global__ void follow(
    const u8* codes, const i64* ids, const u32* names, i64 count, i64 height, i64 width, int wraps,
    i64* labels
) {
    const Sources given = {ids, nullptr, names, count};
    for (i64 k = thread(); k < height * width; k += threads()) {
        u32 code = codes[k];
        if (code == 255) {
            labels[k] = -1;
        } else if (code == 0) {
            i64 source = source_at(given, k);
            labels[k] = -2 - (source < 0 ? 0xffffffffll : (i64)names[source]); // no source: the edge
        } else {
            int d = neighbour_of(code);
            i64 row = k / width + row_step_16(d), col = k % width + col_step_16(d);
            if (wraps) col = (col + width) % width;
            bool inside = row >= 0 && row < height && col >= 0 && col < width;
            labels[k] = inside ? row * width + col : OUTSIDE - place_around(row, col, height, width);
        }
    }
}

// Pointer jumping (J. C. Wyllie 1979), four jumps at a time.
extern "C" __global__ void jump(i64* labels, i64 cells, u32* unfinished) {
    bool open = false;
    for (i64 k = thread(); k < cells; k += threads()) {
        i64 label = labels[k];
        if (label < 0) continue;
        for (int n = 0; n < 4 && label >= 0; n++) label = ((volatile i64*)labels)[label];
        labels[k] = label;
        open |= label >= 0;
    }
    if (open) *unfinished = 1;
}

// Write the source ids of a window; `around` has the labels of the cells around the region.
extern "C" __global__ void name(
    const i64* labels, const i64* around, i64 height, i64 width, i64 row, i64 col, i64 cols,
    u32* block
) {
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 label = labels[(row + k / width) * cols + col + k % width];
        if (label <= OUTSIDE) label = around[OUTSIDE - label];
        block[k] = label == -1 ? 0 : (u32)(-label - 2);
    }
}
