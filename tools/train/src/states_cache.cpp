#include "states_cache.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>

namespace specula_train {
namespace {

using torch::Tensor;

std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t h = 0xcbf29ce484222325u) {
  for (const std::byte b : bytes) h = (h ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
  return h;
}

std::uint64_t hash(const std::vector<std::int32_t>& row) { return hash(std::as_bytes(std::span(row))); }

/// Of all weights.
std::uint64_t fingerprint(const Llama& target) {
  std::uint64_t h = hash(std::span<const std::byte>{});
  for (const auto& parameter : target->parameters()) {
    const auto values = parameter.detach().cpu().contiguous();
    h = hash({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()}, h);
  }
  return h;
}

std::string header(std::uint64_t target, std::int64_t hidden, const std::vector<std::int64_t>& layers) {
  std::ostringstream line;
  line << "specula states " << target << ' ' << hidden;
  for (const auto layer : layers) line << ' ' << layer;
  line << '\n';
  return line.str();
}

}  // namespace

StatesCache::StatesCache(const std::filesystem::path& file, const Llama& target,
                         const std::vector<std::int64_t>& layers)
    : file_(file), layers_(layers), hidden_(target->config().hidden) {
  const auto fail = [&](const std::string& what) { throw std::runtime_error(file.string() + ": " + what); };
  const auto of_target = fingerprint(target);
  if (!std::filesystem::exists(file))
    std::ofstream(file, std::ios::binary) << header(of_target, hidden_, layers);
  stream_.open(file, std::ios::in | std::ios::out | std::ios::binary);
  std::string line;
  if (!stream_ || !std::getline(stream_, line)) fail("cannot be read and written");
  std::istringstream words(line);
  std::string specula, states;
  std::uint64_t its_target = 0;
  std::int64_t its_hidden = 0;
  if (!(words >> specula >> states >> its_target >> its_hidden) || specula != "specula" || states != "states")
    fail("holds no states of a target");
  if (its_target != of_target || its_hidden != hidden_) fail("holds the states of another target");
  for (std::int64_t layer; words >> layer;) kept_.push_back(layer);
  for (const auto layer : layers)
    if (std::find(kept_.begin(), kept_.end(), layer) == kept_.end())
      fail("lacks the states after layer " + std::to_string(layer) +
           ": the first head that writes it must read all layers that others read");

  end_ = static_cast<std::int64_t>(stream_.tellg());
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
  std::vector<std::int32_t> row;
  for (std::uint32_t count = 0; end_ < size;) {
    stream_.seekg(end_);
    stream_.read(reinterpret_cast<char*>(&count), sizeof count);
    row.resize(std::min<std::size_t>(count, kMaxPositions));
    stream_.read(reinterpret_cast<char*>(row.data()),
                 static_cast<std::streamsize>(row.size() * sizeof row[0]));
    const Place place{end_ + static_cast<std::int64_t>(sizeof count + row.size() * sizeof row[0]),
                      static_cast<std::int64_t>(row.size())};
    const auto next = place.at + 2 * place.tokens * row_width();
    if (!stream_ || row.size() != count || next > size) break;
    places_.emplace(hash(row), place);
    end_ = next;
  }
  stream_.clear();
}

std::int64_t StatesCache::row_width() const {
  return (static_cast<std::int64_t>(kept_.size()) + 1) * hidden_;
}

bool StatesCache::read(const std::vector<std::int32_t>& row, Tensor& states) {
  const std::lock_guard lock(guard_);
  const auto [first, last] = places_.equal_range(hash(row));
  for (auto it = first; it != last; ++it) {
    const auto bytes = row.size() * sizeof row[0];
    std::vector<std::int32_t> its(row.size());
    if (it->second.tokens != static_cast<std::int64_t>(row.size())) continue;
    stream_.seekg(it->second.at - static_cast<std::int64_t>(bytes));
    stream_.read(reinterpret_cast<char*>(its.data()), static_cast<std::streamsize>(bytes));
    if (its != row) continue;
    stream_.read(static_cast<char*>(states.data_ptr()), static_cast<std::streamsize>(states.nbytes()));
    if (!stream_) throw std::runtime_error(file_.string() + ": cannot be read");
    return true;
  }
  return false;
}

void StatesCache::append(const std::vector<std::int32_t>& row, const Tensor& states) {
  const std::lock_guard lock(guard_);
  const auto count = static_cast<std::uint32_t>(row.size());
  const auto bytes = row.size() * sizeof row[0];
  stream_.seekp(end_);
  stream_.write(reinterpret_cast<const char*>(&count), sizeof count);
  stream_.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(bytes));
  stream_.write(static_cast<const char*>(states.data_ptr()), static_cast<std::streamsize>(states.nbytes()));
  stream_.flush();
  if (!stream_) throw std::runtime_error(file_.string() + ": cannot be written");
  const auto at = end_ + static_cast<std::int64_t>(sizeof count + bytes);
  places_.emplace(hash(row), Place{at, count});
  end_ = at + static_cast<std::int64_t>(states.nbytes());
}

TargetStates StatesCache::states(Llama& target, const Tensor& tokens, torch::ScalarType dtype) {
  const auto list = tokens.cpu().to(torch::kInt32).contiguous();
  const auto all = torch::empty({tokens.size(0), tokens.size(1), row_width()}, torch::kBFloat16);
  std::vector<std::int64_t> missing;
  std::vector<std::vector<std::int32_t>> rows;
  for (std::int64_t b = 0; b < tokens.size(0); ++b) {
    const auto* row = list[b].data_ptr<std::int32_t>();
    rows.emplace_back(row, row + tokens.size(1));
    auto states = all[b];
    if (!read(rows.back(), states)) missing.push_back(b);
  }
  if (!missing.empty()) {
    const auto index = torch::tensor(missing, torch::kInt64);
    const auto fresh = target->states(tokens.index_select(0, index.to(tokens.device())), kept_, dtype)
                           .all.cpu()
                           .to(torch::kBFloat16);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const auto states = fresh[static_cast<std::int64_t>(i)].contiguous();
      append(rows[static_cast<std::size_t>(missing[i])], states);
      all[missing[i]].copy_(states);
    }
  }
  std::vector<Tensor> parts;
  for (const auto layer : layers_) {
    const auto at = std::find(kept_.begin(), kept_.end(), layer) - kept_.begin();
    parts.push_back(all.narrow(-1, at * hidden_, hidden_));
  }
  parts.push_back(all.narrow(-1, row_width() - hidden_, hidden_));
  const auto wanted = torch::cat(parts, -1).to(tokens.device()).to(dtype);
  return {.all = wanted, .features = wanted.narrow(-1, wanted.size(-1) - hidden_, hidden_)};
}

}  // namespace specula_train
