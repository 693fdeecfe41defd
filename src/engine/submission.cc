// SPDX-License-Identifier: Apache-2.0
// Engine: what callers ask for, on their own threads. What takes time for a long prompt is done
// here, so that the engine's thread does not.
#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "model/adapter/adapter.h"
#include "state/virtual_tokens.h"

namespace reprise {
namespace {

// The prompt, with room for the longest reply behind it, so that it never moves: copied, and
// touched as far as replies usually come, on the caller's thread, so that the engine's does
// neither.
std::vector<TokenId> PromptWithRoom(const GenerateRequest& request, int32_t context_tokens) {
  constexpr size_t kUsualTokens = 4096;
  const size_t known = request.prompt.size();
  const size_t reply = std::min(static_cast<size_t>(request.max_tokens),
                                static_cast<size_t>(context_tokens) - known);
  std::vector<TokenId> tokens;
  tokens.reserve(known + reply);
  tokens.assign(request.prompt.begin(), request.prompt.end());
  tokens.resize(known + std::min(reply, kUsualTokens));
  tokens.resize(known);
  return tokens;
}

}  // namespace

Status Engine::Check(const GenerateRequest& request) const {
  const ModelCard& card = executor_.card();
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty");
  if (request.max_tokens < 0) return InvalidArgument("max_tokens must not be negative");
  const size_t room = static_cast<size_t>(context_tokens_) - (request.max_tokens > 0 ? 1 : 0);
  if (request.prompt.size() > room) {
    return InvalidArgument("the prompt has " + std::to_string(request.prompt.size()) +
                           " tokens, but the context holds " + std::to_string(context_tokens_) +
                           "; shorten it or serve the model with a larger context");
  }
  if (request.pooling != Pooling::kNone) {
    if (card.dim == 0) return InvalidArgument("this model gives no vectors of texts");
    if (request.max_tokens > 0) return InvalidArgument("a vector comes without a reply");
  }
  if (request.snapkv && !request.snapkv->off()) {
    REPRISE_TRY(CheckSnapKv(card.state, *request.snapkv));
    if (!executor_.keeps()) {
      return InvalidArgument("snapkv is not supported on this device; serve with --device cpu");
    }
  }
  const bool sees = !request.pictures.empty();
  if (sees) REPRISE_TRY(CheckPictures(request.prompt, request.pictures));
  if (sees && card.whole_pictures && request.snapkv && !request.snapkv->off()) {
    return InvalidArgument("snapkv is not supported with pictures of this model");
  }
  if (sees && request.prompt_logprobs >= 0) {
    return InvalidArgument("log probabilities of a prompt with pictures are not supported");
  }
  for (const TokenId token : request.prompt) {
    if (sees && IsVirtual(token)) continue;
    if (token < 0 || token >= card.vocab_size) {
      return InvalidArgument("the prompt contains token " + std::to_string(token) +
                             ", which the vocabulary does not have");
    }
  }
  return Validate(request.sampling, card.vocab_size);
}

Result<std::shared_ptr<TokenStream>> Engine::Submit(GenerateRequest request) {
  REPRISE_TRY(Check(request));
  const ModelCard& card = executor_.card();
  if (request.pooling == Pooling::kMean) request.cache_read = false;
  std::erase_if(request.end_tokens,
                [&](TokenId token) { return token < 0 || token >= card.vocab_size; });
  MergeBiases(&request.sampling);

  auto sequence = std::make_unique<Sequence>();
  if (request.sampling.penalises()) {
    // A picture says nothing that could be repeated.
    std::vector<TokenId> words = request.prompt;
    std::erase_if(words, IsVirtual);
    sequence->said.AddPrompt(words);
  }
  if (!request.pictures.empty()) sequence->sight = std::make_unique<Sight>(request.pictures);
  if (request.min_tokens > 0 && !request.end_tokens.empty()) {
    sequence->before_minimum.emplace(static_cast<size_t>(card.vocab_size));
    for (const TokenId token : request.end_tokens) sequence->before_minimum->Forbid(token);
  }
  if (request.constraint) {
    sequence->allowed.emplace(static_cast<size_t>(card.vocab_size), /*all=*/false);
  }
  sequence->prompt = PromptWithRoom(request, context_tokens_);
  Activate(&request, sequence.get());
  const bool whole = request.adapter && !sequence->marked;
  const std::string& digest = whole ? request.adapter->digest() : card.digest;
  sequence->key = {digest, request.salt};
  sequence->request = std::move(request);
  if (sequence->request.constraint) sequence->Force();
  if (sequence->request.prompt_logprobs >= 0) ScorePrompt(*sequence);
  PrepareCompaction(*sequence);
  PrepareSpeculation(*sequence);
  sequence->plain = sequence->IsPlain();
  sequence->arrival = ++arrivals_;
  sequence->stream =
      std::allocate_shared<TokenStream>(SlabAllocator<TokenStream>(), cancels_, sequence->arrival);
  sequence->submit_ns = clock_.NowNs();
  std::shared_ptr<TokenStream> stream = sequence->stream;
  std::vector<std::vector<TokenId>> waste;  // is freed here, without the lock
  {
    std::lock_guard lock(mutex_);
    waste.swap(waste_);
    const bool idle = sequence->request.idle;
    if (stop_) return FailedPrecondition("the engine is shutting down");
    if (!idle && !TakePlaceInQueue(sequence->request)) {
      ++refused_;
      return ResourceExhausted("too many requests are waiting (" +
                               std::to_string(options_.waiting_max) + "); try again later");
    }
    inbox_.sequences.push_back(std::move(sequence));
  }
  work_.notify_one();
  return stream;
}

// Before the tokens that invoke an adapter state is the model's, and shared with whoever has it.
// What stands for the first of them in the names of state goes on from there, as nobody else does.
void Engine::Activate(GenerateRequest* request, Sequence* sequence) {
  if (!request->adapter || request->adapter->invocation().empty()) return;
  const std::optional<int32_t> from = request->adapter->CountsFrom(request->prompt);
  if (!from) {
    request->adapter = nullptr;
    return;
  }
  sequence->adapted_from = *from;
  sequence->marked = true;
  sequence->prompt[static_cast<size_t>(*from)] = request->adapter->mark();
}

// Only a reply makes use of it: what a prompt leaves behind is exact.
void Engine::PrepareCompaction(Sequence& sequence) const {
  const GenerateRequest& request = sequence.request;
  SnapKv options = request.snapkv.value_or(options_.snapkv);
  if (options.off() || request.max_tokens == 0 || request.idle) return;
  options.redecode = options_.snapkv.redecode;
  sequence.compaction = Compaction::Make(executor_.card().state, options,
                                         static_cast<int32_t>(request.prompt.size()));
}

// A full queue still has a place for a tenant that has less than its share of it: the last request
// of one that has more makes way (DropSurplus). Under the lock.
bool Engine::TakePlaceInQueue(const GenerateRequest& request) {
  TenantLoad& load = queued_[request.tenant];
  load.weight = std::max(1, request.tenant_weight);
  int64_t weights = 0;
  int32_t waiting = 0;
  TenantLoad* most = &load;
  for (auto& [name, other] : queued_) {
    waiting += other.waiting;
    if (other.waiting > 0 || &other == &load) weights += other.weight;
    if (int64_t{other.waiting} * most->weight > int64_t{most->waiting} * other.weight) {
      most = &other;
    }
  }
  if (waiting >= options_.waiting_max && !request.continues) {
    if (load.waiting >= ShareOf(options_.waiting_max, load.weight, weights)) return false;
    if (most == &load) return false;
    --most->waiting;
  }
  ++load.waiting;
  return true;
}

// The logits before each token of the prompt say how likely it was.
void Engine::ScorePrompt(Sequence& sequence) {
  sequence.request.cache_read = false;
  sequence.prompt_scores.resize(sequence.request.prompt.size() - 1);
  sequence.request.on_logits = [this, &sequence, more = std::move(sequence.request.on_logits)](
                                   int32_t position, std::span<const float> logits) {
    const size_t at = static_cast<size_t>(position);
    if (at < sequence.prompt_scores.size()) {
      const TokenId token = sequence.request.prompt[at + 1];
      Sampled scored = sampler_.Score(logits, token, sequence.request.prompt_logprobs);
      sequence.prompt_scores[at] = {scored.chosen, std::move(scored.top)};
    }
    if (more) more(position, logits);
  };
}

void Engine::Sleep(std::function<void()> asleep) {
  Post([this, asleep = std::move(asleep)](StateCache&) {
    if (!sleeping_) asleep_ = asleep;
  });
}

void Engine::Wake(std::function<void()> awake) {
  Post([this, awake = std::move(awake)](StateCache&) {
    asleep_ = nullptr;
    sleeping_ = false;
    awake();
  });
}

void Engine::Post(std::function<void(StateCache&)> task) {
  {
    std::lock_guard lock(mutex_);
    inbox_.tasks.push_back(std::move(task));
  }
  work_.notify_one();
}

}  // namespace reprise
