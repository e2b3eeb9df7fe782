// Reserve a place at the end of a list for this thread's item, if any; one atomic per warp.
__device__ __forceinline__ i64 append(bool has, u64* count) {
    const unsigned all = __ballot_sync(~0u, has), lane = threadIdx.x & 31;
    u64 first = 0;
    if (lane == 0 && all) first = atomicAdd(count, (u64)__popc(all));
    return __shfl_sync(~0u, first, 0) + __popc(all & ((1u << lane) - 1));
}
