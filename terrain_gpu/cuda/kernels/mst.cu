// The spanning forest of a region: Boruvka with frozen components, first inside each tile in
// shared memory, then over the remaining edges between rim cells. Macros: CELL, the type of cells;
// ABSDIFF, whether the weight is |dz| (1) or the higher cell (0); SLOPES, whether of edges of one
// weight the steeper comes first; CACHED, whether a tile's cells are kept in shared memory;
// TILE_BYTES, the shared memory of a tile; WIDE_KEYS, whether keys have 64 bits.
#include "cells.cuh"
#include "weights.cuh"

// -- tiles -----------------------------------------------------------------------------------------
// An edge of a tile has a 14-bit number, 4 * lower cell + direction (E, SW, S, SE). Key and number
// are packed into one word, of 32 bits if the key has at most 18. 64-bit keys do not fit: these
// are compared first, then the numbers of edges with equal keys.

constexpr int RING = 4 * TILE - 4;  // cells at the rim of a tile
constexpr int NUMBER = 14;
constexpr int THREADS = 512;
constexpr int STRIP = CELLS / THREADS;  // cells of one column per thread
constexpr u32 NONE = 0xFFFF, FROZEN = 0x1000, ROOT = 0xFFF;

typedef Pick<(BITS <= 16 && !SLOPES), u32, u64>::type Word;
constexpr Word NO_WORD = ~(Word)0;

struct Tile {
    Word best[CELLS];                // least edge of each component: words, or keys
    u32 numbers[WIDE ? CELLS : 1];   // and their numbers, unless part of the words
    u16 label[CELLS];                // root of each cell, with the flag FROZEN; NONE if absent
    u16 parent[CELLS];
    u16 rim[CELLS];                  // the rim cell of each component
    u32 mask[CELLS / 4];
    u32 found[RING];                 // numbers of the candidates
    u32 count;
    i64 base;
    Operand cells[CACHED ? CELLS : 1];
};

static_assert(sizeof(Tile) <= TILE_BYTES, "more shared memory than is asked for");

struct TileCells {
    const Tile& tile;
    const Cell* cells;
    const Region& region;
    const i64 row;  // of the first cell
    __device__ __forceinline__ Operand operator[](int c) const {
        if constexpr (CACHED) return tile.cells[c];
        else return operand(cells[c]);
    }
    __device__ __forceinline__ Key key(Operand a, Operand b, int number) const {
        return edge_key(region, a, b, number & 3, row + (number >> 2) / TILE);
    }
};

__device__ __forceinline__ int upper_end(int number) {
    const int k = number & 3;
    return (number >> 2) + (k == 0 ? 1 : TILE + k - 2);
}

// Find the least edge out of every component that is not frozen. Each thread scans a strip of one
// column and reduces runs of one component before it touches shared memory.
// PASS 0 finds words, or keys; PASS 1 the least number of the edges with the least key.
template <int PASS>
__device__ void least_edges(Tile& s, const TileCells& z, int diagonal) {
    const int x = threadIdx.x % TILE, y0 = threadIdx.x / TILE * STRIP;
    u32 run = NONE;
    Word least = NO_WORD;
    auto flush = [&]() {
        if (least == NO_WORD) return;
        if constexpr (PASS == 0) {
            if (least < *(volatile Word*)&s.best[run]) atomicMin(&s.best[run], least);
        } else {
            atomicMin(&s.numbers[run], (u32)least);
        }
    };
    for (int y = y0; y < y0 + STRIP; y++) {
        const int c = y * TILE + x;
        const u32 own = s.label[c];
        if (own == NONE || own & FROZEN) continue;
        Key least_key = 0;
        if constexpr (PASS == 1) least_key = s.best[own];
        bool ready = false;
        Operand here{};
        auto look = [&](int other, int number) {
            const u32 label = s.label[other];
            if (label == own || label == NONE) return;
            if (!ready) { here = z[c]; ready = true; }
            const Key key = z.key(here, z[other], number);
            Word word;
            if constexpr (PASS == 1) {
                if (key != least_key) return;
                word = number;
            } else if constexpr (WIDE) {
                word = key;
            } else {
                word = ((Word)key << NUMBER) | number;
            }
            if (own != run) {
                flush();
                run = own;
                least = NO_WORD;
            }
            if (word < least) least = word;
        };
        const bool up = y > 0, down = y + 1 < TILE, left = x > 0, right = x + 1 < TILE;
        if (up) look(c - TILE, 4 * (c - TILE) + 2);
        if (left) look(c - 1, 4 * (c - 1));
        if (right) look(c + 1, 4 * c);
        if (down) look(c + TILE, 4 * c + 2);
        if (diagonal) {
            if (up && left) look(c - TILE - 1, 4 * (c - TILE - 1) + 3);
            if (up && right) look(c - TILE + 1, 4 * (c - TILE + 1) + 1);
            if (down && left) look(c + TILE - 1, 4 * c + 1);
            if (down && right) look(c + TILE + 1, 4 * c + 3);
        }
    }
    flush();
}

// Boruvka's rounds, until no component picks an edge.
template <bool FINAL>
__device__ void rounds(Tile& s, const TileCells& z, int diagonal) {
    for (;;) {
        for (int c = threadIdx.x; c < CELLS; c += THREADS) {
            s.best[c] = NO_WORD;
            if constexpr (WIDE) s.numbers[c] = ~0u;
        }
        __syncthreads();
        least_edges<0>(s, z, diagonal);
        if constexpr (WIDE) {
            __syncthreads();
            least_edges<1>(s, z, diagonal);
        }
        __syncthreads();
        bool picked = false;
        for (int c = threadIdx.x; c < CELLS; c += THREADS) {
            if (s.label[c] != c || s.best[c] == NO_WORD) continue;
            picked = true;
            const int number = WIDE ? s.numbers[c] : (int)(s.best[c] & ((1 << NUMBER) - 1));
            const int a = number >> 2;
            const u32 at_a = s.label[a];
            const u32 other = at_a == c ? s.label[upper_end(number)] : at_a;
            bool mutual = !(other & FROZEN) && s.best[other] == s.best[c];
            if constexpr (WIDE) mutual = mutual && s.numbers[other] == number;
            if (mutual && c < other) continue;
            s.parent[c] = other & ROOT;
            if constexpr (FINAL) atomicOr(&s.mask[a >> 2], 1u << (8 * (a & 3) + (number & 3)));
            else s.found[atomicAdd(&s.count, 1u)] = number;
        }
        if (!__syncthreads_or(picked)) return;
        for (int c = threadIdx.x; c < CELLS; c += THREADS) {
            const u32 label = s.label[c];
            if (label == NONE || label & FROZEN) continue;
            u32 root = label, next;
            while ((next = s.parent[root]) != root) root = next;
            // The labels of roots do not change, so they may be read here.
            if (root != label) s.label[c] = root | (s.label[root] & FROZEN);
        }
        __syncthreads();
    }
}

#if WIDE_KEYS
#define EDGES u64* keys, u32* ids, u32* us, u32* vs
#define CONST_EDGES const u64* keys, const u32* ids, const u32* us, const u32* vs
__device__ __forceinline__ void put(u64* keys, u32* ids, i64 at, Key key, u32 id) {
    keys[at] = key;
    ids[at] = id;
}
#define PUT(at, key, id) put(keys, ids, at, key, id)
#else
// Key and id share one word, so that one atomic minimum compares both.
#define EDGES u64* words, u32* us, u32* vs
#define CONST_EDGES const u64* words, const u32* us, const u32* vs
#define PUT(at, key, id) words[at] = ((u64)(key) << 32) | (id)
#endif

// Vertices of a region are the rim cells of its tiles: RING * tile + number on the rim. An edge of
// a region has the id 4 * (row * cols + col) + direction, with row and column in the region.

extern "C" __global__ void __launch_bounds__(THREADS) tile_forest(
    const Region* region, const Cell* cells, Cell nodata, u32* mask, EDGES, u64* edge_count
) {
    extern __shared__ __align__(16) unsigned char shared[];
    Tile& s = *reinterpret_cast<Tile*>(shared);
    const Region g = *region;
    const int row = blockIdx.x / g.tiles_across, col = blockIdx.x % g.tiles_across;
    const i64 start = tile_start(g, row, col);
    const TileCells z{s, cells + start, g, row * (i64)TILE};
    const bool above = row > 0 || g.sides & 1, below = (row + 1) * (i64)TILE < g.rows || g.sides & 2;
    const bool before = col > 0 || g.sides & 4, after = (col + 1) * (i64)TILE < g.cols || g.sides & 8;
    if (threadIdx.x == 0) s.count = 0;
    for (int c = threadIdx.x; c < CELLS; c += THREADS) {
        const int y = c / TILE, x = c % TILE;
        const Cell value = cells[start + c];
        const bool inside = row * (i64)TILE + y < g.rows && col * (i64)TILE + x < g.cols;
        const bool frozen = (y == 0 && above) || (y == TILE - 1 && below) || (x == 0 && before) ||
                            (x == TILE - 1 && after);
        const bool valid = inside && has_value<Cell>(value, nodata, g.has_nodata);
        s.label[c] = valid ? c | (frozen ? FROZEN : 0) : NONE;
        s.parent[c] = c;
        if constexpr (CACHED) s.cells[c] = operand(value);
        if (c < CELLS / 4) s.mask[c] = 0;
    }
    __syncthreads();
    rounds<true>(s, z, g.diagonal);
    for (int c = threadIdx.x; c < CELLS; c += THREADS) {
        if (s.label[c] != NONE) s.label[c] &= ROOT;
        s.rim[c] = s.label[c];
        s.parent[c] = c;
        if (c < CELLS / 4) mask[start / 4 + c] = s.mask[c];
    }
    __syncthreads();
    rounds<false>(s, z, g.diagonal);
    if (threadIdx.x == 0 && s.count) s.base = atomicAdd(edge_count, (u64)s.count);
    __syncthreads();
    if (threadIdx.x < s.count) {
        const int number = s.found[threadIdx.x], a = number >> 2, b = upper_end(number);
        const i64 at = s.base + threadIdx.x;
        const i64 cell = (row * (i64)TILE + a / TILE) * g.cols + col * (i64)TILE + a % TILE;
        PUT(at, z.key(z[a], z[b], number), (u32)(4 * cell + (number & 3)));
        us[at] = blockIdx.x * RING + ring_index(s.rim[a]);
        vs[at] = blockIdx.x * RING + ring_index(s.rim[b]);
    }
}

// -- edges between tiles ---------------------------------------------------------------------------

extern "C" __global__ void separators(
    const Region* region, const Cell* cells, Cell nodata, EDGES, u64* edge_count
) {
    __shared__ u32 count;
    __shared__ i64 base;
    const Region g = *region;
    const int tile_row = blockIdx.x / g.tiles_across, tile_col = blockIdx.x % g.tiles_across;
    const int t = threadIdx.x;  // 0 .. 2 TILE - 1: right and left columns, then the bottom row
    if (t == 0) count = 0;
    __syncthreads();
    int slots[3];
    Key keys_of[3];
    u32 ids_of[3], u_of[3], v_of[3];
    for (int e = 0; e < 3; e++) {
        int y = t, x = TILE - 1, k;
        if (t < TILE) {
            k = e == 0 ? 0 : (e == 1 ? 3 : 1);
            if (k == 1) x = 0;
        } else {
            y = TILE - 1, x = t - TILE, k = e + 1;
        }
        slots[e] = -1;
        if (!g.diagonal && k & 1) continue;
        // The columns handle the edges at corners.
        if (t >= TILE && ((k == 1 && x == 0) || (k == 3 && x == TILE - 1))) continue;
        const i64 row = tile_row * (i64)TILE + y, col = tile_col * (i64)TILE + x;
        const i64 r = row + (k != 0), c = col + (k == 0 ? 1 : k - 2);
        if (row >= g.rows || col >= g.cols || r >= g.rows || c < 0 || c >= g.cols) continue;
        const Cell a = cells[cell_at(g, row, col)], b = cells[cell_at(g, r, c)];
        if (!has_value<Cell>(a, nodata, g.has_nodata) || !has_value<Cell>(b, nodata, g.has_nodata))
            continue;
        slots[e] = atomicAdd(&count, 1u);
        keys_of[e] = edge_key(g, operand(a), operand(b), k, row);
        ids_of[e] = (u32)(4 * (row * g.cols + col) + k);
        u_of[e] = blockIdx.x * RING + ring_index(y * TILE + x);
        v_of[e] = (u32)(r / TILE * g.tiles_across + c / TILE) * RING +
                  ring_index((int)(r % TILE) * TILE + (int)(c % TILE));
    }
    __syncthreads();
    if (t == 0) base = atomicAdd(edge_count, (u64)count);
    __syncthreads();
    for (int e = 0; e < 3; e++) {
        if (slots[e] < 0) continue;
        const i64 at = base + slots[e];
        PUT(at, keys_of[e], ids_of[e]);
        us[at] = u_of[e];
        vs[at] = v_of[e];
    }
}

// -- the region: Boruvka over a list of edges ------------------------------------------------------

extern "C" __global__ void start_vertices(
    const Region* region, i64 vertices, u32* parent, u8* frozen, u64* best, u32* best_id
) {
    const Region g = *region;
    for (i64 v = blockIdx.x * (i64)blockDim.x + threadIdx.x; v < vertices;
         v += (i64)gridDim.x * blockDim.x) {
        const int tile = (int)(v / RING), cell = ring_cell((int)(v % RING));
        const i64 row = tile / g.tiles_across * (i64)TILE + cell / TILE;
        const i64 col = tile % g.tiles_across * (i64)TILE + cell % TILE;
        parent[v] = (u32)v;
        frozen[v] = (row == 0 && g.sides & 1) || (row == g.rows - 1 && g.sides & 2) ||
                    (col == 0 && g.sides & 4) || (col == g.cols - 1 && g.sides & 8);
        best[v] = ~0ull;
        if (WIDE) best_id[v] = ~0u;
    }
}

// Number a list of edges whose 64-bit ids are too wide: `order` sorts the ids, and ranks replace
// them.
extern "C" __global__ void rank_edges(i64 n, const i64* order, EDGES) {
    for (i64 k = blockIdx.x * (i64)blockDim.x + threadIdx.x; k < n;
         k += (i64)gridDim.x * blockDim.x) {
#if WIDE_KEYS
        ids[order[k]] = (u32)k;
#else
        words[order[k]] = words[order[k]] << 32 | k;
#endif
    }
}

#include "append.cuh"

// Replace the ends of edges by their roots, drop edges inside a component, and find the least edge
// of each component. `tags` holds the index of each edge in the first list.
extern "C" __global__ void least_of_list(
    CONST_EDGES, const u32* tags, const u64* count, int first, const u32* parent, const u8* frozen,
    u64* best,
#if WIDE_KEYS
    u64* keys_out, u32* ids_out,
#else
    u64* words_out,
#endif
    u32* us_out, u32* vs_out, u32* tags_out, u64* count_out
) {
    const i64 n = *count, stride = (i64)gridDim.x * blockDim.x;
    for (i64 base = blockIdx.x * (i64)blockDim.x; base < n; base += stride) {
        const i64 e = base + threadIdx.x;
        u32 u = 0, v = 0;
        if (e < n) {
            u = parent[us[e]];
            v = parent[vs[e]];
        }
        const i64 at = append(u != v, count_out);
        if (u == v) continue;
        us_out[at] = u;
        vs_out[at] = v;
        tags_out[at] = first ? (u32)e : tags[e];
#if WIDE_KEYS
        const u64 word = keys[e];
        keys_out[at] = word;
        ids_out[at] = ids[e];
#else
        const u64 word = words[e];
        words_out[at] = word;
#endif
        if (!frozen[u] && word < *(volatile u64*)&best[u]) atomicMin(&best[u], word);
        if (!frozen[v] && word < *(volatile u64*)&best[v]) atomicMin(&best[v], word);
    }
}

#if WIDE_KEYS
extern "C" __global__ void least_ids(
    CONST_EDGES, const u64* count, const u8* frozen, const u64* best, u32* best_id
) {
    const i64 n = *count;
    for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < n;
         e += (i64)gridDim.x * blockDim.x) {
        const u32 u = us[e], v = vs[e];
        if (!frozen[u] && best[u] == keys[e]) atomicMin(&best_id[u], ids[e]);
        if (!frozen[v] && best[v] == keys[e]) atomicMin(&best_id[v], ids[e]);
    }
}
#endif

// Join components across their least edges. Without `found`, these edges are final: set their bits
// in the mask. With `found`, they are candidates: append their tags.
extern "C" __global__ void hook(
    const Region* region, CONST_EDGES, const u32* tags, const u64* count, u32* parent,
    const u8* frozen, const u64* best, const u32* best_id, u32* mask, u32* found, u64* found_count,
    u64* hooked
) {
    const i64 n = *count, stride = (i64)gridDim.x * blockDim.x;
    for (i64 base = blockIdx.x * (i64)blockDim.x; base < n; base += stride) {
        const i64 e = base + threadIdx.x;
        bool by_u = false, by_v = false;
        u32 id = 0;
        if (e < n) {
            const u32 u = us[e], v = vs[e];
#if WIDE_KEYS
            id = ids[e];
            by_u = !frozen[u] && best[u] == keys[e] && best_id[u] == id;
            by_v = !frozen[v] && best[v] == keys[e] && best_id[v] == id;
#else
            id = (u32)words[e];
            by_u = !frozen[u] && best[u] == words[e];
            by_v = !frozen[v] && best[v] == words[e];
#endif
            if (by_u && by_v) parent[u < v ? v : u] = u < v ? u : v;
            else if (by_u) parent[u] = v;
            else if (by_v) parent[v] = u;
        }
        const bool picked = by_u || by_v;
        if (found) {
            const i64 at = append(picked, found_count);
            if (picked) found[at] = tags[e];
        } else if (picked) {
            const Region g = *region;
            const i64 at = cell_at(g, (id >> 2) / g.cols, (id >> 2) % g.cols);
            atomicOr(&mask[at >> 2], 1u << (8 * (at & 3) + (id & 3)));
        }
        if (picked) *hooked = 1;
    }
}

extern "C" __global__ void flatten(i64 vertices, u32* parent, u64* best, u32* best_id) {
    for (i64 v = blockIdx.x * (i64)blockDim.x + threadIdx.x; v < vertices;
         v += (i64)gridDim.x * blockDim.x) {
        u32 root = parent[v], next;
        while ((next = *(volatile u32*)&parent[root]) != root) root = next;
        parent[v] = root;
        best[v] = ~0ull;
        if (WIDE) best_id[v] = ~0u;
    }
}

// -- the classical method --------------------------------------------------------------------------

// List the edges in the mask of a region; their ends are numbers row * cols + col in the region.
extern "C" __global__ void forest_edges(
    const Region* region, const Cell* cells, const u8* mask, EDGES, u64* edge_count
) {
    const Region g = *region;
    const i64 n = g.rows * g.cols, stride = (i64)gridDim.x * blockDim.x;
    for (i64 base = blockIdx.x * (i64)blockDim.x; base < n; base += stride) {
        const i64 cell = base + threadIdx.x, row = cell / g.cols, col = cell % g.cols;
        const i64 from = cell_at(g, row, col);
        const u32 bits = cell < n ? mask[from] : 0;
        for (int k = 0; k < 4; k++) {
            const bool has = bits >> k & 1;
            const i64 at = append(has, edge_count);
            if (!has) continue;
            const i64 r = row + (k != 0), c = col + (k == 0 ? 1 : k - 2);
            const Cell a = cells[from], b = cells[cell_at(g, r, c)];
            PUT(at, edge_key(g, operand(a), operand(b), k, row), (u32)(4 * cell + k));
            us[at] = (u32)cell;
            vs[at] = (u32)(r * g.cols + c);
        }
    }
}

// Take edges out of the mask.
extern "C" __global__ void drop_edges(const Region* region, const u32* ids, i64 n, u32* mask) {
    const Region g = *region;
    for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < n;
         e += (i64)gridDim.x * blockDim.x) {
        const i64 at = cell_at(g, (ids[e] >> 2) / g.cols, (ids[e] >> 2) % g.cols);
        atomicAnd(&mask[at >> 2], ~(1u << (8 * (at & 3) + (ids[e] & 3))));
    }
}

// -- statistics of the result ----------------------------------------------------------------------

// Exact sum of the weights of a tile's edges, with a low and a high word per exponent, as on the
// CPU; also counts edges and vertices.
constexpr int EXPONENTS = FLOAT ? (LONG ? 2048 : 256) : 1;

extern "C" __global__ void weigh(
    const Region* region, const Cell* cells, Cell nodata, const u8* mask, u64* sums, u64* totals
) {
    __shared__ u64 sum[2 * EXPONENTS];
    __shared__ u32 counts[2];
    const Region g = *region;
    const int tile_row = blockIdx.x / g.tiles_across, tile_col = blockIdx.x % g.tiles_across;
    const i64 start = tile_start(g, tile_row, tile_col);
    for (int k = threadIdx.x; k < 2 * EXPONENTS; k += blockDim.x) sum[k] = 0;
    if (threadIdx.x < 2) counts[threadIdx.x] = 0;
    __syncthreads();
    u32 edges = 0, valid = 0;
    int run = 0;
    i64 low = 0, high = 0;
    auto flush = [&]() {
        if (low) atomicAdd(&sum[2 * run], (u64)low);
        if (high) atomicAdd(&sum[2 * run + 1], (u64)high);
        low = high = 0;
    };
    auto add = [&](Bits key) {
        if constexpr (!FLOAT) {
            low += (u32)key;
            if constexpr (LONG) high += (i64)((u64)key >> 32);
        } else {
            constexpr int POINT = LONG ? 52 : 23;
            i64 sign = 1;
            Bits size = key & ~SIGN;
            if (!ABSDIFF && !(key & SIGN)) {
                sign = -1;
                size = ~SIGN - size;
            }
            const int exponent = (int)(size >> POINT);
            u64 mantissa = size & (((Bits)1 << POINT) - 1);
            if (exponent > 0) mantissa |= (u64)1 << POINT;
            if (exponent != run) {
                flush();
                run = exponent;
            }
            low += sign * (i64)(mantissa & 0xFFFFFFFFu);
            high += sign * (i64)(mantissa >> 32);
        }
    };
    for (int c = threadIdx.x; c < CELLS; c += blockDim.x) {
        const i64 row = tile_row * (i64)TILE + c / TILE, col = tile_col * (i64)TILE + c % TILE;
        if (row >= g.rows || col >= g.cols) continue;
        const Cell here = cells[start + c];
        const bool good = has_value<Cell>(here, nodata, g.has_nodata);
        valid += good;
        // The key of the largest 64-bit integer means "no edge": report such a cell.
        if (LONG && !FLOAT && good && operand(here) == (Operand)NO_WORD)
            atomicMax(&totals[2], (u64)(row * g.cols + col + 1));
        const u32 bits = mask[start + c];
        for (int k = 0; k < 4; k++) {
            if (!(bits >> k & 1)) continue;
            edges++;
            const i64 there = cell_at(g, row + (k != 0), col + (k == 0 ? 1 : k - 2));
            add(weight_bits(operand(here), operand(cells[there])));
        }
    }
    flush();
    atomicAdd(&counts[0], edges);
    atomicAdd(&counts[1], valid);
    __syncthreads();
    for (int k = threadIdx.x; k < 2 * EXPONENTS; k += blockDim.x)
        if (sum[k]) atomicAdd(&sums[k], sum[k]);
    if (threadIdx.x < 2) atomicAdd(&totals[threadIdx.x], (u64)counts[threadIdx.x]);
}

// Copy the cells along the border: top and bottom row, left and right column.
extern "C" __global__ void border(const Region* region, const Cell* cells, Cell* out) {
    const Region g = *region;
    const i64 n = 2 * (g.rows + g.cols);
    for (i64 k = blockIdx.x * (i64)blockDim.x + threadIdx.x; k < n;
         k += (i64)gridDim.x * blockDim.x) {
        i64 row, col;
        if (k < 2 * g.cols) {
            row = k < g.cols ? 0 : g.rows - 1;
            col = k % g.cols;
        } else {
            row = (k - 2 * g.cols) % g.rows;
            col = k - 2 * g.cols < g.rows ? 0 : g.cols - 1;
        }
        out[k] = cells[cell_at(g, row, col)];
    }
}
