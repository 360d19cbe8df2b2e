// SPDX-License-Identifier: MIT
// Tiles of AMX: whether this process may use them, and their configuration.
#pragma once

#include <cstdint>

#include "specula/simd/isa.hpp"

#if SPECULA_X86
#include <cpuid.h>
#include <immintrin.h>
#endif
#if SPECULA_X86 && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>
#endif

namespace specula::cpu::detail {

#if SPECULA_X86

#define SPECULA_AMX_TARGET gnu::target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")

/// What LDTILECFG reads: rows of each tile, and bytes of a row.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, int row_count, int row_bytes) {
    rows[tile] = static_cast<std::uint8_t>(row_count), bytes[tile] = static_cast<std::uint16_t>(row_bytes);
  }
};

/// g++'s intrinsic says that it reads eight bytes alone.
[[SPECULA_AMX_TARGET, gnu::always_inline]] static inline void set_tiles(const TileShapes& shapes) {
  __asm__ volatile("" ::"r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
}

/// Whether the processor says that it has tiles of bfloat16, and the system lets this process use them. Linux
/// gives them to a process that asks, once and for all of its threads.
inline bool request_amx() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBfloat16 = 1u << 22, kTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kBfloat16) == 0) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

/// Whether a small product of tiles is right.
[[SPECULA_AMX_TARGET]] inline bool tiles_multiply() {
  TileShapes shapes;
  for (int tile = 0; tile < 3; ++tile) shapes.set(tile, 4, 16);
  alignas(64) std::uint16_t a[32], b[32];
  alignas(64) float sums[16];
  constexpr std::uint16_t kNumbers[] = {0xc000, 0xbf80, 0, 0x3f80}, kThree = 0x4040;  // -2, -1, 0, 1; 3
  for (int i = 0; i < 32; ++i) a[i] = kNumbers[i / 8], b[i] = kThree;
  set_tiles(shapes);  // stores of a and b come before, of which g++ does not know that tiles read them
  _tile_zero(0);
  _tile_loadd(1, a, 16);
  _tile_loadd(2, b, 16);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, sums, 16);
  _tile_release();
  bool right = true;
  for (int i = 0; i < 16; ++i) right = right && sums[i] == static_cast<float>((i / 4 - 2) * 3 * 8);
  return right;
}

#endif

#if SPECULA_X86 && defined(__linux__)
/// What f() returns; false if the processor does not have an instruction of it.
inline bool without_fault(bool (*f)()) {
  static thread_local sigjmp_buf* after = nullptr;
  struct Handler {
    static void run(int) {
      if (after) siglongjmp(*after, 1);
    }
  };
  struct sigaction ours = {}, before = {};
  ours.sa_handler = &Handler::run;
  if (sigaction(SIGILL, &ours, &before) != 0) return false;
  sigjmp_buf here;
  volatile bool right = false;
  if (sigsetjmp(here, 1) == 0) {
    after = &here;
    right = f();
  }
  after = nullptr;
  sigaction(SIGILL, &before, nullptr);
  return right;
}
#endif

/// Whether AMX multiplies bfloat16 here. Some virtual machines advertise it, and fault: so the first call
/// tries.
inline bool amx_works() {
#if SPECULA_X86 && defined(__linux__)
  static const bool works = request_amx() && without_fault(&tiles_multiply);
  return works;
#else
  return false;
#endif
}

}  // namespace specula::cpu::detail
