// An empty kernel: compiling and loading it shows that CUDA works.
extern "C" __global__ void probe() {}
