// SPDX-License-Identifier: MIT
// Rounds that stay on a device, as a pipeline of the programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <specula/base/stopwatch.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/pipeline.hpp>
#include <specula/runtime/parse_parts.hpp>

#include "errors.hpp"

namespace specula_tools {

using specula::Token;
using specula::Tokens;

/// Of what a round proposed it knows the accepted tokens and how many nodes there were.
template <class Device, class Shape, class Rule>
class RoundPipeline final : public specula::Pipeline, private specula::RunRecord {
  using Run = specula::cuda::Round<Device, Shape, Rule>;

 public:
  /// `plain`: its rounds draft nothing.
  RoundPipeline(Device& device, const specula::cuda::DeviceWeights& target,
                const specula::cuda::DeviceWeights& draft, const Shape& shape,
                const specula::cuda::RoundOptions& options, bool plain, std::vector<std::string> drafters)
      : RunRecord(target.vocab, std::max(shape.nodes().most, 1), false, drafters.size()),
        device_(device),
        options_(options),
        nodes_(plain ? 1 : shape.nodes().most),
        run_(device, target, draft, shape, Rule{}, options),
        length_(plain ? 0 : run_.longest()),
        drafters_(std::move(drafters)) {}

  void start(Tokens prompt) override {
    expect_no_sink();
    set_text(prompt);
    prompt_.assign(prompt.begin(), prompt.end());
    begun_ = false;
  }
  Tokens step(specula::PhiloxRandom& rng, Tokens stop) override {
    expect_no_sink();
    if (!begun_) {
      const specula::detail::Stopwatch watch(sums().prefill_seconds);
      run_.start(prompt_, {.max_new_tokens = options_.capacity, .stop = stop}, rng.seed(), rng.sequence());
      device_.wait();
      begun_ = true;
    }
    begin_round();
    const specula::detail::Stopwatch watch(sums().round_seconds);
    Tokens fresh;
    while (fresh.empty() && !run_.finished()) fresh = run_.step(length_);
    if (fresh.empty())
      throw specula::detail::StatusError(run_.status(),
                                         "a row of the target on the device is no distribution");
    // The accepted tokens as a chain, then the target's own.
    const auto root = static_cast<std::int32_t>(RunRecord::text().size()) - 1;
    builder().reset(RunRecord::text().back(), root);
    result_.accepted.assign(1, 0);
    for (const Token token : fresh.first(fresh.size() - 1))
      result_.accepted.push_back(builder().choose(result_.accepted.back(), token, 1.0f));
    result_.next_token = fresh.back();
    add_round(result_);
    sums().proposed += nodes_ - static_cast<std::int32_t>(fresh.size());
    ++sums().target.calls;
    return RunRecord::text().last(fresh.size());
  }
  void forget() override {}  // a text is read anew in any case
  std::int32_t room() const override {
    return options_.capacity + 1 - static_cast<std::int32_t>(RunRecord::text().size());
  }
  specula::NodeCounts nodes() const override { return {nodes_}; }
  specula::ProposalKind kind() const override { return Shape::kind; }
  void begin(specula::PhiloxRandom&, Tokens, specula::CostModel*, std::int32_t) override { refuse(); }
  void keep(std::span<const std::uint8_t>) override { refuse(); }
  Tokens end() override { refuse(); }
  void abandon() override {}
  const specula::SamplingParams& params() const override { return options_.params; }
  void set_params(const specula::SamplingParams&) override { refuse(); }
  void report_logprobs(const specula::LogprobOptions&) override {
    throw UsageError("probabilities of tokens stay on the device; take --rounds host");
  }
  void report_no_logprobs() override {}
  specula::Logprobs logprobs() const override { return {}; }
  std::vector<specula::DraftUsage> drafts() const override {
    std::vector<specula::DraftUsage> out;
    for (const auto& name : drafters_) out.push_back({name, {}});
    return out;
  }

 protected:
  specula::RunRecord& record() override { return *this; }
  const specula::RunRecord& record() const override { return *this; }

 private:
  [[noreturn]] static void refuse() {
    throw std::logic_error("RoundPipeline: a round on the device is one graph");
  }
  Device& device_;
  specula::cuda::RoundOptions options_;
  std::int32_t nodes_;  // of its proposals
  Run run_;
  std::int32_t length_;
  std::vector<std::string> drafters_;
  std::vector<Token> prompt_;
  bool begun_ = false;
  specula::VerifyResult result_;
};

/// The pipeline `text` with its rounds on the device. `weights(name)`: a draft's there. Throws UsageError for
/// one without such rounds.
template <class Device, class WeightsOf>
std::unique_ptr<specula::Pipeline> make_round_pipeline(const std::string& text, Device& device,
                                                       const specula::cuda::DeviceWeights& target,
                                                       const WeightsOf& weights,
                                                       const specula::cuda::RoundOptions& options) {
  using namespace specula;
  namespace parts = specula::detail::pipelines;
  const auto refuse = [&](const std::string& why) -> void {
    throw UsageError("--rounds device: " + text + ": " + why + "; --rounds host runs every pipeline");
  };
  const PipelineFactory factory = prepare_pipeline(text);  // so what is wrong with it is said as ever
  PipelineSpec spec(text);
  const bool plain = spec.shape() == "autoregressive";
  for (const PipelineEntry& entry : pipeline_entries()) {
    if (spec.shape() != entry.name) continue;
    if (spec.drafters().empty() && *entry.drafters) spec.draft_by(entry.drafters);
    spec.know(entry.fields);
  }
  if (spec.cost_aware()) refuse("sizes by cost are chosen on the host");
  const bool by_a_model = factory.drafts.size() == 1 && factory.exits.empty() && spec.drafters().size() == 1;
  if (plain ? !spec.drafters().empty() : !by_a_model) refuse("a round there has one model as its draft");

  const auto make = [&]<class Rule>(const auto& shape, Rule) -> std::unique_ptr<Pipeline> {
    using Shape = std::remove_cvref_t<decltype(shape)>;
    cuda::DeviceWeights draft = target;
    draft.layers.clear();  // of plain decoding, where it never runs
    if (!plain) draft = weights(spec.drafters().front());
    return std::make_unique<RoundPipeline<Device, Shape, Rule>>(device, target, draft, shape, options, plain,
                                                                spec.drafters());
  };
  const auto ruled = [&]<class Shape>(const Shape& shape) -> std::unique_ptr<Pipeline> {
    const parts::ParsedRule rule = plain ? parts::ParsedRule{} : parts::parse_rule(spec, Shape::kind);
    constexpr bool drawn = Shape::kind == ProposalKind::sampled;
    if (rule.name == RuleName::token) return make(shape, Rejection{});
    if (rule.name == RuleName::traversal) return make(shape, Traversal{});
    if constexpr (drawn) {
      if (rule.name == RuleName::sampling || rule.name == RuleName::block) return make(shape, Block{});
    } else {
      if (rule.name == RuleName::sampling) return make(shape, SampleAndMatch{});
    }
    if (rule.name == RuleName::match) return make(shape, SampleAndMatch{});
    refuse(std::string("rule=") + name_of(rule.name) + " has no kernel there");
    return nullptr;
  };
  const auto chain = [&]<Draw mode>(const Chain<mode>& shape) {
    if (shape.exit_below > 0) refuse("a chain there ends by its length alone, as in chain:4");
    return ruled(shape);
  };
  if (plain) return ruled(Chain<>{.length = 1});
  if (spec.shape() == "chain" && spec.is("draw", "greedy"))
    return chain(parts::parse_chain<Draw::greedy>(spec));
  if (spec.shape() == "chain" && spec.is("draw", "sampled"))
    return chain(parts::parse_chain<Draw::sampled>(spec));
  if (spec.shape() == "cape") return ruled(parts::parse_cape(spec));
  if (spec.shape() == "dynamic-tree") return ruled(parts::parse_dynamic_tree(spec));
  refuse("chain, cape and dynamic-tree have rounds there, and draw=shared has none");
  return nullptr;
}

}  // namespace specula_tools
