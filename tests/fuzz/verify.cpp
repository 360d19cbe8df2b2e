// SPDX-License-Identifier: MIT
// Fuzzes every rule on proposals and rows made of the input's bytes: results against the dense rules if no
// uniform draw is near a boundary, fast kernels against doubles; for any rows, the result is a path or an
// exception.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/k_seq.hpp>
#include <specula/accept/lenient.hpp>
#include <specula/accept/typical.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

namespace {

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "verify: %s\n", what);
  std::abort();
}

/// Reads the input; zeros when it is used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), end_(data + size) {}
  std::uint8_t next() { return data_ < end_ ? *data_++ : 0; }
  std::int32_t below(std::int32_t n) { return (next() | next() << 8) % n; }
  bool empty() const { return data_ == end_; }

  /// A logit: mostly tame, sometimes special, sometimes four bytes as they are.
  float logit(bool special) {
    const std::uint8_t b = next();
    if (special && b == 250) return -std::numeric_limits<float>::infinity();
    if (special && b == 251) return std::numeric_limits<float>::infinity();
    if (special && b == 252) return std::numeric_limits<float>::quiet_NaN();
    if (special && b == 253) return 1e4f;
    if (special && b == 254) return -1e4f;
    if (special && b == 255) {
      std::array<std::uint8_t, 4> raw{next(), next(), next(), next()};
      float out;
      std::memcpy(&out, raw.data(), 4);
      return out;
    }
    return b >= 249 ? -std::numeric_limits<float>::infinity() : static_cast<float>(b) / 32.0f - 4.0f;
  }

 private:
  const std::uint8_t *data_, *end_;
};

struct Input {
  SamplingParams params;
  std::uint64_t seed;
  double lenience;
  Case it;

  double epsilon() const { return (lenience - 1) / 4; }  // Typical's parameters
  double delta() const { return (lenience - 1) / 2; }
};

/// Proposals that KSeq accepts.
bool for_k_seq(const TokenTree& tree) {
  const ProposalKind kind = tree.kind();
  return kind == ProposalKind::deterministic || kind == ProposalKind::sampled ||
         kind == ProposalKind::sampled_iid;
}

/// With `special`, rows may be bad; then there is no dense copy of the distributions.
Input read(Bytes& bytes, bool special) {
  const std::uint8_t how = bytes.next();
  SamplingParams params;
  if (how & 1) params.temperature = static_cast<float>(1 + bytes.next()) / 64.0f;
  if (how & 2) params.top_k = bytes.below(8);
  if (how & 4) params.top_p = static_cast<float>(1 + bytes.next()) / 256.0f;
  if (how & 8) params.min_p = static_cast<float>(bytes.next()) / 512.0f;
  if ((how & 0x30) == 0x30) params.temperature = 0;
  const std::int32_t vocab = how & 0x40 ? 500 + bytes.below(700) : 1 + bytes.below(9);
  const std::int32_t max_nodes = 1 + bytes.next() % 80;
  Input out{params,
            bytes.next(),
            1 + bytes.next() / 64.0,
            {ProposalBuilder(vocab, max_nodes, max_nodes), {}, {}, {}, {}}};
  const int form = how & 0x80 ? bytes.next() % 4 : 0;  // 1: a chain, 2: independent siblings, 3: chosen ones
  Case& it = out.it;
  PhiloxRandom rng(out.seed + 1000);
  const std::int32_t origin = bytes.next();
  it.tree.reset(bytes.below(vocab), origin);
  it.dense.origin = origin;
  it.dense.token.push_back(it.tree.token(0));
  it.dense.parent.push_back(kNoParent);
  it.dense.q.emplace_back();
  std::vector<std::vector<float>> draft;
  std::vector<Distribution> stored(static_cast<std::size_t>(max_nodes));
  const auto add_rows = [&] {
    std::vector<float> p, q;
    for (std::int32_t x = 0; x < vocab; ++x)
      p.push_back(x < 40 || special ? bytes.logit(special) : p[static_cast<std::size_t>(x % 40)]);
    for (std::int32_t x = 0; x < vocab; ++x)
      q.push_back(x < 40 ? bytes.logit(special) : p[static_cast<std::size_t>(x)]);
    if (!special) p[0] = q[static_cast<std::size_t>(vocab - 1)] = 0.25f;  // never empty
    it.row.push_back(p);
    draft.push_back(q);
  };
  add_rows();
  while (it.tree.room() > 0 && !bytes.empty()) {
    const NodeId parent = form == 1 ? it.tree.size() - 1 : bytes.next() % it.tree.size();
    const auto at = static_cast<std::size_t>(parent);
    const SamplingParams draft_params = params.greedy() ? SamplingParams{} : params;
    NodeId added = kNoParent;
    Dense q;
    const int kind = form >= 2 ? 2 * (form - 2) : bytes.next() % 3;
    if (kind == 2) {
      const Token token = bytes.below(vocab);
      q.assign(static_cast<std::size_t>(vocab), 0.0);
      q[static_cast<std::size_t>(token)] = 1;
      added = it.tree.choose(parent, token, 1);
    } else {
      if (stored[at].logits == nullptr) stored[at] = it.tree.store(parent, draft[at], draft_params);
      if (!special) q = plain_distribution(draft[at], draft_params);
      added =
          kind == 0 ? it.tree.draw(parent, stored[at], rng) : it.tree.draw_distinct(parent, stored[at], rng);
      if (kind == 1 && !special) {
        double total = 0;
        for (const NodeId c : it.dense.children(parent))
          q[static_cast<std::size_t>(it.dense.token[static_cast<std::size_t>(c)])] = 0;
        for (const double x : q) total += x;
        for (double& x : q) x /= total;
      }
    }
    if (added == kNoParent) break;
    it.dense.token.push_back(it.tree.token(added));
    it.dense.parent.push_back(parent);
    it.dense.q.push_back(std::move(q));
    add_rows();
  }
  for (const std::vector<float>& row : it.row) {
    it.rows.insert(it.rows.end(), row.begin(), row.end());
    if (!special) it.distributions.push_back(plain_distribution(row, params));
  }
  return out;
}

void check_path(const Case& it, const VerifyResult& result) {
  require(!result.accepted.empty() && result.accepted[0] == 0, "the path does not begin with the root");
  for (std::size_t i = 1; i < result.accepted.size(); ++i) {
    require(result.accepted[i] > 0 && result.accepted[i] < it.tree.size(), "a node that is not there");
    require(it.tree.parent(result.accepted[i]) == result.accepted[i - 1], "not a path");
  }
  require(result.next_token >= 0 && result.next_token < it.tree.vocab(), "a token that is not there");
  require(
      it.row[static_cast<std::size_t>(result.accepted.back())][static_cast<std::size_t>(result.next_token)] >
          -std::numeric_limits<float>::infinity(),
      "a token that the target cannot emit");
}

template <class Rule>
void survive(const Rule& rule, const Input& input) {
  VerifyResult result;
  try {
    result = result_of(rule, input.it, input.params, input.seed);
  } catch (const std::runtime_error&) {
    return;  // a bad row on the path
  }
  check_path(input.it, result);
}

void same(const VerifyResult& got, const VerifyResult& want, const char* what) {
  require(got.accepted == want.accepted && got.next_token == want.next_token, what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const std::uint8_t mode = bytes.next();
  const bool special = mode % 4 == 0;
  static const std::vector<Isa> isas = every_isa();
  const Isa isa = isas[static_cast<std::size_t>(mode / 4) % isas.size()];
  const Arithmetic arithmetic(isa);
  try {
    const Input input = read(bytes, special);
    if (special) {
      survive(Greedy{}, input), survive(SampleAndMatch{}, input), survive(Rejection{}, input),
          survive(Sampling{}, input);
      survive(Lenient{input.lenience}, input);
      survive(Traversal{}, input), survive(Typical{input.epsilon(), input.delta()}, input);
      if (input.it.tree.is_chain()) survive(Block{}, input);
      if (for_k_seq(input.it.tree)) survive(KSeq{}, input);
      return 0;
    }
    const double near = isa == Isa::reference ? 1e-10 : 1e-5;
    const auto compare = [&](const auto& rule, const auto& dense, const char* what) {
      DenseUniforms uniforms(input.seed);
      const VerifyResult want = dense(uniforms), got = result_of(rule, input.it, input.params, input.seed);
      check_path(input.it, got);
      if (uniforms.margin > near) same(got, want, what);
    };
    const Case& it = input.it;
    same(result_of(Greedy{}, it, input.params, input.seed), dense_greedy(it.dense, it.row), "greedy");
    compare(
        SampleAndMatch{},
        [&](DenseUniforms& uniforms) { return dense_match(it.dense, it.distributions, uniforms); },
        "sample-and-match");
    compare(
        Rejection{},
        [&](DenseUniforms& uniforms) { return dense_rejection(it.dense, it.distributions, uniforms); },
        "rejection");
    if (!input.params.greedy())
      compare(
          Lenient{input.lenience},
          [&](DenseUniforms& uniforms) {
            return dense_rejection(it.dense, it.distributions, uniforms, input.lenience);
          },
          "lenient");
    compare(
        Traversal{},
        [&](DenseUniforms& uniforms) { return dense_traversal(it.dense, it.distributions, uniforms); },
        "traversal");
    compare(
        Typical{input.epsilon(), input.delta()},
        [&](DenseUniforms& uniforms) {
          return dense_typical(it.dense, it.distributions, uniforms, input.epsilon(), input.delta());
        },
        "typical");
    if (it.tree.is_chain())
      compare(
          Block{}, [&](DenseUniforms& uniforms) { return dense_block(it.dense, it.distributions, uniforms); },
          "block");
    if (for_k_seq(it.tree))
      compare(
          KSeq{},
          [&](DenseUniforms& uniforms) {
            return it.tree.kind() == ProposalKind::deterministic
                       ? dense_rejection(it.dense, it.distributions, uniforms)
                       : dense_k_seq(it.dense, it.distributions, uniforms);
          },
          "k-seq");
  } catch (const std::runtime_error& e) {
    require(special, e.what());  // a bad draft row is refused when it is stored
  }
  return 0;
}
