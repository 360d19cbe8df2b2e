// SPDX-License-Identifier: MIT
// What a loader makes of matrices in blocks: kept bit for bit, expanded where they must be, refused if
// damaged or too large.
#include <specula/cpu/detail/load_decoder_weights.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../block_model.hpp"

namespace {

using namespace specula::cpu;
using specula::files::GgufId;
using namespace specula_test;

/// Rows of all matrices that are not those of the model, as they are stored.
template <class Real>
int wrong_rows(const DecoderWeights<Real>& weights, const BlockModel& model) {
  int wrong = 0;
  for (const BlockMatrix& matrix : model.matrices) {
    const PlaceOf<Real> at = place_of(weights, matrix.name);
    std::vector<Real> got(static_cast<std::size_t>(matrix.cols));
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      const std::int32_t row = at.first + static_cast<std::int32_t>(r);
      at.matrix.get_row(row, got.data());
      bool same = true;
      const std::vector<float> want = matrix.row(r);
      for (std::size_t k = 0; k < want.size(); ++k) {
        const float value = at.matrix.stored_at(row).type == WeightType::bf16
                                ? std::bit_cast<float>(detail::round_to_bfloat16(want[k]))
                                : want[k];
        const Real wide = static_cast<Real>(value);
        same = same && std::memcmp(&got[k], &wide, sizeof wide) == 0;
      }
      wrong += !same;
    }
  }
  return wrong;
}

const StoredTensors* kept(const std::vector<StoredTensors>& all, const std::string& type) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const StoredTensors& tensors) { return tensors.type == type; });
  return at == all.end() ? nullptr : &*at;
}

std::size_t all_bytes(const std::vector<StoredTensors>& all) {
  return std::accumulate(all.begin(), all.end(), std::size_t{0},
                         [](std::size_t sum, const StoredTensors& tensors) { return sum + tensors.bytes; });
}

/// What is said of loading a file, without its folder.
template <class Real = float>
std::string error_of(const GgufContainer& file, const LoadOptions& options = {}) {
  const TemporaryDirectory folder("load_errors");
  write_file(folder.path / "m.gguf", file.bytes());
  try {
    load_decoder_weights<Real>(folder.path / "m.gguf", {}, options);
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).substr(folder.path.string().size() + 1);
  }
  return "no error";
}

}  // namespace

TEST_CASE("a file of each type stays in blocks: its rows, as the file has them, and the bytes") {
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const BlockModel model(type);
    const auto weights = model.weights<float>();
    CHECK(wrong_rows(*weights, model) == 0);
    const StoredType blocks{WeightType::blocks, type};
    std::size_t bytes = 0;
    for (const BlockMatrix& matrix : model.matrices) {
      const auto at = place_of(*weights, matrix.name);
      CHECK(at.matrix.stored_at(at.first) == blocks);
      bytes += static_cast<std::size_t>(matrix.rows) * matrix.stride();
    }
    REQUIRE(weights->kept.size() == 1);
    const StoredTensors& all = weights->kept[0];
    CHECK(all.type == about(type).name);
    CHECK(all.as == WeightType::blocks);
    CHECK(all.quantized);
    CHECK(all.tensors == model.matrices.size());
    // Rows are whole panels; K types but Q6_K have 8 bits for a scale of 6.
    const std::size_t part = type == GgufId::q4_k   ? 36
                             : type == GgufId::q5_k ? 44
                                                    : 0;  // 1/8 bit of 4.5, or 5.5
    CHECK(all.bytes == bytes + (part ? bytes / part : 0));
    std::size_t in_memory = weights->embedding.bytes();
    for (const auto& layer : weights->layers)
      in_memory += layer.attention.qkv.bytes() + layer.attention.output.bytes() + layer.mlp.gate_up.bytes() +
                   layer.mlp.down.bytes();
    CHECK(in_memory == all.bytes);
    CHECK(cache_type(*weights, specula::Isa::avx2) == CacheType::half);
    CHECK(cache_type(*weights, specula::Isa::portable) == CacheType::full);  // no instruction converts them
  }
}

TEST_CASE("a model in double expands all blocks exactly") {
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const BlockModel model(type);
    const auto weights = model.weights<double>();
    CHECK(wrong_rows(*weights, model) == 0);
    for (const BlockMatrix& matrix : model.matrices) {
      const auto at = place_of(*weights, matrix.name);
      CHECK(at.matrix.stored_at(at.first).type == WeightType::full);
    }
    REQUIRE(weights->kept.size() == 1);
    CHECK(weights->kept[0].as == WeightType::full);
    CHECK(cache_type(*weights, specula::Isa::avx2) == CacheType::full);
  }
}

TEST_CASE("mixtures: as llama.cpp has them, and of blocks with other types") {
  BlockSizes sizes;
  sizes.tied = false;
  const BlockModel mixture(sizes, [](const std::string& name) {  // Q4_K_M
    const bool more = name == "lm_head" || name == "model.layers.0.self_attn.v_proj" ||
                      name == "model.layers.0.mlp.down_proj";
    return more ? GgufId::q6_k : GgufId::q4_k;
  });
  const auto weights = mixture.weights<float>();
  CHECK(wrong_rows(*weights, mixture) == 0);
  for (const auto& [layer, type] : {std::pair{0, GgufId::q6_k}, {1, GgufId::q4_k}}) {
    const auto& qkv = weights->layers[static_cast<std::size_t>(layer)].attention.qkv;
    CHECK(qkv.stored_at(383) == StoredType{WeightType::blocks, GgufId::q4_k});
    CHECK(qkv.stored_at(384) == StoredType{WeightType::blocks, type});
  }
  REQUIRE(kept(weights->kept, "Q6_K"));
  CHECK(kept(weights->kept, "Q6_K")->tensors == 3);
  REQUIRE(kept(weights->kept, "Q4_K"));
  CHECK(kept(weights->kept, "Q4_K")->tensors == mixture.matrices.size() - 3);

  const BlockModel several(kNarrow, [](const std::string& name) {
    return name.ends_with("q_proj")         ? GgufId::q5_1
           : name.ends_with("k_proj")       ? GgufId::bf16
           : name.ends_with("v_proj")       ? GgufId::f16
           : name.ends_with("up_proj")      ? GgufId::q8_0
           : name.ends_with("embed_tokens") ? GgufId::f32
                                            : GgufId::q4_0;
  });
  const auto of_several = several.weights<float>();
  CHECK(wrong_rows(*of_several, several) == 0);
  const auto& qkv = of_several->layers[1].attention.qkv;
  CHECK(qkv.stored_at(0) == StoredType{WeightType::blocks, GgufId::q5_1});
  CHECK(qkv.stored_at(64) == StoredType{WeightType::bf16});
  CHECK(qkv.stored_at(96) == StoredType{WeightType::full});
  REQUIRE(kept(of_several->kept, "BF16"));
  CHECK(kept(of_several->kept, "BF16")->as == WeightType::bf16);
  CHECK_FALSE(kept(of_several->kept, "BF16")->quantized);
  REQUIRE(kept(of_several->kept, "F32"));
  CHECK(kept(of_several->kept, "F32")->as == WeightType::full);
}

TEST_CASE("types that change within a panel are expanded; of one type they stay") {
  const BlockSizes odd{40, 96, 32, 4, 1, 1, true};  // 24 rows of keys, and as many values
  const auto model_of = [&](GgufId values) {
    return BlockModel(
        odd, [=](const std::string& name) { return name.ends_with("v_proj") ? values : GgufId::q4_0; });
  };
  const BlockModel mixed = model_of(GgufId::q8_0), alike = model_of(GgufId::q4_0);
  const auto expanded = mixed.weights<float>(), blocks = alike.weights<float>();
  CHECK(wrong_rows(*expanded, mixed) == 0);
  CHECK(wrong_rows(*blocks, alike) == 0);
  CHECK(expanded->layers[0].attention.qkv.stored_at(0) == StoredType{WeightType::full});
  CHECK(expanded->layers[0].attention.qkv.stored_at(143) == StoredType{WeightType::full});
  CHECK(blocks->layers[0].attention.qkv.stored_at(143) == StoredType{WeightType::blocks, GgufId::q4_0});
  REQUIRE(kept(expanded->kept, "Q8_0"));
  CHECK(kept(expanded->kept, "Q8_0")->as == WeightType::full);
  REQUIRE(kept(expanded->kept, "Q4_0"));
  CHECK(std::count_if(expanded->kept.begin(), expanded->kept.end(),
                      [](const StoredTensors& tensors) { return tensors.type == "Q4_0"; }) == 2);
}

TEST_CASE("as asked: bfloat16, floats, or blocks where the file has them") {
  for (const GgufId type : {GgufId::q5_0, GgufId::q6_k, GgufId::f16}) {
    const BlockModel model(type);
    for (const WeightType asked : {WeightType::bf16, WeightType::full, WeightType::blocks}) {
      const auto weights = model.weights<float>({.stored = asked});
      CHECK(wrong_rows(*weights, model) == 0);
      const bool floats = asked == WeightType::blocks && type == GgufId::f16;
      REQUIRE(weights->kept.size() == 1);
      CHECK(weights->kept[0].as == (floats ? WeightType::full : asked));
      CHECK(weights->embedding.type() == (floats ? WeightType::full : asked));
      if (asked == WeightType::blocks) {
        CHECK_THROWS_WITH_AS(model.weights<double>({.stored = asked}),
                             "LoadOptions::stored is blocks, which take a model that calculates in float",
                             std::invalid_argument);
      } else {
        CHECK(wrong_rows(*model.weights<double>({.stored = asked}), model) == 0);
      }
    }
  }
}

TEST_CASE("blocks of types without products are bfloat16 in float, and all bits in double") {
  const BlockModel model(BlockSizes{}, [](const std::string&) { return GgufId::q4_k; });
  GgufContainer file;
  {  // the same keys and norms, and an embedding in Q2_K
    BlockModel rest = model;
    rest.matrices.erase(rest.matrices.begin());
    file = rest.file();
    file.add("token_embd.weight", 10, {48, 256}, std::string(48 * 84, 'x'));
  }
  const TemporaryDirectory folder("other_blocks");
  write_file(folder.path / "m.gguf", file.bytes());
  const LoadOptions options{.expand = [](std::uint32_t id, const std::byte*, std::span<float> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1.0f / static_cast<float>(i + 3);
    return id == 10;
  }};
  const auto check_of = [&](auto real, WeightType wanted) {
    const auto weights = load_decoder_weights<decltype(real)>(folder.path / "m.gguf", {}, options);
    CHECK(weights.embedding.type() == wanted);
    REQUIRE(kept(weights.kept, "Q2_K"));
    CHECK(kept(weights.kept, "Q2_K")->as == wanted);
    CHECK(kept(weights.kept, "Q2_K")->quantized);
    CHECK(kept(weights.kept, "Q2_K")->tensors == 1);
    CHECK((weights.embedding.value(0, 0) == decltype(real)(1.0f / 3)) == (wanted == WeightType::full));
  };
  check_of(float{}, WeightType::bf16);
  check_of(double{}, WeightType::full);
}

TEST_CASE("an infinite or undefined scale: file, tensor, type, row and block are named") {
  const std::string rest = " has an infinite or undefined scale: the file is damaged; load it again";
  for (const GgufId type : kBlockTypes) {
    const std::string name = about(type).name;
    CAPTURE(name);
    const BlockModel model(type);
    const std::size_t size = about(type).bytes;
    for (const int bad : {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff}) {
      BlockModel damaged = model;
      BlockMatrix& down = damaged.find("model.layers.1.mlp.down_proj");
      const std::size_t last = down.stride() / size - 1;
      put_half(down.bytes.data() + 5 * down.stride() + last * size + place_of_d(type),
               static_cast<std::uint16_t>(bad));
      CHECK(error_of(damaged.file()) == "m.gguf: tensor 'blk.1.ffn_down.weight': " + name +
                                            ", row 5: block " + std::to_string(last) + rest);
    }
    if (!has_minimum(type)) continue;
    BlockModel damaged = model;
    BlockMatrix& keys = damaged.find("model.layers.0.self_attn.k_proj");
    put_half(keys.bytes.data() + 7 * keys.stride() + 2, 0x7c00);
    CHECK(error_of(damaged.file()) ==
          "m.gguf: tensor 'blk.0.attn_k.weight': " + name + ", row 7: block 0" + rest);
  }
}

TEST_CASE("too little memory is an error before a weight is read") {
  const BlockModel model(BlockSizes{}, [](const std::string& name) {
    return name.ends_with("v_proj") ? GgufId::q6_k : name.ends_with("o_proj") ? GgufId::f16 : GgufId::q4_k;
  });
  const TemporaryDirectory folder("no_room");
  const auto path = folder.path / "m.gguf";
  write_file(path, model.file().bytes());
  TensorFiles files(path);
  const auto check_of = [&](auto real, std::optional<WeightType> asked, const char* way_out) {
    using Real = decltype(real);
    const auto weights = load_decoder_weights<Real>(path, {}, {.stored = asked});
    const std::size_t bytes = all_bytes(weights.kept);
    const detail::FileWeights<Real> source{files, asked};
    CHECK_NOTHROW(source.expect_room({}));
    CHECK_NOTHROW(source.expect_room(bytes));
    CHECK_THROWS_WITH_AS(
        source.expect_room(bytes - 1),
        (path.string() + ": its weights take 0.0 GB in memory, of which 0.0 GB are free" + way_out).c_str(),
        std::runtime_error);
    CHECK(source.read.empty());
    return bytes;
  };
  const char* const fewer = "; a file with fewer bits takes less";
  const auto expanded = [](const char* type) {
    return std::string(": ") + type + " is expanded; as Q4_K or Q4_0 it is not";
  };
  const std::size_t blocks = check_of(float{}, {}, fewer),
                    full = check_of(float{}, WeightType::full, expanded("Q6_K").c_str());
  CHECK(full > 3 * blocks);
  CHECK(check_of(float{}, WeightType::bf16, expanded("Q6_K").c_str()) * 2 == full);
  CHECK(check_of(double{}, {}, expanded("Q6_K").c_str()) == 2 * full);
}
