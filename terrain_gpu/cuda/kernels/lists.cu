// List ranking: pointer jumping, random splitters, fractional independent sets. See primitives/lists.py.
//
// An element is one word. It holds first the successor and the value of the step to it, then the element's sublist and
// position in it, finally the rank. So a walk touches one memory location per element. The last element of a list
// leads to the end, an extra word after all others with value 0.
//
// Macro: BITS of a word. Words of 32, 64 and 128 bits hold two numbers of half the size; 48 bits are 32 and 16 in two
// arrays.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct __align__(16) Pair {
    i64 low, high;
};

#if BITS == 128
typedef i64 Id;
typedef Pair Word;
typedef Pair Reduced;
typedef i64 Value;
__device__ __forceinline__ Word pack(Id low, Value high) { return {low, high}; }
__device__ __forceinline__ Id low_of(Word w) { return w.low; }
__device__ __forceinline__ Value high_of(Word w) { return w.high; }
#else
typedef u32 Id;
typedef u32 Value;
typedef u64 Reduced;
#if BITS == 64
typedef u64 Word;
__device__ __forceinline__ Word pack(Id low, Value high) { return (u64)high << 32 | low; }
__device__ __forceinline__ Id low_of(Word w) { return (Id)w; }
__device__ __forceinline__ Value high_of(Word w) { return (Value)(w >> 32); }
#elif BITS == 32
typedef u32 Word;
__device__ __forceinline__ Word pack(Id low, Value high) { return high << 16 | low; }
__device__ __forceinline__ Id low_of(Word w) { return w & 0xFFFF; }
__device__ __forceinline__ Value high_of(Word w) { return w >> 16; }
#else
typedef u32 Word;  // the successor, then the position in the sublist; steps have value 1
#endif
#endif

#if BITS == 128
__device__ __forceinline__ Reduced reduced_word(Id next, Value value) { return {next, value}; }
#else
__device__ __forceinline__ Reduced reduced_word(Id next, Value value) { return (u64)value << 32 | next; }
#endif

// Counters that the host reads.
enum { BAD, LASTS, TARGETS, HEADS, VISITED };

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 threads() { return (i64)gridDim.x * blockDim.x; }

__device__ __forceinline__ u64 warp_sum(u64 value) {
    for (int offset = 16; offset; offset /= 2) value += __shfl_down_sync(~0u, value, offset);
    return value;
}

// Add the warp's values, with one atomic.
__device__ __forceinline__ void add(u64* total, u64 value) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0 && value) atomicAdd(total, value);
}

__device__ __forceinline__ void mark(u32* marks, i64 v) { atomicOr(&marks[v >> 5], 1u << (v & 31)); }

// -- RS1: write words, and mark each element that has a predecessor ----------------------------------

template <typename Index>
__device__ void prepare(const Index* succ, const i64* weights, i64 n, Word* words, u32* marks, u64* notes) {
    u64 bad = 0, lasts = 0;
    for (i64 v = thread(); v < n; v += threads()) {
        i64 next = succ[v];
        bool inside = next >= 0 && next < n, last = next == v || !inside;
        bad += !inside;
        lasts += last;
        if (!last) mark(marks, next);
#if BITS == 48
        words[v] = (Id)(last ? n : next);
#else
        words[v] = pack((Id)(last ? n : next), (Value)(last ? 0 : weights ? weights[v] : 1));
#endif
    }
#if BITS != 48
    if (thread() == 0) words[n] = pack((Id)n, 0);
#endif
    add(&notes[BAD], bad);
    add(&notes[LASTS], lasts);
}

extern "C" __global__ void prepare_int32(
    const int* succ, const i64* weights, i64 n, Word* words, u32* marks, u64* notes
) {
    prepare(succ, weights, n, words, marks, notes);
}

extern "C" __global__ void prepare_int64(
    const i64* succ, const i64* weights, i64 n, Word* words, u32* marks, u64* notes
) {
    prepare(succ, weights, n, words, marks, notes);
}

// Count elements with a predecessor: fewer than steps if an element has two predecessors.
extern "C" __global__ void count_targets(const u32* marks, i64 n, u64* notes) {
    u64 found = 0;
    for (i64 k = thread(); k < (n + 31) / 32; k += threads()) found += __popc(marks[k]);
    add(&notes[TARGETS], found);
}

#if BITS != 32

// -- RS2: choose the heads of sublists ---------------------------------------------------------------

// The splitter of a block of 2^shift elements: a random one of them.
__device__ __forceinline__ Id pick(Id block, int shift) {
    u32 x = (u32)block * 0x9E3779B1u;
    x = (x ^ x >> 15) * 0x85EBCA77u;
    x ^= x >> 13;
    return (block << shift) + (Id)(x & ((1u << shift) - 1));
}

__device__ __forceinline__ bool is_splitter(Id v, int shift, Id splitters) {
    Id block = v >> shift;
    return block < splitters && pick(block, shift) == v;
}

// Collect the heads of lists that are not splitters.
extern "C" __global__ void find_heads(
    const u32* marks, i64 n, int shift, i64 splitters, Id* heads, u64* notes
) {
    for (i64 k = thread(); k < (n + 31) / 32; k += threads()) {
        u32 bits = ~marks[k];
        if (32 * k + 32 > n) bits &= (1u << (n & 31)) - 1;
        for (u32 left = bits; left; left &= left - 1) {
            int bit = __ffs(left) - 1;
            if (is_splitter((Id)(32 * k + bit), shift, (Id)splitters)) bits &= ~(1u << bit);
        }
        if (!bits) continue;
        u64 at = atomicAdd(&notes[HEADS], (u64)__popc(bits));
        for (; bits; bits &= bits - 1) heads[at++] = (Id)(32 * k + __ffs(bits) - 1);
    }
}

// -- RS3: walk the sublists --------------------------------------------------------------------------

// Every thread walks one sublist after another and writes into each element its sublist and position. The result is
// the reduced list, of sublists: the next sublist, and the value of the steps to it.
extern "C" __global__ void walk(
    Word* words, u16* owners, i64 count_of_words, int shift, i64 count_of_splitters, const Id* heads,
    i64 count_of_sublists, Reduced* reduced, u32* marks, u64* notes
) {
    const Id n = (Id)count_of_words, splitters = (Id)count_of_splitters, count = (Id)count_of_sublists;
    const Id step = (Id)threads();
    u64 visited = 0;
    Value local = 0;
    Id k = (Id)thread(), v = n;
    if (k < count) v = k < splitters ? pick(k, shift) : heads[k - splitters];
    // One loop, not two nested ones: a lane need not wait for the longest sublist of its warp.
    while (k < count) {
#if BITS == 48
        Id next = words[v];
        Value value = next != n;
        words[v] = local;
        owners[v] = (u16)k;
#else
        Word word = words[v];
        Id next = low_of(word);
        Value value = high_of(word);
        words[v] = pack(k, local);
#endif
        visited++;
        local += value;
        v = next;
        bool end = next == n;
        if (end || is_splitter(next, shift, splitters)) {
            reduced[k] = reduced_word(end ? count : next >> shift, local);
            if (!end) mark(marks, next >> shift);
            local = 0;
            k += step;
            if (k < count) v = k < splitters ? pick(k, shift) : heads[k - splitters];
        }
    }
    if (thread() == 0) reduced[count] = reduced_word(count, 0);
    __syncwarp();
    add(&notes[VISITED], visited);
}

// -- RS5: compute the rank of each element from that of its sublist ----------------------------------

// `out` may be `words`.
extern "C" __global__ void expand(const Word* words, const u16* owners, i64 n, const i64* ranks, i64* out) {
    for (i64 v = thread(); v < n; v += threads()) {
#if BITS == 48
        out[v] = ranks[owners[v]] - (i64)words[v];
#else
        Word word = words[v];
        out[v] = ranks[low_of(word)] - (i64)high_of(word);
#endif
    }
}

#endif

#if BITS != 48

// -- RS4, and Wyllie's algorithm: pointer jumping ----------------------------------------------------

// `to` may be `from` for words of up to 64 bits, which are read and written atomically. `left[r]` says whether any
// element is unfinished after round r; if none is, later rounds in place do nothing. A single block can do all
// `rounds` in one launch, in place: they need only the block's barrier between them.
extern "C" __global__ void jump(const Word* from, Word* to, i64 n, int* left, int round, int rounds) {
    for (const int stop = round + rounds; round < stop; round++) {
        if (round > 0 && from == to && !left[round - 1]) return;
        bool any = false;
        for (i64 v = thread(); v <= n; v += threads()) {
            Word word = from[v];
            Id next = low_of(word);
            if (next != (Id)n) {
                Word after = from[next];
                word = pack(low_of(after), (Value)(high_of(word) + high_of(after)));
                any |= low_of(after) != (Id)n;
            } else if (from == to) {
                continue;
            }
            to[v] = word;
        }
        if (any) left[round] = 1;
        if (rounds > 1) __syncthreads();
    }
}

// Extract the values, now ranks. `out` may be `words` if both have 64 bits.
extern "C" __global__ void values(const Word* words, i64 n, i64* out) {
    for (i64 v = thread(); v < n; v += threads()) out[v] = (i64)high_of(words[v]);
}

#endif

#if BITS == 64 || BITS == 128

// -- fractional independent sets ---------------------------------------------------------------------

constexpr u8 HEADS_UP = 1, CHOSEN = 2;

// Give each remaining element a random bit.
extern "C" __global__ void toss(const Id* live, i64 count, const u64* bits, u8* coins) {
    for (i64 i = thread(); i < count; i += threads()) coins[live[i]] = bits[i >> 6] >> (i & 63) & 1;
}

// Choose the elements with heads whose successor has tails: never two in a row.
extern "C" __global__ void choose(const Word* words, i64 n, const Id* live, i64 count, u8* coins, bool* chosen) {
    for (i64 i = thread(); i < count; i += threads()) {
        Id v = live[i], next = low_of(words[v]);
        chosen[i] = coins[v] && next != (Id)n && !(coins[next] & HEADS_UP);
        if (chosen[i]) coins[v] = HEADS_UP | CHOSEN;
    }
}

// Make each element that leads to a chosen one skip it. A step back to the element itself reveals a cycle.
extern "C" __global__ void splice(Word* words, i64 n, const Id* live, i64 count, const u8* coins, u64* notes) {
    for (i64 i = thread(); i < count; i += threads()) {
        Id v = live[i];
        Word word = words[v];
        Id next = low_of(word);
        if (next == (Id)n || coins[v] & CHOSEN || !(coins[next] & CHOSEN)) continue;
        Word after = words[next];
        if (low_of(after) == v) notes[BAD] = 1;
        words[v] = pack(low_of(after), (Value)(high_of(word) + high_of(after)));
    }
}

// Renumber the remaining elements.
extern "C" __global__ void number(const Id* live, i64 count, Id* numbers) {
    for (i64 i = thread(); i < count; i += threads()) numbers[live[i]] = (Id)i;
}

extern "C" __global__ void gather(
    const Word* words, i64 n, const Id* live, i64 count, const Id* numbers, Word* kept, u32* marks
) {
    for (i64 i = thread(); i < count; i += threads()) {
        Word word = words[live[i]];
        Id next = low_of(word);
        if (next != (Id)n) mark(marks, numbers[next]);
        kept[i] = pack(next == (Id)n ? (Id)count : numbers[next], high_of(word));
    }
    if (thread() == 0) kept[count] = pack((Id)count, 0);
}

extern "C" __global__ void scatter(const Id* live, i64 count, const i64* ranks, i64* out) {
    for (i64 i = thread(); i < count; i += threads()) out[live[i]] = ranks[i];
}

// Put the elements removed in a round back.
extern "C" __global__ void insert(const Word* words, const Id* gone, i64 count, i64* out) {
    for (i64 i = thread(); i < count; i += threads()) {
        Word word = words[gone[i]];
        out[gone[i]] = (i64)high_of(word) + out[low_of(word)];
    }
}

#endif
