// SPDX-License-Identifier: MIT
// What compute-sanitizer says of a kernel that is right: the first warp of a block posts, the others answer,
// as in verification, and both wait at the same barriers in different places. An argument, the sum of: 1, the
// others also use a barrier of their own; 2, the first warp diverges; 4, both wait for the cluster in
// between; 8, the block's barriers are PTX's non-aligned ones, 16, the aligned __syncthreads(), otherwise
// those of cooperative groups. Prints CUDA's last error. As in
//   compute-sanitizer --tool racecheck build/gpu/90a/barriers 1
#include <cooperative_groups.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

template <int kKind>
__global__ void post_and_answer(int* out, int rounds) {
#if __CUDA_ARCH__ >= 900
  __shared__ int post, answer, last[2], part[2];
  const auto sync = [] {
    if (kKind & 8)
      asm volatile("barrier.sync 0;" ::: "memory");
    else if (kKind & 16)
      __syncthreads();
    else
      cooperative_groups::this_thread_block().sync();
  };
  if (threadIdx.x / 32 == 0) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
      if (threadIdx.x == 0) post = i + 1;
      sync();
      if (kKind & 2) {
        volatile int work = 0;
        for (unsigned k = 0; k < threadIdx.x; ++k) work += k;
      }
      if (kKind & 4) {
        cooperative_groups::this_cluster().sync();
        sum += last[(i + 1) % 2];
      }
      sync();
      sum += answer;
      __syncwarp();
    }
    if (threadIdx.x == 0) post = 0;
    sync();
    out[blockIdx.x * 32 + threadIdx.x] = sum;
    return;
  }
  for (sync(); post != 0; sync()) {
    const int asked = post;
    if (kKind & 1) {
      for (int k = 0; k < asked % 3; ++k) {
        if (threadIdx.x == 32) part[k] = asked;
        asm volatile("barrier.sync 1, %0;" ::"r"(blockDim.x - 32) : "memory");
      }
    }
    if (kKind & 4) {
      if (threadIdx.x == 32) last[asked % 2] = asked;
      cooperative_groups::this_cluster().sync();
    }
    if (threadIdx.x == 32) answer = 2 * asked;
    sync();
  }
#endif
}

template <int... kinds>
void run(int kind, int* out, std::integer_sequence<int, kinds...>) {
  ((kind == kinds ? post_and_answer<kinds><<<8, 128>>>(out, 20) : void()), ...);
}

}  // namespace

int main(int count, char** words) {
  int* out = nullptr;
  cudaMalloc(&out, 8 * 32 * sizeof(int));
  run(count > 1 ? std::atoi(words[1]) : 0, out, std::make_integer_sequence<int, 32>());
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
