// Weights of edges as unsigned keys, in the order of the weights, as on the CPU. Macros: CELL, the type
// of cells; ABSDIFF, whether the weight is |dz| (1) or the higher cell (0); SLOPES, whether of edges of
// one weight the steeper comes first. Needs cells.cuh.

typedef CELL Cell;
constexpr bool FLOAT = (Cell)0.5 != (Cell)0;
constexpr int BITS = 8 * sizeof(Cell);
constexpr bool LONG = BITS == 64, WIDE = LONG || SLOPES;

template <bool B, typename T, typename F> struct Pick { typedef T type; };
template <typename T, typename F> struct Pick<false, T, F> { typedef F type; };

typedef Pick<WIDE, u64, u32>::type Key;
typedef Pick<LONG, u64, u32>::type Bits;
typedef Pick<SLOPES || (FLOAT && ABSDIFF), Cell, Pick<(BITS <= 16), u16, Bits>::type>::type Operand;
constexpr Bits SIGN = (Bits)1 << (BITS - 1);

__device__ __forceinline__ u32 bits_of(float z) { return __float_as_uint(z); }
__device__ __forceinline__ u64 bits_of(double z) { return (u64)__double_as_longlong(z); }
template <typename T> __device__ __forceinline__ Bits bits_of(T z) { return (Bits)z; }

// Unsigned numbers in the order of cells.
__device__ __forceinline__ Bits order(Cell z) {
    if constexpr (FLOAT) {
        Bits bits = bits_of(z + (Cell)0);  // turns -0 into +0
        return bits & SIGN ? ~bits : bits ^ SIGN;
    } else if constexpr ((Cell)-1 < (Cell)1) {
        return (Bits)z + SIGN;  // the least value becomes 0
    } else {
        return (Bits)z;
    }
}

__device__ __forceinline__ Operand operand(Cell z) {
    if constexpr (SLOPES || (FLOAT && ABSDIFF)) return z;
    else return (Operand)order(z);
}

// The weight, without the slope.
__device__ __forceinline__ Bits weight_bits(Operand a, Operand b) {
    if constexpr (SLOPES) {
        return order(a > b ? a : b);
    } else if constexpr (FLOAT && ABSDIFF) {
        return bits_of(a < b ? b - a : a - b) & ~SIGN;
    } else {
        Bits high = a > b ? a : b, low = a > b ? b : a;
        return ABSDIFF ? high - low : high;
    }
}

// The key of an edge in a direction from a row of the region.
__device__ __forceinline__ Key edge_key(const Region& g, Operand a, Operand b, int k, i64 row) {
    if constexpr (SLOPES) {
        const double drop = (double)a - (double)b;
        const float slope = (float)((drop < 0 ? -drop : drop) * g.per_length[k * g.rows + row]);
        return (Key)((u64)weight_bits(a, b) << 32 | (0x7FFFFFFFu - __float_as_uint(slope)));
    } else {
        return weight_bits(a, b);
    }
}
