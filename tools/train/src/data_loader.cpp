// SPDX-License-Identifier: MIT
#include "data_loader.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include <specula/base/read_number.hpp>

namespace specula_train {
namespace {

/// Fisher-Yates. std::shuffle would give another order with another standard library.
template <class T>
void shuffle(std::vector<T>& items, std::mt19937_64& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

torch::Tensor to_tensor(const std::vector<Document>& rows, std::int64_t length) {
  auto batch = torch::empty({static_cast<std::int64_t>(rows.size()), length}, torch::kInt64);
  auto* out = batch.data_ptr<std::int64_t>();
  for (const auto& row : rows) out = std::copy(row.begin(), row.end(), out);
  return batch;
}

}  // namespace

std::vector<Document> pack_rows(const std::vector<const Document*>& documents, std::size_t length) {
  std::vector<Document> rows;
  Document row;
  row.reserve(length);
  for (std::size_t i = 0, offset = 0; i < documents.size();) {
    const Document& document = *documents[i];
    const auto taken = std::min(length - row.size(), document.size() - offset);
    const auto from = document.begin() + static_cast<std::ptrdiff_t>(offset);
    row.insert(row.end(), from, from + static_cast<std::ptrdiff_t>(taken));
    offset += taken;
    const bool finished = offset == document.size();
    if (row.size() == length) {
      rows.push_back(std::exchange(row, {}));
      row.reserve(length);
      if (!finished) {
        // The last token was only predicted; as an input it comes first in the next row.
        offset = document.size() <= length ? 0 : offset - 1;
      }
    }
    if (finished) {
      ++i;
      offset = 0;
    }
  }
  return rows;  // the rest at the end does not fill a row
}

RowStream::RowStream(const std::vector<Document>& documents, std::uint64_t seed)
    : documents_(&documents), seed_(seed) {}

void RowStream::pack(std::size_t length) {
  std::mt19937_64 random(seed_ * 1'000'003);
  std::vector<const Document*> order;
  for (const auto& document : *documents_) order.push_back(&document);
  shuffle(order, random);
  rows_ = pack_rows(order, length);
  if (rows_.empty()) {
    throw std::runtime_error("a style holds less than one row of " + std::to_string(length) +
                             " tokens; leave it out (--share NAME=0) or lower --context");
  }
  length_ = length;
}

void RowStream::shuffle_rows() {
  std::mt19937_64 random(seed_ * 1'000'003 + static_cast<std::uint64_t>(epoch_) + 1);
  order_.resize(rows_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  shuffle(order_, random);
}

const Document& RowStream::next(std::size_t length) {
  if (length_ == 0) {
    pack(length);  // first use, or after seek(), which has set position_
    shuffle_rows();
  } else if (length != length_) {
    ++epoch_;
    position_ = 0;
    pack(length);
    shuffle_rows();
  } else if (position_ >= static_cast<std::int64_t>(rows_.size())) {
    ++epoch_;
    position_ = 0;
    shuffle_rows();
  }
  // A position saved under another row length may lie beyond this epoch.
  if (position_ >= static_cast<std::int64_t>(rows_.size())) position_ = 0;
  return rows_[order_[static_cast<std::size_t>(position_++)]];
}

void RowStream::seek(std::int64_t epoch, std::int64_t position) {
  epoch_ = epoch;
  position_ = position;
  length_ = 0;
}

std::vector<double> parse_shares(const std::vector<TokenizedStyle>& styles,
                                 const std::vector<std::string>& given) {
  constexpr double kNotGiven = -1;
  std::vector<double> shares(styles.size(), kNotGiven);
  double sum = 0;
  for (const auto& text : given) {
    const auto [name, value] = parse_assignment("--share", text);
    const auto style =
        std::find_if(styles.begin(), styles.end(),
                     [&, &wanted = name](const TokenizedStyle& s) { return s.name == wanted; });
    if (style == styles.end()) {
      std::string known;
      for (const auto& s : styles) known += (known.empty() ? "" : ", ") + s.name;
      throw std::invalid_argument("--share " + text + ": no style of this name; there are " + known);
    }
    auto& share = shares[static_cast<std::size_t>(style - styles.begin())];
    if (share != kNotGiven) throw std::invalid_argument("--share " + text + ": given twice");
    if (!specula::detail::read_number(value, share) || !(share >= 0 && share <= 1))
      throw std::invalid_argument("--share " + text + ": expected a number from 0 to 1");
    sum += share;
  }
  const auto rest = std::count(shares.begin(), shares.end(), kNotGiven);
  constexpr double kRounding = 1e-6;
  if (sum > 1 + kRounding || (rest == 0 && sum < 1 - kRounding))
    throw std::invalid_argument("--share: the shares add up to " + std::to_string(sum) + ", expected " +
                                (rest == 0 ? "1" : "at most 1"));
  for (auto& share : shares)
    if (share == kNotGiven) share = std::max(0.0, 1 - sum) / static_cast<double>(rest);
  if (rest == 0)
    for (auto& share : shares) share /= sum;
  return shares;
}

bool mark_prompts(std::vector<TokenizedStyle>& styles, const std::vector<std::string>& learned) {
  for (const auto& name : learned)
    if (std::ranges::find(styles, name, &TokenizedStyle::name) == styles.end())
      throw std::invalid_argument("--learn-prompts " + name + ": no style of this name");
  bool any = false;
  for (auto& style : styles) {
    any = any || !style.given.empty();
    if (std::ranges::count(learned, style.name) == 0) mark_given(style);
  }
  return any;
}

BatchLoader::BatchLoader(const std::vector<TokenizedStyle>& styles, std::uint64_t seed,
                         std::vector<double> shares)
    : shares_(shares.empty() ? parse_shares(styles, {}) : std::move(shares)), counts_(styles.size()) {
  for (const auto& style : styles) {
    names_.push_back(style.name);
    streams_.emplace_back(style.train, seed * 7919 + streams_.size());
  }
}

std::size_t BatchLoader::next_style() {
  // The style with the largest deficit. With equal shares these are all in turn.
  std::size_t best = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    const double lag = shares_[i] * static_cast<double>(rows_ + 1) - static_cast<double>(counts_[i]);
    if (shares_[i] > 0 && lag > most) {
      most = lag;
      best = i;
    }
  }
  ++rows_;
  ++counts_[best];
  return best;
}

torch::Tensor BatchLoader::next(std::int64_t rows, std::int64_t context) {
  std::vector<Document> batch;
  for (std::int64_t i = 0; i < rows; ++i) {
    batch.push_back(streams_[next_style()].next(static_cast<std::size_t>(context) + 1));
  }
  return to_tensor(batch, context + 1);
}

torch::Tensor BatchLoader::state() const {
  auto state = torch::zeros({static_cast<std::int64_t>(streams_.size()) + 1, 2}, torch::kInt64);
  auto* out = state.data_ptr<std::int64_t>();
  for (const auto& stream : streams_) {
    *out++ = stream.epoch();
    *out++ = stream.position();
  }
  *out = rows_;
  return state;
}

void BatchLoader::restore(const torch::Tensor& state) {
  if (state.size(0) != static_cast<std::int64_t>(streams_.size()) + 1) {
    throw std::runtime_error("checkpoint: saved with " + std::to_string(state.size(0) - 1) +
                             " styles of text, the corpus has " + std::to_string(streams_.size()));
  }
  const auto* in = state.data_ptr<std::int64_t>();
  for (auto& stream : streams_) {
    stream.seek(in[0], in[1]);
    in += 2;
  }
  rows_ = 0;
  std::fill(counts_.begin(), counts_.end(), 0);
  while (rows_ < *in) next_style();  // the counts follow from the shares
}

std::string BatchLoader::epochs() const {
  std::string text;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (shares_[i] == 0) continue;
    text += (text.empty() ? "" : ", ") + names_[i] + " " + std::to_string(streams_[i].epoch() + 1);
  }
  return text;
}

torch::Tensor heldout_rows(const TokenizedStyle& style, std::int64_t context, std::int64_t max_rows) {
  std::vector<const Document*> order;
  for (const auto& document : style.heldout) order.push_back(&document);
  const auto rows = pack_rows(order, static_cast<std::size_t>(context) + 1);
  const auto count = std::min(rows.size(), static_cast<std::size_t>(max_rows));
  std::vector<Document> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(rows[i * rows.size() / count]);
  return to_tensor(chosen, context + 1);
}

}  // namespace specula_train
