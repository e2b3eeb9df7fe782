// Verify distances over a region with a ring of cells around it: `check` checks every step, and
// backlinks and ids; `flats`, `rims` and `lost` check that flats lead to a root. paths/proof
// explains the proof.
// Faults are only counted: the CPU locates them. Macros: those of costs.cuh, with the types of the
// layers; and DIAGONAL, CORNERS, REVERSE as for paths.cu.
#include "costs.cuh"
#include "steps.cuh"
#include "notes.cuh"
#include "add_up.cuh"

typedef int Label; // 0: connected to a root; else 1 + the number of a cell of the region
#include "rem.cuh"

#define NO_CODE 255
#define EDGE 0xffffffffu // the id of sources at the edge

// Rules for roots: the given sources, these and all cells beside absent ones, or by the results.
#define GIVEN 0
#define GIVEN_AND_EDGE 1
#define AT_ZERO 2
#define AT_OWN_HEIGHT 3
#define UNLINKED 4

// Marks of given sources: whether they have their start value.
#define ROOT 1
#define NO_ROOT 2

struct Tally {
    u64 steps, reached, roots, flats, faults;
};

// All arrays but `codes` include the ring.
struct Region {
    i64 height, width;
    const CELL* heights;
    const FRICTION* frictions;
    const u8* absent;
    const f64* lengths; // of the steps E, SW, S, SE from each row, ring included; four arrays
    const dist* written;
    const u8* codes; // or null, as ids
    const u32* ids;
};

__device__ __forceinline__ dist distance_of(dist written) {
    return is_absent(written) || written >= top() ? top() : written;
}

// Cost of the step from neighbour k into the cell in row r at index i, both counted with the ring.
__device__ __forceinline__ dist step(const Region& b, const Parameters& p, i64 r, i64 i, int k) {
    const i64 pitch = b.width + 2, j = i + row_step(k) * pitch + col_step(k);
#if !CORNERS
    if (k % 2 && b.absent[i + col_step(k)] && b.absent[i + row_step(k) * pitch]) return top();
#endif
    const i64 from = REVERSE ? i : j, to = REVERSE ? j : i;
    const value low = (value)b.heights[from], high = (value)b.heights[to];
#if HAS_FRICTION
    const f64 fa = (f64)b.frictions[from], fb = (f64)b.frictions[to];
#else
    const f64 fa = (f64)low, fb = (f64)high;
#endif
    const i64 row = edge_of(k) * (b.height + 2) + (row_step(k) < 0 ? r - 1 : r);
    const dist cost = edge(p, low, high, fa, fb, b.lengths[row]);
    return cost <= top() ? cost : top(); // NaN: no step
}

// Start value of a source with the given cost, or 0.
__device__ __forceinline__ dist start_of(const Region& b, i64 i, dist cost) {
#if MODEL == MINIMAX
    const f64 own = (f64)b.heights[i];
    return (cost == 0 || own > cost ? own : cost) + 0.0;
#else
    return cost;
#endif
}

// Mark which sources have their start value, and check the ids of these.
extern "C" __global__ void seeds(
    const Region* region, const i64* cells, const dist* costs, const u32* ids, i64 count,
    dist farthest, u8* marks, Tally* tally
) {
    const Region b = *region;
    for (i64 n = thread(); n < count; n += threads()) {
        const i64 i = (cells[n] / b.width + 1) * (b.width + 2) + cells[n] % b.width + 1;
        const dist found = distance_of(b.written[i]), start = start_of(b, i, costs[n]);
        const bool over = found > start && start <= farthest;
        const bool root = found == start, other = root && b.ids && b.ids[i] != ids[n];
        if (b.absent[i] || over || other) atomicAdd(&tally->faults, 1ull);
        marks[cells[n]] = root ? ROOT : NO_ROOT;
    }
}

// Check the steps into all cells. `level` receives, for cells of flats, the directions of their
// tight predecessors at the same distance, of which a backlink names one; `parent` receives each
// cell's own label.
extern "C" __global__ void check(
    const Region* region, const f64* given, dist farthest, int bounded, int rule, const u8* marks,
    u8* level, Label* parent, Tally* tally
) {
    const Region b = *region;
    const Parameters p = parameters_of(given);
    const i64 pitch = b.width + 2;
    u64 steps = 0, reached = 0, roots = 0, flats = 0, faults = 0;
    for (i64 n = thread(); n < b.height * b.width; n += threads()) {
        const i64 r = n / b.width + 1, i = r * pitch + n % b.width + 1;
        const dist here = distance_of(b.written[i]);
        const bool cell = !b.absent[i];
        bool fault = !is_absent(b.written[i]) && b.written[i] >= top(), edge = false;
        u32 nearer = 0, even = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (!cell) continue;
            const i64 j = i + row_step(k) * pitch + col_step(k);
            edge |= b.absent[j];
            if (k % 2 && !DIAGONAL) continue;
            const dist there = distance_of(b.written[j]);
            const dist cost = step(b, p, r, i, k), through = join(there, cost);
            steps += cost < top() && !b.absent[j];
            fault |= through < here && through <= farthest;
            fault |= bounded && cost < top() && there < top() && through >= top();
            if (through == here && here < top()) {
                if (there < here) nearer |= 1u << k;
                if (there == here) even |= 1u << k;
            }
        }
        bool source = rule < AT_ZERO && marks[n] == ROOT;
        if (rule == GIVEN_AND_EDGE && edge && !marks[n]) {
            const dist start = start_of(b, i, 0);
            fault |= here > start && start <= farthest;
            source = here == start;
            fault |= source && b.ids && b.ids[i] != EDGE;
        }
        const u32 code = b.codes ? b.codes[n] : 0, tight = nearer | even;
        bool flat = false;
        if (here < top()) {
            if (rule == AT_ZERO) source = here == 0;
            if (rule == AT_OWN_HEIGHT) source = here == (dist)b.heights[i];
            if (rule == UNLINKED) source = !code;
            reached++;
            roots += source;
            fault |= !cell || here > farthest || (b.ids && !b.ids[i]);
            if (source) fault |= code != 0;
            else {
                fault |= !tight;
                flat = !nearer;
                if (b.codes) {
                    fault |= !code || code & (code - 1) || !(code & tight);
                    fault |= nearer && code != (nearer & (0 - nearer));
                }
                if (b.ids && code) {
                    const int k = __ffs(code) - 1;
                    fault |= b.ids[i] != b.ids[i + row_step(k) * pitch + col_step(k)];
                }
            }
        } else fault |= (b.codes && code != NO_CODE) || (b.ids && b.ids[i]);
        flats += flat;
        faults += fault;
        level[n] = !flat ? 0 : b.codes ? code : even;
        if (parent) parent[n + 1] = (Label)(n + 1);
    }
    if (parent && thread() == 0) parent[0] = 0;
    add_up(steps, &tally->steps);
    add_up(reached, &tally->reached);
    add_up(roots, &tally->roots);
    add_up(flats, &tally->flats);
    add_up(faults, &tally->faults);
}

__device__ __forceinline__ bool inside(i64 y, i64 x, i64 height, i64 width) {
    return y >= 0 && y < height && x >= 0 && x < width;
}

// Join the cells of flats, and join them to 0 where a predecessor is connected to a root.
extern "C" __global__ void flats(i64 height, i64 width, const u8* level, Label* parent) {
    for (i64 n = thread(); n < height * width; n += threads())
        for (u32 left = level[n]; left; left &= left - 1) {
            const int k = __ffs(left) - 1;
            const i64 y = n / width + row_step(k), x = n % width + col_step(k), m = y * width + x;
            if (inside(y, x, height, width))
                join(parent, (Label)(n + 1), level[m] ? (Label)(m + 1) : 0);
        }
}

// Write the labels of the cells on a region's rims and the directions of their tight predecessors
// outside. Rims are top, bottom, left and right, `side` places each; a corner counts only in the
// first of its rims. `seen` marks the labels found.
extern "C" __global__ void rims(
    i64 height, i64 width, i64 side, const u8* level, Label* parent, Label* labels, u8* outward,
    u8* seen
) {
    for (i64 place = thread(); place < 4 * side; place += threads()) {
        const i64 m = place % side, which = place / side;
        const i64 y = which == 0 ? 0 : which == 1 ? height - 1 : m;
        const i64 x = which == 2 ? 0 : which == 3 ? width - 1 : m;
        labels[place] = outward[place] = 0;
        const bool first = which == 0 || (y > 0 && (which == 1 || y < height - 1)
                                          && (which < 3 || x > 0));
        if (!inside(y, x, height, width) || !first) continue;
        const u32 steps = level[y * width + x];
        if (!steps) continue;
        for (u32 left = steps; left; left &= left - 1) {
            const int k = __ffs(left) - 1;
            if (!inside(y + row_step(k), x + col_step(k), height, width)) outward[place] |= 1u << k;
        }
        const Label label = to_root(parent, y * width + x + 1);
        labels[place] = label;
        if (label) seen[label - 1] = 1;
    }
}

// Count the cells of flats that are joined to neither a root nor a rim cell.
extern "C" __global__ void lost(
    i64 cells, const u8* level, Label* parent, const u8* seen, Tally* tally
) {
    u64 faults = 0;
    for (i64 n = thread(); n < cells; n += threads())
        if (level[n]) {
            const Label label = to_root(parent, n + 1);
            faults += label && !seen[label - 1];
        }
    add_up(faults, &tally->faults);
}
