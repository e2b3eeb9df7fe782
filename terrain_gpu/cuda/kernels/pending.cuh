// Pending tiles, each with a key: the least distance that is still to be propagated into it.
//
// Shared by kernels that run one after another, and by the waves of `relax`. A wave consumes
// candidates and collects those of the next wave. There are three sets of counters, so that one
// can be cleared while the other two are in use.

#define HALO (1 + KNIGHTS)           // how far steps reach
#define SIDE 32                      // of a tile: a warp's lanes are its columns, then its rows
#define LISTED 1u                    // the tile is a candidate of this wave or the next
#define WHOLE 2u                     // cells inside the tile were set, not only beside it
#define AWAY 4u                      // some of its cells or of its ring are not loaded yet
#define CHANGED 8u                   // some of its distances decreased

#if DISTANCE == U32
typedef u32 order;
#else
typedef u64 order;
#endif
#define NONE ((order)~(order)0)

// Distances as integers in the same order, for atomicMin.
__device__ __forceinline__ order order_of(dist d) {
#if DISTANCE == F64
    u64 bits = (u64)__double_as_longlong(d);
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
#else
    return d;
#endif
}

__device__ __forceinline__ dist distance_of(order key) {
#if DISTANCE == F64
    return __longlong_as_double((i64)(key >> 63 ? key & 0x7fffffffffffffffull : ~key));
#else
    return key;
#endif
}

// A bit for each neighbour.
#if KNIGHTS
typedef u16 mask;
#else
typedef u8 mask;
#endif

struct Wave {
    f64 sum;        // of the candidates' keys
    order least;    // lower bound of these keys
    u32 candidates; // their number
    u32 chosen;     // number of candidates to relax in this wave
    u32 taken;      // number of these taken so far, not counting the first one of each warp
    u32 overflow;   // whether the previous wave met a distance that is too large
};

struct State {
    Wave waves[3];
    u64 number;      // waves done
    u64 visits;      // tiles relaxed
    u64 steps;       // rows and columns relaxed
    u32 arrived;     // blocks at the barrier
    u32 overflow;    // the run needs a wider type of distances
};

struct Pending {
    i64 down, across; // number of tiles; of several planes, `down` is that of all
    order* keys;      // per tile
    u32* flags;       // per tile, as above
    u32* lists;       // three lists of tiles: candidates of even waves, of odd waves, and chosen
    State* state;
};

__device__ __forceinline__ u32* candidates(const Pending& q, u64 wave) {
    return q.lists + (wave & 1) * q.down * q.across;
}

__device__ __forceinline__ u32* chosen(const Pending& q) {
    return q.lists + 2 * q.down * q.across;
}

__device__ __forceinline__ void clear(Wave& wave) {
    wave.sum = 0;
    wave.least = NONE;
    wave.candidates = wave.chosen = wave.taken = wave.overflow = 0;
}

// Make a tile pending with a key. Returns whether it was not listed before.
__device__ __forceinline__ bool lower(const Pending& q, i64 tile, order key, u32 flags) {
    atomicMin(q.keys + tile, key);
    return !(atomicOr(q.flags + tile, LISTED | flags) & LISTED);
}

// The same, including the list and counters of `wave`; only while no wave is running.
__device__ __forceinline__ void post(
    const Pending& q, u64 wave, i64 tile, order key, u32 flags
) {
    Wave& w = q.state->waves[wave % 3];
    atomicMin(&w.least, key);
    if (lower(q, tile, key, flags)) {
        candidates(q, wave)[atomicAdd(&w.candidates, 1u)] = (u32)tile;
        atomicAdd(&w.sum, (f64)distance_of(key));
    }
}
