// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "grammar/parse/plain.h"
#include "grammar/parse/token_trie.h"

namespace reprise::grammar {

// Finds the tokens that an automaton takes from a state: `next(state, byte)` is its step, State{}
// means dead; `plain(state)` how many plain characters it takes, whichever they are, at least.
// What is found goes to `part(part)`, all tokens of it, or `token(id)`.
template <typename State>
class TrieWalk {
 public:
  // `plain_first` is plain(state), or more.
  template <typename NextFn, typename PlainFn, typename PartFn, typename TokenFn>
  void Run(const TokenTrie& trie, State state, int plain_first, NextFn next, PlainFn plain,
           PartFn part, TokenFn token) {
    stack_.resize(trie.depth_max() + 1);
    stack_[0] = state;
    for (const TokenTrie::Part& one : trie.parts()) {
      if (one.chars_max > 0 && (one.chars_max <= plain_first || plain_first == kPlainForever)) {
        part(one);
      } else {
        RunPart(one, next, plain, token);
      }
    }
  }

 private:
  static constexpr uint32_t kSubtreeMin = 64;  // nodes that are worth a look at what may follow

  template <typename NextFn, typename PlainFn, typename TokenFn>
  void RunPart(const TokenTrie::Part& part, NextFn& next, PlainFn& plain, TokenFn& token) {
    State* const stack = stack_.data();
    const TokenTrie::Node* const nodes = part.nodes.data();
    const auto count = static_cast<uint32_t>(part.nodes.size());
    for (uint32_t at = 0; at < count;) {
      const TokenTrie::Node& node = nodes[at];
      const State state = next(stack[node.depth - 1], node.byte);
      if (state == State{}) {
        at = node.end;
        continue;
      }
      if (node.end - at >= kSubtreeMin && node.chars != TokenTrie::Node::kNotPlain &&
          node.chars <= plain(state)) {
        const size_t end = node.end < count ? nodes[node.end].rank : part.tokens.size();
        for (size_t i = node.rank; i < end; ++i) token(part.tokens[i]);
        at = node.end;
        continue;
      }
      stack[node.depth] = state;
      if (node.token >= 0) token(node.token);
      ++at;
    }
  }

  std::vector<State> stack_;  // [depth of the trie + 1]
};

}  // namespace reprise::grammar
