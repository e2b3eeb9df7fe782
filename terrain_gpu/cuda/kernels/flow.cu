// What follows from flow directions, over a whole raster: sums of what drains through each cell, and
// filled heights. See hydrology/along_flow/gpu.py. Macros: CELL, the type of heights;
// SUM, of sums, u64 or u32.
#include "cells.cuh"
#include "neighbours.cuh"
#include "raster.cuh"
#include "add_up.cuh"
typedef CELL Cell;
typedef SUM Sum;

// The D8 direction in which a cell drains, or one of these.
constexpr u8 END = 8, NOWHERE = 255;

// Counters that the host reads.
enum { BAD, DRAINED, PASSED };

// Replace D8 codes by directions. BAD: the least number of a cell without a code. Where another value
// is nodata (-1: none is), 255 is an inland sink.
extern "C" __global__ void decode(const Region* region, int nodata, u8* codes, u64* notes) {
    const Region g = *region;
    u64 drained = 0;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside) return;
        const u8 code = codes[s.at];
        u8 found = NOWHERE;
        const bool sink = code == NOWHERE && nodata >= 0;
        if ((code == 0 || sink) && code != nodata) found = END;
        else if (code != NOWHERE && code != nodata) {
            if (code & (code - 1)) atomicMin(&notes[BAD], (u64)(s.row * g.cols + s.col));
            found = (u8)(__ffs(code) - 1);
        }
        drained += found != NOWHERE;
        codes[s.at] = found;
    });
    add_up(drained, &notes[DRAINED]);
}

// Ways end where the next cell does not drain, or lies outside.
extern "C" __global__ void end_ways(const Region* region, u8* steps) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside || steps[s.at] >= END) return;
        Spot to;
        if (!neighbour(g, s, steps[s.at], to) || steps[to.at] == NOWHERE) steps[s.at] = END;
    });
}

// -- sums ------------------------------------------------------------------------------------------

// In place of the number of cells that a cell waits for: nothing drains into it.
constexpr u8 HEAD = 16;

// Each cell's own units, and how many cells drain into it.
extern "C" __global__ void start_sums(
    const Region* region, const u8* steps, const i64* units, u8* waiting, Sum* sums
) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        const bool drains = inside && steps[s.at] != NOWHERE;
        int inflows = 0;
        for (int k = 0; k < 8 && drains; k++) {
            Spot to;
            inflows += neighbour(g, s, k, to) && steps[to.at] == opposite(k);
        }
        waiting[s.at] = drains && inflows == 0 ? HEAD : (u8)inflows;
        sums[s.at] = drains ? (Sum)units[s.row] : 0;
    });
}

// Pass sums down from every head. Where ways meet, the last to arrive goes on.
extern "C" __global__ void pass_on(
    const Region* region, const u8* steps, u32* waiting, Sum* sums, u64* notes
) {
    const Region g = *region;
    u64 passed = 0;
    each_cell(g, [&](const Spot& start, bool inside) {
        if (!inside || ((volatile u8*)waiting)[start.at] != HEAD) return;
        Spot s = start;
        Sum sum = sums[s.at];
        for (;;) {
            passed++;
            const u8 k = steps[s.at];
            if (k >= END) break;
            Spot to;
            neighbour(g, s, k, to);
            s = to;
            atomicAdd(&sums[s.at], sum);
            __threadfence();
            const int shift = 8 * (int)(s.at & 3);
            const u32 before = atomicSub(&waiting[s.at >> 2], 1u << shift);
            if ((before >> shift & 255) != 1) break;
            __threadfence();
            sum = *(volatile Sum*)&sums[s.at];
        }
    });
    add_up(passed, &notes[PASSED]);
}

// Sums in place as they are written: numbers of cells, or floats, multiples of `unit`.
extern "C" __global__ void write_sums(
    const Region* region, const u8* steps, const i64* units, int floats, double unit,
    int without_own, Sum* sums
) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside) return;
        const bool drains = steps[s.at] != NOWHERE;
        i64 sum = (i64)sums[s.at];
        if (without_own && drains) sum -= units[s.row];
        const bool absent = without_own && !drains;
        if (absent) sum = -1;
        const double real = absent ? -1.0 : (double)sum * unit;
        sums[s.at] = (Sum)(floats ? __double_as_longlong(real) : sum);
    });
}

// -- levels ----------------------------------------------------------------------------------------

// A word holds a cell further down, and above it the highest cell before that one: of equal ones the
// first. At the end of a way it holds the end itself twice.
extern "C" __global__ void start_ways(const Region* region, const u8* steps, u64* words) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside) return;
        Spot to = s;
        if (steps[s.at] < END) neighbour(g, s, steps[s.at], to);
        words[s.at] = (u64)s.at << 32 | (u64)to.at;
    });
}

// Double the ways; `left` says whether any did not reach its end. On cycles a cell may lead to itself.
extern "C" __global__ void jump(
    const Region* region, const Cell* cells, const u8* steps, u64* words, int* left
) {
    const Region g = *region;
    bool any = false;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (!inside || steps[s.at] >= END) return;
        const u64 word = words[s.at];
        const u32 next = (u32)word, top = (u32)(word >> 32);
        const u64 after = *(volatile u64*)&words[next];
        const u32 beyond = (u32)after, other = (u32)(after >> 32);
        words[s.at] = (u64)(cells[other] > cells[top] ? other : top) << 32 | beyond;
        any |= steps[beyond] < END;
    });
    if (any) *left = 1;
}

extern "C" __global__ void levels(
    const Region* region, const Cell* cells, const u64* words, Cell* out
) {
    const Region g = *region;
    each_cell(g, [&](const Spot& s, bool inside) {
        if (inside) out[s.at] = cells[words[s.at] >> 32];
    });
}
