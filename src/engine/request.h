// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/state_cache.h"
#include "engine/draft/speculate.h"
#include "engine/sight/placed_pictures.h"
#include "model/config/text_vectors.h"
#include "model/snapkv/keep_list.h"
#include "sample/sampler.h"
#include "sample/token_constraint.h"
#include "state/ids.h"

namespace reprise {

class Adapter;

// What a caller asks of the engine: tokens in, tokens out. Text, templates and JSON stay outside.
struct GenerateRequest {
  // What the choice of every token asks for comes first.
  SamplingParams sampling;
  int32_t max_tokens = 0;  // 0: only compute (and keep) the state of the prompt
  int32_t min_tokens = 0;  // end tokens are not chosen before
  std::vector<TokenId> end_tokens;
  // What the reply must look like; null: anything. Belongs to this request alone, and never to what
  // is stored. Its end tokens are among `end_tokens`; it goes before min_tokens.
  std::shared_ptr<TokenConstraint> constraint;
  int logprobs = -1;  // -1: none; else of the chosen token and of so many others

  std::vector<TokenId> prompt;
  std::vector<PlacedPicture> pictures;  // of the prompt, ascending
  std::vector<Boundary> boundaries;     // ascending positions of the prompt that mean something
  // -1: none; else the log probabilities of the prompt's own tokens, each with so many others. The
  // prompt is then computed whole, without reuse: state has no logits.
  int prompt_logprobs = -1;
  // Not kNone: the vector of the prompt is wanted, and no reply. A mean needs every token, so that
  // the prompt is then computed whole, without reuse.
  Pooling pooling = Pooling::kNone;
  int32_t priority = 0;  // higher first
  // What changes the model for this request (model/adapter/adapter.h); null: nothing. It names the
  // state: nothing is shared with requests that have another.
  std::shared_ptr<const Adapter> adapter;

  // Who asks: tenants share the queue and the places of those that run, by weight.
  std::string tenant;
  int32_t tenant_weight = 1;
  // It is part of one that has had its place in the queue (another choice, what comes behind its
  // reasoning), so it is not refused for want of one. Callers have few of a kind waiting at a time.
  bool continues = false;

  // What may be shared, and how (cache/state_cache.h).
  std::string salt;
  int64_t pin_ms = 0;
  int32_t min_cache_tokens = 0;
  bool cache_read = true;
  bool cache_write = true;
  std::string session;     // what the conversation is called; empty: nobody says
  bool cache_low = false;  // what it stores goes before all else

  // What is kept of the prompt while the reply is decoded (lossy); none: as the engine's options
  // say.
  std::optional<SnapKv> snapkv;

  // Drafts that are run as rows of the step and kept where they are what is said anyway: no token
  // changes. None: as the engine's options say. `prediction`: what the reply may be.
  std::optional<Speculate> speculate;
  std::vector<TokenId> prediction;

  // Work for a turn that may come: runs only while nothing else does, is dropped when room is
  // needed.
  bool idle = false;

  // The stream says how far the prompt has come after every step (TokenStream::Update::computed).
  bool tell_progress = false;

  // Sees the logits of every position this request computes (not of those it reuses), on the engine
  // thread. For audits; costs a full output projection per token.
  std::function<void(int32_t position, std::span<const float> logits)> on_logits;
};

enum class FinishReason : uint8_t { kEndToken, kLength, kCancelled, kFailed };
std::string_view NameOf(FinishReason reason);

using GeneratedToken = Sampled;

// The last word on a request.
struct Completion {
  std::vector<GeneratedToken> prompt;  // all tokens but the first, if prompt_logprobs asked
  std::vector<float> vector;           // [dim] of the prompt, if pooling asked; as it is
  FinishReason reason = FinishReason::kEndToken;
  Status status;  // not ok only for kFailed
  ReuseReport report;
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0;
  int32_t steps = 0;
  int32_t preemptions = 0;
  SpeculationReport speculation;
  double queue_ms = 0;        // submit to first step
  double look_up_ms = 0;      // of it, spent on finding what is known of the prompt
  double first_token_ms = 0;  // submit to first token (to the end, if there was none)
  double total_ms = 0;
};

}  // namespace reprise
