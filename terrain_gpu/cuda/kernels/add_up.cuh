// Add every thread's number; all threads of a block must come here.
__device__ void add_up(u64 mine, u64* total) {
    __shared__ u64 sum;
    __syncthreads();  // it may still be read for the last number
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (mine) atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0 && sum) atomicAdd(total, sum);
}
