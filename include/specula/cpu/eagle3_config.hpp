// SPDX-License-Identifier: MIT
// EAGLE-3 draft heads (Li et al. 2025) as six projects publish them: what a head reads of its target, and
// which norms it has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "specula/base/compiler_options.hpp"

namespace specula::cpu {

/// Where the list of an EAGLE-3 head's states comes from. State k of a target is its residual stream after k
/// layers, before any norm: state 0 is the embedding.
enum class StatesFrom {
  standard,        ///< no key: states 2, L / 2 and L - 3 of a target of L layers
  states,          ///< a key at the top level, or eagle_config.layer_ids: id i is state i
  nested_outputs,  ///< eagle_config.eagle_aux_hidden_state_layer_ids: id i is the output of layer i, state i
                   ///< + 1
  outputs,         ///< target_layer_ids of DeepSpec: likewise
  final_norm,      ///< eagle_config.use_aux_hidden_state false: one state, the target's after its final norm
  caller           ///< the caller's, whatever the file says
};

/// What the config of an EAGLE-3 head has besides the sizes of its layers. The first layer's queries, keys
/// and values read a token's embedding beside a feature g of the token before it: g = fc(states) of a token
/// that the target has processed, else what this head's last layer made of that token. The first token of a
/// text has no token before it, so no row: later tokens do not attend to it.
struct Eagle3Config {
  std::int32_t target_hidden_size = 0;  ///< H, the width of the target's states
  /// Numbers of the target's states in the order in which they are put side by side. Empty: one, after its
  /// final norm (StatesFrom::final_norm), or not known without the target (StatesFrom::standard).
  std::vector<std::int32_t> states;
  StatesFrom states_from = StatesFrom::standard;  ///< where that list comes from
  bool norm_before_residual = false;              ///< g is normed before it enters the residual stream
  bool norm_before_fc = false;                    ///< an RMS norm of all states together, before fc
  bool fc_norm = false;                           ///< an RMS norm of each state, before fc (EAGLE-3.1)
  bool norm_output = false;    ///< what a token hands on to its children is normed (EAGLE-3.1)
  bool own_embedding = false;  ///< the file has an embedding; otherwise it is the target's
  bool own_head = true;        ///< the file has an LM head; see DecoderWeights::head()

  /// Whether it reads states from between the target's layers.
  bool mixes_states() const { return states_from != StatesFrom::final_norm; }
  /// The numbers of `states`, ascending, each once: DecoderOptions::feature_layers of the target.
  std::vector<std::int32_t> ascending_states() const {
    std::vector<std::int32_t> all = states;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
};

/// In words, for reports.
inline std::string to_string(StatesFrom from) {
  switch (from) {
    case StatesFrom::standard:
      return "no key names them: 2, L / 2, L - 3";
    case StatesFrom::states:
      return "the file's ids are states";
    case StatesFrom::nested_outputs:
      return "ids below eagle_config are outputs of layers: id i is state i + 1";
    case StatesFrom::outputs:
      return "target_layer_ids are outputs of layers: id i is state i + 1";
    case StatesFrom::final_norm:
      return "use_aux_hidden_state is false: the state after the final norm";
    case StatesFrom::caller:
      break;
  }
  return "as asked";
}

}  // namespace specula::cpu
