#include "runner.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <specula/pipeline.hpp>
#include "progress_bar.hpp"

namespace specula_examples {

std::vector<Outcome> Runner::run(const std::vector<std::string>& names,
                                 std::span<const std::vector<Token>> prompts, std::int32_t repeat) {
  std::vector<std::unique_ptr<specula::Pipeline>> pipelines;
  std::vector<Contender> contenders;
  for (const auto& name : names) {
    const auto factory = specula::prepare_pipeline(name);
    pipelines.push_back(factory.build(models_, options_.sampling));
    contenders.push_back({name, pipelines.back().get(), factory.lossy});
  }
  return compare(contenders, prompts, {options_.max_new_tokens, stop_, options_.seed, repeat}, ProgressBar());
}

std::vector<std::string> with_plain(const ModelFolders& folders, std::vector<std::string> names,
                                    const CostCoefficients& known) {
  for (std::size_t n = 0, count = names.size(); n < count; ++n)
    for (const auto& draft : specula::prepare_pipeline(names[n]).drafts) {
      std::string own = "autoregressive@" + draft;
      if (!known.contains(draft) && folders.conditioned_on(draft) == specula::Conditioning::nothing &&
          std::find(names.begin(), names.end(), own) == names.end())
        names.push_back(std::move(own));
    }
  return names;
}

}  // namespace specula_examples
