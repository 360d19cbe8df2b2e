// SPDX-License-Identifier: MIT
// What rules that give up the target's distribution gain, and what they cost. Each rule writes texts with the
// pack's `target` and `small`, chains of 4 draft tokens, temperature 1, from the token that begins a text.
// Then p and q are read along each text, and what the rule emits there is computed, not sampled: its
// distribution over the vocabulary, for the first draft token of a round. Prints JSON, per rule and text.
//
// First the formulas are compared with the rules' own decide(), enumerated over small vocabularies: exits
// with 1 if they differ.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <specula/accept/lenient.hpp>
#include <specula/accept/lossy.hpp>
#include <specula/accept/typical.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

#include "exact_random.hpp"
#include "plain_distribution.hpp"
#include "random.hpp"

namespace {

using namespace specula;
using Dense = std::vector<double>;
using Model = cpu::Decoder<float>;
constexpr std::int32_t kLength = 4;

/// What a rule emits after one draft token: its distribution, and how often the draft token is part of it.
struct Emitted {
  Dense distribution;
  double acceptance = 0;
};

Dense point(std::size_t size, std::size_t at) {
  Dense out(size, 0.0);
  out[at] = 1;
  return out;
}
/// The draft's distribution: its row's, or its likeliest token alone.
Dense drafted(const std::vector<float>& row, bool drawn) {
  if (drawn) return specula_test::plain_distribution(row, {});
  return point(row.size(), static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin()));
}
/// Accepts x with probability accept(x); a rejected one is replaced by a token of norm(instead).
template <class Accept>
Emitted emitted(const Dense& draft_prob, const Dense& instead, Accept accept) {
  Emitted out{Dense(draft_prob.size()), 0};
  double mass = 0;
  for (std::size_t x = 0; x < draft_prob.size(); ++x) {
    out.distribution[x] = draft_prob[x] > 0 ? draft_prob[x] * accept(x) : 0.0;
    out.acceptance += out.distribution[x], mass += instead[x];
  }
  for (std::size_t x = 0; mass > 0 && x < instead.size(); ++x)
    out.distribution[x] += (1 - out.acceptance) * instead[x] / mass;
  return out;
}

struct ByRejection {  // lenience 1 is exact
  double lenience = 1;
  AcceptLossy<Lenient> rule() const { return accept_lossy(Lenient{lenience}); }
  Emitted operator()(const Dense& p, const Dense& q) const {
    Dense residual(p.size());
    for (std::size_t x = 0; x < p.size(); ++x) residual[x] = std::max(0.0, p[x] - q[x] / lenience);
    return emitted(q, residual, [&](std::size_t x) { return std::min(1.0, lenience * p[x] / q[x]); });
  }
};
struct ByBlock {  // the first of one draft token: as rejection
  Block rule() const { return {}; }
  Emitted operator()(const Dense& p, const Dense& q) const { return ByRejection{}(p, q); }
};
struct ByMatch {  // exact
  SampleAndMatch rule() const { return {}; }
  Emitted operator()(const Dense& p, const Dense& q) const {
    double agree = 0;
    for (std::size_t x = 0; x < p.size(); ++x) agree += p[x] * q[x];
    return {p, agree};
  }
};
struct ByTypical {
  double epsilon = 0.09, delta = 0.3;
  AcceptLossy<Typical> rule() const { return accept_lossy(Typical{epsilon, delta}); }
  Emitted operator()(const Dense& p, const Dense& q) const {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0.0;
    const double least = std::min(epsilon, delta * std::exp(-entropy));
    return emitted(q, p, [&](std::size_t x) { return p[x] > least ? 1.0 : 0.0; });
  }
};

/// Largest difference between a formula and the enumerated rule, over random rows.
template <class Way>
double difference(const Way& way, bool drawn) {
  specula_test::Random random(3);
  double worst = 0;
  for (int i = 0; i < 60; ++i) {
    const std::int32_t vocab = 2 + random.below(4);
    std::vector<float> target, draft;
    for (std::int32_t x = 0; x < vocab; ++x) {
      target.push_back(static_cast<float>(random.between(-3, 3)));
      draft.push_back(target.back() + static_cast<float>(random.between(-2, 2)));
    }
    const Dense q = drafted(draft, drawn);
    const Emitted want = way(specula_test::plain_distribution(target, {}), q);
    std::vector<float> rows = target;
    rows.resize(2 * target.size(), 0.0f);  // a row after the draft token: whatever it is
    Emitted found{Dense(q.size()), 0};
    for (Token x = 0; x < vocab; ++x) {
      const double weight = q[static_cast<std::size_t>(x)];
      if (!(weight > 0)) continue;
      ProposalBuilder tree(vocab, 2, 2);
      tree.reset(0, 0);
      if (drawn)
        tree.record(0, x, tree.store(0, draft, {}));
      else
        tree.choose(0, x, 1.0f);
      specula_test::ExactRandom rng;
      do {
        rng.begin();
        VerifyWorkspace workspace(vocab, 2);
        VerifyResult out;
        decide_checked(way.rule(), tree, TargetDistributions({rows.data(), 2, vocab, vocab}, {}, workspace),
                       rng, out);
        const bool accepted = out.accepted.size() > 1;
        found.distribution[static_cast<std::size_t>(accepted ? x : out.next_token)] += weight * rng.weight();
        found.acceptance += accepted ? weight * rng.weight() : 0.0;
      } while (rng.next());
    }
    worst = std::max(worst, std::abs(found.acceptance - want.acceptance));
    for (std::size_t x = 0; x < q.size(); ++x)
      worst = std::max(worst, std::abs(found.distribution[x] - want.distribution[x]));
  }
  return worst;
}

/// A text as it came, and what its rule emits along it.
struct Text {
  std::int64_t tokens = 0, passes = 0;
  double acceptance = 0, total_variation = 0;  // means over its positions
  double nats = 0;                             // a token, of the tokens that it has, under the target
};

struct Bench {
  static cpu::DecoderOptions options(std::int32_t tokens) {
    cpu::DecoderOptions o;
    o.capacity = tokens + 2 * kLength + 2, o.max_nodes = std::max(tokens + 1, kLength + 1);
    return o;
  }
  explicit Bench(std::int32_t new_tokens)
      : tokens(new_tokens),
        target(std::string(SPECULA_MODELS_DIR "/target"), options(new_tokens)),
        draft(std::string(SPECULA_MODELS_DIR "/small"), options(new_tokens)) {}

  template <class Way, class Shape>
  Text write(const Way& way, const Shape& shape, bool drawn, std::uint64_t seed) {
    const std::vector<Token> prompt{1};
    Text out;
    std::vector<Token> text;
    {
      Speculator run{TreeVerifier{target, way.rule()}, ModelDrafter{draft}, shape};
      PhiloxRandom rng{seed};
      run.generate(prompt, {.max_new_tokens = tokens}, rng,
                   [&](Tokens more) { text.insert(text.end(), more.begin(), more.end()); });
      out.tokens = static_cast<std::int64_t>(text.size());
      out.passes = run.stats().rounds;
    }
    std::vector<Token> before{prompt.back()};
    before.insert(before.end(), text.begin(), text.end() - 1);
    std::vector<NodeId> parents(before.size());
    for (std::size_t i = 0; i < parents.size(); ++i) parents[i] = static_cast<NodeId>(i) - 1;
    target.truncate(0), draft.truncate(0);
    const LogitsView p_rows = target.extend(before, parents), q_rows = draft.extend(before, parents);
    for (std::int32_t i = 0; i < p_rows.rows; ++i) {
      const auto row_of = [&](const LogitsView& view) {
        return std::vector<float>(view.row(i).begin(), view.row(i).end());
      };
      const Dense p = specula_test::plain_distribution(row_of(p_rows), {});
      const Emitted here = way(p, drafted(row_of(q_rows), drawn));
      double apart = 0;
      for (std::size_t x = 0; x < p.size(); ++x) apart += std::abs(p[x] - here.distribution[x]) / 2;
      out.acceptance += here.acceptance, out.total_variation += apart;
      out.nats -= std::log(p[static_cast<std::size_t>(text[static_cast<std::size_t>(i)])]);
    }
    for (double* sum : {&out.acceptance, &out.total_variation, &out.nats}) *sum /= p_rows.rows;
    return out;
  }

  std::int32_t tokens;
  Model target, draft;
};

int wrong = 0;
bool first = true;  // row of the output

/// A row of the output.
template <class Way, class Shape>
void measure(Bench& bench, int texts, const char* name, const Way& way, const Shape& shape) {
  constexpr bool drawn = Shape::kind == ProposalKind::sampled;
  const double apart = difference(way, drawn);
  if (!(apart < 1e-6)) {
    std::fprintf(stderr, "%s: the formula differs from the rule by %g\n", name, apart);
    ++wrong;
  }
  std::printf("%s{\"rule\": \"%s\", \"draft\": \"%s\", \"texts\": [", first ? "[" : ",\n ", name,
              drawn ? "drawn" : "likeliest");
  first = false;
  for (int i = 0; i < texts; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const Text t = bench.write(way, shape, drawn, seed);
    std::printf("%s[%lld, %lld, %.5f, %.5f, %.4f]", i ? ", " : "", static_cast<long long>(t.tokens),
                static_cast<long long>(t.passes), t.acceptance, t.total_variation, t.nats);
  }
  std::printf("]}");
  std::fflush(stdout);
}

}  // namespace

int main() {
  const bool quick = std::getenv("SPECULA_BENCH_QUICK") != nullptr;
  const int texts = quick ? 1 : 100;
  Bench bench(quick ? 8 : 96);
  const Chain<Draw::sampled> drawn{.length = kLength};
  const Chain<> likeliest{.length = kLength};
  measure(bench, texts, "rejection", ByRejection{}, drawn);
  measure(bench, texts, "block", ByBlock{}, drawn);
  for (const double lenience : {1.25, 1.5, 2.0, 3.0, 5.0, 10.0})
    measure(bench, texts, ("lenient " + detail::number(lenience)).c_str(), ByRejection{lenience}, drawn);
  measure(bench, texts, "typical", ByTypical{}, drawn);
  measure(bench, texts, "match", ByMatch{}, likeliest);
  measure(bench, texts, "typical", ByTypical{}, likeliest);
  std::printf("]\n");
  return wrong;
}
