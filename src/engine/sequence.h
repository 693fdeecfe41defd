// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cache/state_cache.h"
#include "engine/compaction.h"
#include "engine/draft/draft_memory.h"
#include "engine/mask_filler.h"
#include "engine/request.h"
#include "engine/sight/sight.h"
#include "engine/slabs.h"
#include "engine/token_stream.h"
#include "sched/rank.h"

namespace reprise {

// A request in the engine's hands.
//
//   tokens: [0, prompt)           the request's prompt
//           [prompt, end)         generated; the last one is not computed yet
//   lease.computed() says how much of it has state. While it waits it may have no lease yet. After
//   a preemption the lease is new and its prompt is everything so far (that of the request where
//   K/V is left out: the state of its reply is not one that others could start from).
struct alignas(64) Sequence {
  // What every step looks at, in one line of the processor's cache,
  Lease lease;
  std::shared_ptr<TokenStream> stream;
  int32_t generated = 0;
  int32_t steps = 0;
  int32_t lent_priority = 0;  // its own; of one that runs, also that of one which waits for it
  bool finished = false;
  bool plain = false;  // a reply is wanted, and nothing that its request would have to be asked for
  bool speculates = false;  // `speculation` is there, and may have drafts
  // and its place among others (roster.h), in the next.
  uint64_t arrival = 0;
  double turn = 0;
  std::shared_ptr<TenantLoad> tenant;
  uint64_t asked_at = 0;           // starts of the engine when that was last asked; 0: not yet
  std::optional<Awaited> awaited;  // whose prefix it waits for

  GenerateRequest request;
  NamespaceKey key;
  std::vector<TokenId> prompt;              // of the next lease, which takes it over
  TokenCounts said;                         // prompt and reply, if something is penalised
  std::optional<TokenMask> before_minimum;  // what may be chosen until min_tokens, if that differs
  std::optional<TokenMask> allowed;         // by the constraint, for the next token
  std::deque<TokenId> forced;               // by the constraint, which has accepted them already
  bool slow = false;                        // the last mask took long
  std::shared_ptr<MaskAhead> ahead;         // the next mask, if it is made ahead of its step
  Status allowed_status;
  std::optional<Compaction> compaction;  // of its K/V, if asked for (its lease is then lossy)
  std::vector<TokenId> again;  // of such a one: the reply so far, to be run again when it starts

  std::unique_ptr<Speculation> speculation;
  std::unique_ptr<Sight> sight;  // of its pictures, if it has any

  int32_t adapted_from = 0;  // rows before are of the model without the adapter
  bool marked = false;       // the token there is the adapter's mark in the tokens of the lease

  // To start and compute what is known, as of when that was last asked.
  std::optional<size_t> bytes_wanted;
  bool looked_up = false;  // what is known of its prompt

  int64_t submit_ns = 0;
  int64_t look_up_ns = 0;  // spent on finding what is known of its prompts
  int64_t first_step_ns = 0;
  int64_t first_token_ns = 0;
  std::vector<GeneratedToken> prompt_scores;  // [prompt - 1], if asked for
  std::vector<double> pooled;                 // [dim], if asked for: the sum so far, or the last
  ReuseReport report;  // of the first start; what was stored: of all leases that have ended
  int32_t preemptions = 0;

  // Beside the others: every step walks those that run.
  static void* operator new(size_t) { return Slabs<Sequence>::Take(); }
  static void operator delete(void* place) { Slabs<Sequence>::Give(place); }

  // A mask that takes longer is made ahead of its step from then on.
  static constexpr double kSlowSeconds = 0.003;

  // Asks the constraint what may come next. On the filler's thread, beside the forward pass.
  void FillAllowed() {
    if (!forced.empty()) {
      allowed_status = OkStatus();
      allowed->Clear();
      allowed->Allow(forced.front());
      return;
    }
    const double begin = ThreadSeconds();
    allowed_status = request.constraint->Fill(&*allowed);
    slow = ThreadSeconds() - begin > kSlowSeconds;
    KeepMinimum();
  }
  // The same with the mask that was made ahead. REQUIRES: it is done.
  void TakeAhead() {
    std::swap(*allowed, ahead->mask);
    allowed_status = ahead->status;
    slow = ahead->seconds > kSlowSeconds;
    ahead = nullptr;
    KeepMinimum();
  }
  // Whether it waits for a mask.
  bool awaits_mask() const { return ahead != nullptr && !ahead->done; }

  // No end before the least number of tokens, as far as there is a choice.
  void KeepMinimum() {
    if (!before_minimum || generated >= request.min_tokens) return;
    TokenMask longer = *allowed;
    longer.And(*before_minimum);
    if (!longer.empty()) allowed = std::move(longer);
  }

  // Tells the constraint what was chosen.
  Status Accept(TokenId token) {
    if (!forced.empty()) {
      forced.pop_front();
    } else {
      REPRISE_TRY(request.constraint->Accept(token));
    }
    if (forced.empty()) Force();
    return OkStatus();
  }
  // Asks the constraint what must come next.
  void Force() {
    std::vector<TokenId> tokens;
    request.constraint->Force(&tokens);
    forced.assign(tokens.begin(), tokens.end());
  }

  // Brings near what every step looks at,
  void Prefetch() const {
    __builtin_prefetch(this);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 64);
  }
  // and what saying a token needs, for loops over many sequences.
  void PrefetchToSay() const {
    lease.PrefetchEnd();
    __builtin_prefetch(stream.get(), 1);
    __builtin_prefetch(reinterpret_cast<const char*>(stream.get()) + 64, 1);
  }
  // Whether steps need not look at what else may be asked for: logits, a vector, a constraint, K/V
  // to be left out, pictures, idle time,
  // progress.
  bool IsPlain() const {
    return request.max_tokens > 0 && !request.on_logits && request.pooling == Pooling::kNone &&
           !request.constraint && !compaction && !sight && !request.idle && !request.tell_progress;
  }
  // Whether a full queue may do without it: nothing of what was asked has run.
  bool displaceable() const { return preemptions == 0 && !request.continues; }
  int32_t rows_ready() const {
    return static_cast<int32_t>(lease.tokens().size()) - lease.computed();
  }
};

}  // namespace reprise
