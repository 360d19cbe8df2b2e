// SPDX-License-Identifier: MIT
// labels: long optimised
// docs/conformance/vectors.json: its laws are those of every exact rule on these vectors, and the file is
// what this writes. With SPECULA_WRITE_VECTORS set, it writes the file.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "exact_random.hpp"
#include "one_rule.hpp"
#include "plain_distribution.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Law = std::vector<double>;    // of texts, in the order of their tokens as digits
using Row = std::vector<double>;    // probabilities (V)
using Logits = std::vector<float>;  // (V)

const std::vector<NodeId> kChain1 = {-1}, kChain2 = {-1, 0}, kChain3 = {-1, 0, 1}, kPair = {-1, -1},
                          kTriple = {-1, -1, -1}, kTwoByTwo = {-1, -1, 0, 0, 1, 1},
                          kTwoByOne = {-1, -1, 0, 1}, kUneven = {-1, -1, 0, 2};

enum class Drawing : std::uint8_t { independent, distinct, chosen };
/// How the rows of logits are made.
enum class RowKind : std::uint8_t {
  plain,     // in eighths
  large,     // 16 to 32, where a bfloat16 is a multiple of 1/8: p is one, q is not
  ties,      // all tokens but the last are level
  zero_q,    // the draft never writes the last token
  zero_p,    // the target never writes the first token
  point_q,   // the draft's row leaves one token
  same,      // q is p
  disjoint,  // no token is both the target's and the draft's
};

struct Case {
  const char* name;
  std::int32_t vocab;
  std::vector<NodeId> parents;  // of draft tokens, -1: the text's end
  Drawing draw = Drawing::independent;
  SamplingParams params = {};
  RowKind rows = RowKind::plain;
};

constexpr SamplingParams at(float temperature) { return {.temperature = temperature}; }

const std::vector<Case> kCases = {
    {"chain of 1, two tokens", 2, kChain1},
    {"chain of 1", 5, kChain1, Drawing::independent, at(0.75f)},
    {"chain of 2", 3, kChain2},
    {"chain of 2, cold", 4, kChain2, Drawing::independent, at(0.5f)},
    {"chain of 3", 3, kChain3, Drawing::independent, at(0.75f)},
    {"chain of 3, warm", 2, kChain3, Drawing::independent, at(1.25f)},
    {"chain of 3, four tokens", 4, kChain3, Drawing::independent, at(0.75f)},
    {"chain of 2, top-k", 4, kChain2, Drawing::independent, {.temperature = 0.75f, .top_k = 2}},
    {"chain of 2, top-p", 4, kChain2, Drawing::independent, {.temperature = 0.75f, .top_p = 0.75f}},
    {"chain of 2, min-p", 4, kChain2, Drawing::independent, {.temperature = 0.75f, .min_p = 0.25f}},
    {"chain of 3, greedy", 2, kChain3, Drawing::independent, at(0), RowKind::same},
    {"chain of 2, greedy, ties", 3, kChain2, Drawing::independent, at(0), RowKind::ties},
    {"chain of 2, top-k within a tie", 4, kChain2, Drawing::independent, {.top_k = 2}, RowKind::ties},
    {"chain of 2, ties", 3, kChain2, Drawing::independent, {}, RowKind::ties},
    {"chain of 2, zero q", 3, kChain2, Drawing::independent, at(0.75f), RowKind::zero_q},
    {"chain of 2, zero p", 3, kChain2, Drawing::independent, at(0.75f), RowKind::zero_p},
    {"chain of 2, q a point mass", 3, kChain2, Drawing::independent, at(0.75f), RowKind::point_q},
    {"chain of 3, q equal to p", 2, kChain3, Drawing::independent, {}, RowKind::same},
    {"chain of 2, no common token", 4, kChain2, Drawing::independent, at(0.75f), RowKind::disjoint},
    {"chain of 1, large logits", 3, kChain1, Drawing::independent, at(0.375f), RowKind::large},
    {"chain of 2, large logits", 2, kChain2, Drawing::independent, at(0.25f), RowKind::large},
    {"chain of 2, large logits, three tokens", 3, kChain2, Drawing::independent, at(0.375f), RowKind::large},
    {"chain of 3, large logits", 2, kChain3, Drawing::independent, at(0.5f), RowKind::large},
    {"chain of 1, large logits, temperature 1", 4, kChain1, Drawing::independent, {}, RowKind::large},
    {"two independent, large logits", 3, kPair, Drawing::independent, at(0.375f), RowKind::large},
    {"two distinct, large logits", 3, kPair, Drawing::distinct, at(0.5f), RowKind::large},
    {"two independent", 3, kPair, Drawing::independent, at(0.75f)},
    {"three independent", 4, kTriple, Drawing::independent},
    {"two independent by two", 2, kTwoByTwo, Drawing::independent, at(0.75f)},
    {"two independent by one, top-p",
     4,
     kTwoByOne,
     Drawing::independent,
     {.temperature = 0.75f, .top_p = 0.875f}},
    {"two independent, uneven", 3, kUneven, Drawing::independent, at(0.75f)},
    {"two distinct", 3, kPair, Drawing::distinct, at(0.75f)},
    {"three distinct", 4, kTriple, Drawing::distinct, at(0.75f)},
    {"three distinct, top-k", 5, kTriple, Drawing::distinct, {.temperature = 0.75f, .top_k = 4}},
    {"two distinct by two", 3, kTwoByTwo, Drawing::distinct, at(0.75f)},
    {"two distinct, uneven", 3, kUneven, Drawing::distinct, at(1.25f)},
    {"two distinct, zero p", 3, kPair, Drawing::distinct, at(0.75f), RowKind::zero_p},
    {"chosen chain of 3", 3, kChain3, Drawing::chosen, at(0.75f)},
    {"chosen two by two", 3, kTwoByTwo, Drawing::chosen, at(0.75f)},
    {"chosen three, min-p", 4, kTriple, Drawing::chosen, {.temperature = 1.25f, .min_p = 0.25f}},
};

/// The wrong laws. The names are those that the checker prints.
enum class Fault : std::uint8_t {
  none,
  drawn_in_bfloat16,
  compared_in_bfloat16,
  accepted_as_chosen,
  corrected_as_chosen,
  taken_for_drawn,
  no_temperature,
  argmax,
  correction,
  bonus,
  residual,
  siblings
};
constexpr std::array<const char*, 12> kFaults = {"",
                                                 "q rounded to bfloat16: the draft was drawn from it",
                                                 "q rounded to bfloat16: p was compared with it",
                                                 "a drawn draft taken for a chosen one: accepted so",
                                                 "a drawn draft taken for a chosen one: corrected so",
                                                 "a chosen draft taken for a drawn one",
                                                 "temperature ignored in p",
                                                 "argmax at any temperature",
                                                 "correction from the wrong distribution",
                                                 "bonus token from q",
                                                 "residual not renormalised",
                                                 "siblings in the wrong order"};

float to_bfloat16(float x) { return std::nearbyint(x * 8) / 8; }  // of 16 to 32

/// A vector's rows: after the text, then after token 0, 1, ...: what precedes a token does not matter.
struct Filled {
  std::vector<Logits> p_logits, q_logits;
  std::vector<Row> p, q;
  std::vector<Token> tokens;  // the chosen ones
  std::size_t depth = 0;
};

std::vector<Row> processed(const std::vector<Logits>& rows, const SamplingParams& params) {
  std::vector<Row> out;
  for (const Logits& row : rows) out.push_back(plain_distribution(row, params));
  return out;
}

Filled fill(const Case& v, std::uint32_t seed) {
  std::uint32_t state = 2 * seed + 1;
  const auto below = [&](std::uint32_t n) {  // the same numbers everywhere
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int32_t>((state >> 12) % n);
  };
  const auto eighths = [&](std::int32_t most) {
    return static_cast<float>(below(static_cast<std::uint32_t>(2 * most + 1)) - most) / 8;
  };
  constexpr float kNever = -1e9f;
  Filled out;
  const auto n = static_cast<std::size_t>(v.vocab);
  for (std::size_t r = 0; r <= n; ++r) {
    Logits p(n), q(n);
    for (std::size_t x = 0; x < n; ++x) {
      p[x] = eighths(12), q[x] = p[x] + eighths(8);
      if (v.rows ==
          RowKind::large) {  // 7/128 from a bfloat16, the largest part of a step's half, to either side
        const float coldness = v.params.temperature;
        p[x] = 24 + std::nearbyint(p[x] * 8 * coldness) / 8;
        q[x] = p[x] + std::nearbyint(eighths(6) * 8 * coldness) / 8 + ((r + x) % 2 ? 7.0f : -7.0f) / 128;
      }
      if (v.rows == RowKind::ties) p[x] = 0.5f, q[x] = 0.25f;
      if (v.rows == RowKind::same) q[x] = p[x];
      if (v.rows == RowKind::disjoint) (x % 2 ? p : q)[x] = kNever;
    }
    if (v.rows == RowKind::ties) p[n - 1] = -0.5f + eighths(4), q[r % n] = 0.75f;
    if (v.rows == RowKind::zero_q) q[n - 1] = kNever;
    if (v.rows == RowKind::zero_p) p[0] = kNever;
    if (v.rows == RowKind::point_q)
      for (std::size_t x = 0; x < n; ++x) q[x] = x == (r + 1) % n ? 0 : kNever;
    out.p_logits.push_back(p), out.q_logits.push_back(q);
  }
  out.p = processed(out.p_logits, v.params), out.q = processed(out.q_logits, v.params);
  std::vector<std::size_t> depths;
  for (std::size_t i = 0; i < v.parents.size(); ++i) {
    const NodeId parent = v.parents[i];
    depths.push_back(parent < 0 ? 1 : depths[static_cast<std::size_t>(parent)] + 1);
    out.depth = std::max(out.depth, depths.back());
    if (v.draw != Drawing::chosen) continue;
    const auto first = std::find(v.parents.begin(), v.parents.end(), parent) - v.parents.begin();
    out.tokens.push_back(static_cast<Token>((static_cast<std::ptrdiff_t>(i) - first + parent + 1) % v.vocab));
  }
  return out;
}

/// Adds a text that begins as `text` and goes on as the target does.
void complete(const Filled& f, std::vector<Token>& text, double weight, Law& law) {
  if (!(weight > 0)) return;
  const std::size_t n = f.p[0].size();
  if (text.size() > f.depth) {
    std::size_t place = 0;
    for (std::size_t i = 0; i <= f.depth; ++i) place = place * n + static_cast<std::size_t>(text[i]);
    law[place] += weight;
    return;
  }
  const std::size_t row = text.empty() ? 0 : static_cast<std::size_t>(text.back()) + 1;
  for (std::size_t x = 0; x < n; ++x) {
    text.push_back(static_cast<Token>(x));
    complete(f, text, weight * f.p[row][x], law);
    text.pop_back();
  }
}
Law empty_law(const Filled& f) {
  std::size_t texts = 1;
  for (std::size_t i = 0; i <= f.depth; ++i) texts *= f.p[0].size();
  return Law(texts);
}
/// The target's own.
Law exact_law(const Filled& f) {
  Law law = empty_law(f);
  std::vector<Token> text;
  complete(f, text, 1, law);
  return law;
}

/// That of a rule of the library, by enumeration of all uniform draws.
Law law_of(const OneRule& rule, const Case& v, const Filled& f) {
  Law law = empty_law(f);
  const auto nodes = static_cast<std::int32_t>(v.parents.size()) + 1;
  ProposalBuilder tree(v.vocab, nodes, nodes);
  VerifyWorkspace workspace(v.vocab, nodes);
  VerifyResult result;
  ExactRandom rng;
  do {
    rng.begin();
    tree.reset(0, 0);
    const auto row = [&](NodeId node) {
      return node == 0 ? 0 : static_cast<std::size_t>(tree.token(node)) + 1;
    };
    for (std::size_t i = 0; i < v.parents.size(); ++i) {
      const NodeId parent = v.parents[i] + 1;
      const bool first = std::find(v.parents.begin(), v.parents.end(), v.parents[i]) - v.parents.begin() ==
                         static_cast<std::ptrdiff_t>(i);
      if (v.draw == Drawing::chosen) {
        tree.choose(parent, f.tokens[i], 1);
        continue;
      }
      const Distribution q = first ? tree.store(parent, f.q_logits[row(parent)], v.params)
                                   : tree.draft_distribution(tree.size() - 1);
      const NodeId added =
          v.draw == Drawing::distinct ? tree.draw_distinct(parent, q, rng) : tree.draw(parent, q, rng);
      if (added != static_cast<NodeId>(i) + 1) throw std::logic_error("the draft has too few tokens");
    }
    std::vector<float> rows;
    for (NodeId n = 0; n < nodes; ++n) {
      const Logits& logits = f.p_logits[row(n)];
      rows.insert(rows.end(), logits.begin(), logits.end());
    }
    decide_checked(rule, tree,
                   TargetDistributions({rows.data(), nodes, v.vocab, v.vocab}, v.params, workspace), rng,
                   result);
    std::vector<Token> text;
    for (std::size_t i = 1; i < result.accepted.size(); ++i) text.push_back(tree.token(result.accepted[i]));
    text.push_back(result.next_token);
    complete(f, text, rng.weight(), law);
  } while (rng.next());
  return law;
}

/// That of rejection sampling with a fault, written anew: the probability of each way through a round.
class Faulty {
 public:
  Faulty(const Case& v, const Filled& f, Fault fault)
      : v_(v), f_(f), fault_(fault), p_(f.p), drawn_(f.q), q_(f.q) {
    if (fault == Fault::no_temperature && v.params.temperature != 0) {
      SamplingParams warm = v.params;
      warm.temperature = 1;
      p_ = processed(f.p_logits, warm);
    }
    if (v.rows != RowKind::large) return;
    std::vector<Logits> rounded = f.q_logits;
    for (Logits& row : rounded) std::transform(row.begin(), row.end(), row.begin(), to_bfloat16);
    if (fault == Fault::drawn_in_bfloat16) drawn_ = processed(rounded, v.params);
    if (fault == Fault::compared_in_bfloat16) q_ = processed(rounded, v.params);
  }
  Law law() {
    law_ = empty_law(f_);
    draft(f_.tokens, 1);
    return law_;
  }

 private:
  std::size_t row(NodeId node) const {
    return node < 0 ? 0 : static_cast<std::size_t>(tokens_[static_cast<std::size_t>(node)]) + 1;
  }
  static void without(Row& q, Token x) {
    q[static_cast<std::size_t>(x)] = 0;
    const double sum = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& y : q) y = sum > 0 ? y / sum : 0;
  }
  void draft(const std::vector<Token>& tokens, double weight) {
    tokens_ = tokens;
    const std::size_t n = tokens.size();
    if (n == v_.parents.size()) {
      std::vector<Token> text;
      return verify(-1, text, weight);
    }
    Row q = drawn_[row(v_.parents[n])];
    for (std::size_t c = 0; c < n; ++c)
      if (v_.draw == Drawing::distinct && v_.parents[c] == v_.parents[n]) without(q, tokens[c]);
    if (fault_ == Fault::taken_for_drawn) {
      const auto best = std::max_element(q.begin(), q.end()) - q.begin();
      std::fill(q.begin(), q.end(), 0.0), q[static_cast<std::size_t>(best)] = 1;
    }
    for (std::size_t x = 0; x < q.size(); ++x) {
      if (!(q[x] > 0)) continue;
      std::vector<Token> longer = tokens;
      longer.push_back(static_cast<Token>(x));
      draft(longer, weight * q[x]);
    }
  }
  void next(const Row& from, std::vector<Token>& text, double weight) {
    for (std::size_t x = 0; x < from.size(); ++x) {
      text.push_back(static_cast<Token>(x));
      complete(f_, text, weight * from[x], law_);
      text.pop_back();
    }
  }
  void descend(std::size_t child, std::vector<Token>& text, double weight) {
    if (!(weight > 0)) return;
    text.push_back(tokens_[child]);
    verify(static_cast<NodeId>(child), text, weight);
    text.pop_back();
  }
  void verify(NodeId node, std::vector<Token>& text, double weight) {
    std::vector<std::size_t> children;
    for (std::size_t c = 0; c < v_.parents.size(); ++c)
      if (v_.parents[c] == node) children.push_back(c);
    const Row& p = p_[row(node)];
    if (fault_ == Fault::argmax) {
      const auto best = std::max_element(p.begin(), p.end()) - p.begin();
      for (const std::size_t c : children)
        if (tokens_[c] == best) return descend(c, text, weight);
      Row point(p.size());
      point[static_cast<std::size_t>(best)] = 1;
      return next(point, text, weight);
    }
    if (children.empty())
      return next(fault_ == Fault::bonus && v_.draw != Drawing::chosen ? f_.q[row(node)] : p, text, weight);
    if (fault_ == Fault::siblings && v_.draw == Drawing::distinct)
      std::reverse(children.begin(), children.end());
    Row left = p, q = q_[row(node)];
    for (const std::size_t c : children) {
      const auto x = static_cast<std::size_t>(tokens_[c]);
      if (v_.draw == Drawing::chosen) std::fill(q.begin(), q.end(), 0.0), q[x] = 1;
      const double accept = fault_ == Fault::accepted_as_chosen ? left[x] : std::min(1.0, left[x] / q[x]);
      descend(c, text, weight * accept);
      weight *= 1 - accept;
      const bool as_chosen = fault_ == Fault::corrected_as_chosen;
      Row less = left;
      double sum = 0;
      for (std::size_t y = 0; y < p.size(); ++y)
        sum += less[y] = as_chosen ? left[y] * (y != x) : std::max(0.0, left[y] - q[y]);
      if (fault_ == Fault::residual) sum = 1;
      if (sum > 1e-9)  // else rounding alone has left something
        for (std::size_t y = 0; y < p.size(); ++y) left[y] = less[y] / sum;
      if (v_.draw == Drawing::distinct) without(q, tokens_[c]);
    }
    if (fault_ == Fault::correction) left = p;
    if (fault_ == Fault::residual)  // the walk over the sums ends at the last token
      left.back() += 1 - std::accumulate(left.begin(), left.end(), 0.0);
    next(left, text, weight);
  }

  const Case& v_;
  const Filled& f_;
  Fault fault_;
  std::vector<Row> p_, drawn_, q_;
  std::vector<Token> tokens_;
  Law law_;
};

double difference(const Law& a, const Law& b) {
  double error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) error = worse(error, std::abs(a[i] - b[i]));
  return error;
}

// ---- JSON

std::string number(double x, int digits) {
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), x, std::chars_format::general, digits).ptr;
  return {buffer.data(), end};
}
template <class T>
std::string list(const std::vector<T>& values, int digits) {
  std::string out;
  for (const T x : values) out += (out.empty() ? "" : ", ") + number(static_cast<double>(x), digits);
  return "[" + out + "]";
}
template <class T>
std::string rows(const std::vector<std::vector<T>>& all, int digits) {
  std::string out;
  for (const std::vector<T>& row : all) out += (out.empty() ? "" : ", ") + list(row, digits);
  return "[" + out + "]";
}

std::string written(const std::vector<Case>& vectors) {
  std::string out =
      "{\n\"about\": \"docs/conformance.md says what this is. Written by "
      "tests/exact/conformance_vectors.cpp.\",\n\"vectors\": [";
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const Case& v = vectors[i];
    const Filled f = fill(v, static_cast<std::uint32_t>(i));
    const Law law = exact_law(f);
    const auto params = [&](float SamplingParams::*of) {
      return number(static_cast<double>(v.params.*of), 6);
    };
    out += std::string(i ? "},\n{" : "\n{") + "\"name\": \"" + v.name +
           "\", \"vocab\": " + std::to_string(v.vocab) + ", \"length\": " + std::to_string(f.depth + 1) +
           ", \"params\": {\"temperature\": " + params(&SamplingParams::temperature) +
           ", \"top_k\": " + std::to_string(v.params.top_k) +
           ", \"top_p\": " + params(&SamplingParams::top_p) +
           ", \"min_p\": " + params(&SamplingParams::min_p) +
           ", \"distinct\": " + (v.draw == Drawing::distinct ? "true" : "false") +
           "},\n \"parents\": " + list(v.parents, 6) + ", \"draw\": \"" +
           (v.draw == Drawing::chosen     ? "chosen"
            : v.draw == Drawing::distinct ? "distinct"
                                          : "independent") +
           "\"";
    if (v.draw == Drawing::chosen) out += ", \"tokens\": " + list(f.tokens, 6);
    out += ",\n \"p_logits\": " + rows(f.p_logits, 12) + ",\n \"p\": " + rows(f.p, 12);
    if (v.draw != Drawing::chosen)
      out += ",\n \"q_logits\": " + rows(f.q_logits, 12) + ",\n \"q\": " + rows(f.q, 12);
    out += ",\n \"law\": " + list(law, 12) + ",\n \"faults\": {";
    std::string faults;
    for (std::size_t k = 1; k < kFaults.size(); ++k) {
      const Law wrong = Faulty(v, f, static_cast<Fault>(k)).law();
      if (difference(wrong, law) < 1e-9) continue;  // no fault here
      faults += std::string(faults.empty() ? "" : ",") + "\n  \"" + kFaults[k] + "\": " + list(wrong, 6);
    }
    out += faults + "}";
  }
  return out + "}]}\n";
}

/// Whether two texts are the same but for the last digits of numbers, which are those of a machine's exp().
bool same_text(const std::string& a, const std::string& b) {
  const auto split = [](const std::string& text) {
    std::vector<std::string> out(1);
    for (const char c : text) {
      const bool digit = std::string("0123456789.+-e").find(c) != std::string::npos;
      const bool before =
          !out.back().empty() && std::string("0123456789.+-e").find(out.back().back()) != std::string::npos;
      if (digit != before) out.emplace_back();
      out.back() += c;
    }
    return out;
  };
  const auto x = split(a), y = split(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const std::string& s, const std::string& t) {
    if (s == t) return true;
    char *s_end, *t_end;
    const double u = std::strtod(s.c_str(), &s_end), v = std::strtod(t.c_str(), &t_end);
    return *s_end == 0 && *t_end == 0 && std::abs(u - v) < 1e-5 * std::abs(u) && std::abs(u - v) < 1e-5;
  });
}

}  // namespace

TEST_CASE("every exact rule has the law of each vector") {
  const ReferenceArithmetic reference;
  CHECK(kCases.size() == 40);
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const Case& v = kCases[i];
    CAPTURE(v.name);
    const Filled f = fill(v, static_cast<std::uint32_t>(i));
    const Law want = exact_law(f);
    CHECK(std::accumulate(want.begin(), want.end(), 0.0) == doctest::Approx(1).epsilon(1e-12));
    if (v.params.temperature != 0)  // so that no implementation's rounding keeps other tokens
      for (const auto* all : {&f.p_logits, &f.q_logits})
        for (const Logits& row : *all) CHECK(!by_sorting(row, v.params, 1e-4).near);
    std::vector<OneRule> rules = {Rejection{}, Traversal{}, SampleAndMatch{}};
    if (v.draw == Drawing::independent && v.params.temperature != 0) {
      rules.push_back(KSeq{});
      if (v.parents == kChain1 || v.parents == kChain2 || v.parents == kChain3) rules.push_back(Block{});
    }
    if (v.params.temperature == 0) rules.push_back(Greedy{});
    for (const OneRule& rule : rules) CHECK(difference(law_of(rule, v, f), want) < 1e-12);
    CHECK(difference(Faulty(v, f, Fault::none).law(), want) < 1e-12);
  }
}

TEST_CASE("each fault is another law, in several vectors") {
  std::array<int, kFaults.size()> seen{};
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const Filled f = fill(kCases[i], static_cast<std::uint32_t>(i));
    for (std::size_t k = 1; k < kFaults.size(); ++k)
      seen[k] += difference(Faulty(kCases[i], f, static_cast<Fault>(k)).law(), exact_law(f)) > 0.01;
  }
  for (std::size_t k = 1; k < kFaults.size(); ++k) {
    CAPTURE(kFaults[k]);
    CHECK(seen[k] >= 4);
  }
}

TEST_CASE("docs/conformance/vectors.json is what this writes") {
  const std::string file = SPECULA_MODELS_DIR "/../../docs/conformance/vectors.json", text = written(kCases);
  if (std::getenv("SPECULA_WRITE_VECTORS")) std::ofstream(file) << text;
  std::ifstream in(file);
  const std::string committed{std::istreambuf_iterator<char>(in), {}};
  CHECK(same_text(committed, text));
  std::string other = committed;
  other.replace(other.find("0.75,"), 4, "0.76");
  CHECK(!same_text(other, text));
}
