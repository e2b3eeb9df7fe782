// Add every thread's number to the total; all threads of a block must call this.
__device__ void add_up(u64 mine, u64* total) {
    __shared__ u64 sum;
    __syncthreads();  // thread 0 may still be reading the last sum
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (mine) atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0 && sum) atomicAdd(total, sum);
}
