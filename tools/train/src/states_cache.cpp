// SPDX-License-Identifier: MIT
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

std::int64_t state_bytes(const DecoderConfig& target, std::size_t layers) {
  return 2 * (static_cast<std::int64_t>(layers) + 1) * target.hidden;
}

std::int64_t free_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024 / 2;
  return 0;
}

StatesCache::StatesCache(std::int64_t bytes, const Llama& target, const std::vector<std::int64_t>& layers)
    : left_(bytes), kept_(layers), layers_(layers), hidden_(target->config().hidden) {}

StatesCache::StatesCache(const std::filesystem::path& file, const Llama& target,
                         const std::vector<std::int64_t>& layers)
    : file_(file), layers_(layers), hidden_(target->config().hidden) {
  open(target);
}

void StatesCache::open(const Llama& target) {
  const auto& file = file_;
  const auto& layers = layers_;
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
    const Place place{.at = end_ + static_cast<std::int64_t>(sizeof count + row.size() * sizeof row[0]),
                      .tokens = static_cast<std::int64_t>(row.size())};
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

Tensor StatesCache::read(const Row& row) {
  const std::lock_guard lock(guard_);
  const auto [first, last] = places_.equal_range(hash(row));
  for (auto it = first; it != last; ++it) {
    const auto& place = it->second;
    if (place.states.defined()) {
      if (place.row == row) return place.states;
      continue;
    }
    if (place.tokens != static_cast<std::int64_t>(row.size())) continue;
    const auto bytes = row.size() * sizeof row[0];
    Row its(row.size());
    stream_.seekg(place.at - static_cast<std::int64_t>(bytes));
    stream_.read(reinterpret_cast<char*>(its.data()), static_cast<std::streamsize>(bytes));
    if (its != row) continue;
    auto states = torch::empty({place.tokens, row_width()}, torch::kBFloat16);
    stream_.read(static_cast<char*>(states.data_ptr()), static_cast<std::streamsize>(states.nbytes()));
    if (!stream_) throw std::runtime_error(file_.string() + ": cannot be read");
    return states;
  }
  return {};
}

void StatesCache::append(const Row& row, const Tensor& states) {
  const std::lock_guard lock(guard_);
  const auto bytes = row.size() * sizeof row[0];
  if (file_.empty()) {
    const auto needed = static_cast<std::int64_t>(states.nbytes() + bytes);
    if (needed > left_) return;
    left_ -= needed;
    places_.emplace(hash(row), Place{.row = row, .states = states.clone()});
    return;
  }
  const auto count = static_cast<std::uint32_t>(row.size());
  const auto values = states.cpu();
  stream_.seekp(end_);
  stream_.write(reinterpret_cast<const char*>(&count), sizeof count);
  stream_.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(bytes));
  stream_.write(static_cast<const char*>(values.data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  stream_.flush();
  if (!stream_) throw std::runtime_error(file_.string() + ": cannot be written");
  const auto at = end_ + static_cast<std::int64_t>(sizeof count + bytes);
  places_.emplace(hash(row), Place{.at = at, .tokens = count});
  end_ = at + static_cast<std::int64_t>(values.nbytes());
}

TargetStates StatesCache::states(Llama& target, const Tensor& tokens, torch::ScalarType dtype) {
  const auto list = tokens.cpu().to(torch::kInt32).contiguous();
  std::vector<std::int64_t> missing;
  std::vector<Row> rows;
  std::vector<Tensor> of_rows;
  for (std::int64_t b = 0; b < tokens.size(0); ++b) {
    const auto* row = list[b].data_ptr<std::int32_t>();
    rows.emplace_back(row, row + tokens.size(1));
    of_rows.push_back(read(rows.back()));
    if (!of_rows.back().defined()) missing.push_back(b);
  }
  if (!missing.empty()) {
    const auto index = torch::tensor(missing, torch::kInt64).to(tokens.device());
    const auto fresh = target->states(tokens.index_select(0, index), kept_, dtype).all.to(torch::kBFloat16);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const auto row = static_cast<std::size_t>(missing[i]);
      of_rows[row] = fresh[static_cast<std::int64_t>(i)].contiguous();
      append(rows[row], of_rows[row]);
    }
  }
  for (auto& row : of_rows) row = row.to(tokens.device());
  const auto all = torch::stack(of_rows);
  std::vector<Tensor> parts;
  for (const auto layer : layers_) {
    const auto at = std::find(kept_.begin(), kept_.end(), layer) - kept_.begin();
    parts.push_back(all.narrow(-1, at * hidden_, hidden_));
  }
  parts.push_back(all.narrow(-1, row_width() - hidden_, hidden_));
  const auto wanted = (kept_ == layers_ ? all : torch::cat(parts, -1)).to(dtype);
  return {.all = wanted, .features = wanted.narrow(-1, wanted.size(-1) - hidden_, hidden_)};
}

}  // namespace specula_train
