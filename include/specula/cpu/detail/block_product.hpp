// SPDX-License-Identifier: MIT
// The product of weights in blocks with any number of rounded inputs. Its register blocks are compiled by
// compile_block_products.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/amx.hpp"
#include "specula/cpu/detail/block_layout.hpp"
#include "specula/cpu/detail/rounded_inputs.hpp"
#include "specula/cpu/inputs.hpp"
#include "specula/simd/isa.hpp"

namespace specula::cpu::detail {

/// Instructions of products with integers. Those of x86 give the same bits. `amx` is for many inputs of 16
/// bits.
enum class BlockIsa : std::uint8_t { portable, avx2, avx_vnni, avx512_vnni, amx };

/// Whether this processor has them.
inline bool supported(BlockIsa isa) {
#if SPECULA_X86
  if (isa == BlockIsa::amx) return supported(BlockIsa::avx512_vnni) && amx_works();
  if (isa == BlockIsa::avx512_vnni)
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
  if (isa == BlockIsa::avx_vnni) return has_avx_vnni();
  if (isa == BlockIsa::avx2) return specula::supported(Isa::avx2);
#endif
  return isa == BlockIsa::portable;
}

/// The best of them for a model on `isa`. `vnni` false: without its dot products.
inline BlockIsa block_isa(Isa isa, bool vnni = true) {
  if (isa == Isa::portable) return BlockIsa::portable;
  if (vnni && isa == Isa::avx512 && supported(BlockIsa::avx512_vnni)) return BlockIsa::avx512_vnni;
  return vnni && supported(BlockIsa::avx_vnni) ? BlockIsa::avx_vnni : BlockIsa::avx2;
}

/// The best of them for many inputs: AMX instead, if `isa` is that with VNNI of AVX-512.
inline BlockIsa for_many(BlockIsa isa) {
  return isa == BlockIsa::avx512_vnni && supported(BlockIsa::amx) ? BlockIsa::amx : isa;
}
inline constexpr std::int32_t kManyInputs = 12;  // from here on AMX is faster

/// Inputs that a register block takes at most.
constexpr std::int32_t block_columns(BlockIsa isa) {
  return isa == BlockIsa::portable ? 4 : isa == BlockIsa::avx_vnni ? 6 : 8;
}
/// Rounds inputs for block_product(); see RoundedInputs::round(). AMX takes no `bytes`.
inline void round_inputs(BlockIsa isa, bool bytes, const float* x, std::ptrdiff_t ldx, std::int32_t depth,
                         std::int32_t columns, RoundedInputs& to) {
#if SPECULA_X86
  if (isa == BlockIsa::amx) return to.round_to_tiles(x, ldx, depth, columns);
#endif
  to.round(isa == BlockIsa::portable ? Isa::portable : Isa::avx2, bytes, x, ldx, depth, columns,
           block_columns(isa));
}

/// What a product is of: 16 panels outputs, `groups` groups of 32 inputs.
struct BlockShape {
  std::int32_t panels, groups;
};

/// The product on one instruction set.
template <BlockIsa isa>
struct BlockProduct {
  static void run(BlockPanels a, BlockShape shape, bool bytes, const RoundedInputs& inputs, float* y,
                  std::ptrdiff_t ldy, std::int32_t columns);
};

extern template struct BlockProduct<BlockIsa::portable>;
#if SPECULA_X86
extern template struct BlockProduct<BlockIsa::avx2>;
extern template struct BlockProduct<BlockIsa::avx_vnni>;
extern template struct BlockProduct<BlockIsa::avx512_vnni>;
extern template struct BlockProduct<BlockIsa::amx>;
#endif

/// y = W x for `columns` inputs, whose outputs are ldy apart. `inputs` are of round_inputs(isa, bytes).
inline void block_product(BlockIsa isa, BlockPanels a, BlockShape shape, bool bytes,
                          const RoundedInputs& inputs, float* y, std::ptrdiff_t ldy, std::int32_t columns) {
#if SPECULA_X86
  if (isa == BlockIsa::amx) return BlockProduct<BlockIsa::amx>::run(a, shape, bytes, inputs, y, ldy, columns);
  if (isa == BlockIsa::avx512_vnni)
    return BlockProduct<BlockIsa::avx512_vnni>::run(a, shape, bytes, inputs, y, ldy, columns);
  if (isa == BlockIsa::avx_vnni)
    return BlockProduct<BlockIsa::avx_vnni>::run(a, shape, bytes, inputs, y, ldy, columns);
  if (isa == BlockIsa::avx2)
    return BlockProduct<BlockIsa::avx2>::run(a, shape, bytes, inputs, y, ldy, columns);
#endif
  static_cast<void>(isa);
  BlockProduct<BlockIsa::portable>::run(a, shape, bytes, inputs, y, ldy, columns);
}

}  // namespace specula::cpu::detail
