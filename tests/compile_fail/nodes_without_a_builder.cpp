// SPDX-License-Identifier: MIT
// expect: no member named [^a-z]*choose
// expect: push[^;]*protected
// expect: TokenTree\([^;]*protected|protected constructor
// Nodes enter a proposal through a ProposalBuilder alone, so that the record is what was drawn.
#include <specula/proposal/proposal_builder.hpp>

using namespace specula;

#ifdef SPECULA_MUST_FAIL
NodeId choose(TokenTree& tree) { return tree.choose(0, 1, 1.0f); }
NodeId push(ProposalBuilder& tree) { return tree.push(1, 0, {}); }
TokenTree begin() { return TokenTree(8, 4); }
#else
NodeId choose(ProposalBuilder& tree) { return tree.choose(0, 1, 1.0f); }
std::int32_t size(const TokenTree& tree) { return tree.size(); }
ProposalBuilder begin() { return ProposalBuilder(8, 4, 0); }
#endif
