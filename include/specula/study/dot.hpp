// SPDX-License-Identifier: MIT
// Graphviz rendering of a proposal and its verification result, for `dot -Tsvg`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "specula/base/rows.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {
namespace detail {

/// Bytes of the UTF-8 character that `text` begins with, by the table of well-formed sequences of the
/// Unicode standard (3.9, D92); 0 if it is malformed or cannot be shown: a control character, U+FFFE or
/// U+FFFF.
inline std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const std::size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  const unsigned low = lead == 0xE0 || lead == 0xC2 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i)
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return 0;
  return lead == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE ? 0 : length;
}

// clang-format off
/// The escape of a byte in a label of Graphviz's HTML, where a backslash is written twice; empty for bytes
/// that need none.
constexpr std::string_view dot_escape(char byte) {
  switch (byte) {
    case ' ': return "\u2423";
    case '\n': return R"(\\n)";
    case '\t': return R"(\\t)";
    case '\r': return R"(\\r)";
    case '\\': return R"(\\\\)";
    case '"': return "&quot;";
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    default: return {};
  }
}
// clang-format on

/// Escapes `text` for a label: a space becomes U+2423, a backslash is doubled, unprintable bytes become \n,
/// \t, \r or \xNN.
inline std::string dot_text(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (std::size_t length = 0; !text.empty(); text.remove_prefix(std::max<std::size_t>(1, length))) {
    length = printable_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (const std::string_view escape = dot_escape(text[0]); !escape.empty())
      out.append(escape);
    else if (length > 0)
      out.append(text.substr(0, length));
    else
      out.append(R"(\\x)").append(1, kHex[byte / 16u]).append(1, kHex[byte % 16u]);
  }
  return out;
}

/// Formats a confidence, clamped to [0, 1], with two decimals, independent of the locale.
inline std::string dot_confidence(float confidence) {
  const int hundredths = confidence > 0 ? static_cast<int>(std::min(confidence, 1.0f) * 100 + 0.5f) : 0;
  std::string out = std::to_string(hundredths / 100);
  return out.append(".")
      .append(1, static_cast<char>('0' + hundredths / 10 % 10))
      .append(1, static_cast<char>('0' + hundredths % 10));
}

/// Appends `name [label=<text small>attributes];`.
inline void dot_node(std::string& out, std::string_view name, const std::string& bytes, Token token,
                     std::string_view note, std::string_view attributes) {
  out.append("  ").append(name).append(" [label=<");
  out.append(bytes.empty() ? std::string("#").append(std::to_string(token)) : dot_text(bytes));
  out.append(" <font point-size=\"7\">").append(note).append("</font>>").append(attributes).append("];\n");
}

/// Throws std::invalid_argument unless the accepted path is a path of `tree` from its root.
inline void check_path(const TokenTree& tree, const VerifyResult& result) {
  NodeId parent = kNoParent;
  for (const NodeId n : result.accepted) {
    if (n < 0 || n >= tree.size() || tree.parent(n) != parent)
      throw std::invalid_argument("to_dot: the result is of another proposal; its node " + std::to_string(n) +
                                  " does not follow node " + std::to_string(parent));
    parent = n;
  }
  if (parent == kNoParent)
    throw std::invalid_argument("to_dot: the accepted path is empty, must hold the root");
}

}  // namespace detail

/// The proposal as a Graphviz digraph, from left to right, siblings in drawing order. Each node shows its
/// token and the draft's confidence. With a result, the accepted path is filled and bold, rejected nodes
/// are thin and grey, and the next token is a dashed node after the path. Node k is named nk, the next
/// token `next`.
///
/// `text_of(Token)` returns the token's bytes as a std::string, which need not be whole characters; a token
/// without bytes is shown as `#number`. `result` may be null. Throws std::invalid_argument if the accepted
/// path is not a path of this tree. Cost: linear in the text; allocates.
template <class TextOf>
std::string to_dot(const TokenTree& tree, const VerifyResult* result, TextOf text_of) {
  constexpr std::string_view
      kPlain = "color=\"#555555\", fontcolor=\"#111111\"",
      kRejected = "color=\"#c4c4c4\", fontcolor=\"#767676\", penwidth=0.6",
      kAccepted =
          ", color=\"#1a7f37\", fontcolor=\"#0b3d1a\", fillcolor=\"#d7f3dd\", "
          "style=\"rounded,filled\", penwidth=1.4",
      kNext = ", color=\"#1a7f37\", fontcolor=\"#0b3d1a\", style=\"rounded,dashed\", penwidth=1.4",
      kFrame = ", fillcolor=\"#eeeeee\", style=\"rounded,filled\"";
  if (result) detail::check_path(tree, *result);
  const auto accepted = [&](NodeId n) {
    return result && std::find(result->accepted.begin(), result->accepted.end(), n) != result->accepted.end();
  };
  const auto name = [](NodeId n) { return std::string("n").append(std::to_string(n)); };

  std::string out = "digraph proposal {\n  graph [rankdir=LR, ordering=out, nodesep=0.06, ranksep=0.22];\n";
  out.append(
      "  node [shape=box, style=rounded, fontname=monospace, fontsize=10, margin=\"0.06,0.03\", width=0, ");
  out.append("height=0, ").append(result ? kRejected : kPlain).append("];\n");
  out.append("  edge [arrowsize=0.4, ").append(result ? kRejected : kPlain).append("];\n");
  for (NodeId n = 0; n < tree.size(); ++n) {
    const bool root = n == 0;
    detail::dot_node(out, name(n), text_of(tree.token(n)), tree.token(n),
                     root ? "root" : detail::dot_confidence(tree.confidence(n)),
                     accepted(n) ? kAccepted
                     : root      ? kFrame
                                 : std::string_view());
  }
  if (result) detail::dot_node(out, "next", text_of(result->next_token), result->next_token, "next", kNext);
  const auto edge = [&](NodeId from, std::string_view to, bool highlighted) {
    out.append("  ").append(name(from)).append(" -> ").append(to);
    out.append(highlighted ? " [color=\"#1a7f37\", penwidth=1.4];\n" : ";\n");
  };
  for (NodeId n = 1; n < tree.size(); ++n) edge(tree.parent(n), name(n), accepted(n));
  if (result) edge(result->accepted.back(), "next", true);
  return out.append("}\n");
}

/// The same with a result.
template <class TextOf>
std::string to_dot(const TokenTree& tree, const VerifyResult& result, TextOf text_of) {
  return to_dot(tree, &result, std::move(text_of));
}

/// The proposal without a result.
template <class TextOf>
std::string to_dot(const TokenTree& tree, TextOf text_of) {
  return to_dot(tree, nullptr, std::move(text_of));
}

}  // namespace specula
