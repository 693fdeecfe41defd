// SPDX-License-Identifier: Apache-2.0
#include "api/vectors/vector_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "api/chat/reply.h"
#include "api/ops/cache_feed.h"
#include "api/ops/metrics.h"
#include "api/vectors/texts.h"

namespace reprise::api {
namespace {

// Fewer tokens than this are not worth a request of their own.
constexpr size_t kSharedTokensMin = 32;

// Of a vector's element: as text, and once more in the answer.
constexpr size_t kFloatBytes = 24;

// A job under way: a window that moves over its texts.
class Vectors : public std::enable_shared_from_this<Vectors> {
 public:
  Vectors(Service* service, http::ExchangePtr exchange, VectorJob job,
          std::unique_ptr<VectorSink> sink)
      : service_(*service),
        exchange_(std::move(exchange)),
        job_(std::move(job)),
        sink_(std::move(sink)),
        begun_ms_(service->clock().NowMs()) {}

  void Start() {
    exchange_->OnClose([self = shared_from_this()] { self->End(); });
    exchange_->Post([self = shared_from_this()] {
      if (self->job_.shared_tokens >= kSharedTokensMin) self->SubmitShared();
      self->Pump();
    });
  }

 private:
  struct Running {
    size_t index = 0;  // kShared: no text
    std::shared_ptr<TokenStream> stream;
  };
  static constexpr size_t kShared = SIZE_MAX;

  void SubmitShared();
  bool Submit(size_t index, GenerateRequest request);
  void Wake();
  void Pump();
  void Take(size_t index, Completion completion);
  void Fail(const ApiError& error);
  void End();

  Service& service_;
  const http::ExchangePtr exchange_;
  VectorJob job_;
  const std::unique_ptr<VectorSink> sink_;
  const int64_t begun_ms_;
  std::vector<Running> running_;
  size_t next_ = 0;  // text to submit
  VectorUsage usage_;
  std::atomic<bool> woken_{false};
  bool over_ = false;
};

void Vectors::SubmitShared() {
  const std::vector<TokenId>& text = job_.texts.front();
  GenerateRequest request;
  request.prompt.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(job_.shared_tokens));
  request.boundaries = {{static_cast<int32_t>(job_.shared_tokens), BoundaryKind::kSystem}};
  Submit(kShared, std::move(request));
}

bool Vectors::Submit(size_t index, GenerateRequest request) {
  request.tenant = job_.tenant->name;
  request.tenant_weight = job_.tenant->weight;
  request.salt = job_.tenant->Namespace("");
  request.adapter = job_.adapter;
  auto stream = service_.engine().Submit(std::move(request));
  if (!stream.ok()) {
    // A queue that is full for the moment is waited for, as long as something of this job runs.
    const bool full = stream.status().code() == StatusCode::kResourceExhausted;
    if (!full || running_.empty()) Fail(ApiError::FromEngine(stream.status()));
    return false;
  }
  (*stream)->SetNotify([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Wake();
  });
  running_.push_back({index, std::move(*stream)});
  Wake();  // it may have been done before it could say so
  return true;
}

// From the engine thread: something is new.
void Vectors::Wake() {
  if (woken_.exchange(true)) return;
  exchange_->Post([self = shared_from_this()] {
    self->woken_ = false;
    self->Pump();
  });
}

void Vectors::Pump() {
  for (size_t i = 0; i < running_.size() && !over_;) {
    auto completion = running_[i].stream->Poll().completion;
    if (!completion) {
      ++i;
      continue;
    }
    const size_t index = running_[i].index;
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    Take(index, std::move(*completion));
  }
  const size_t window = static_cast<size_t>(std::max(1, service_.options().slot_count));
  while (!over_ && next_ < job_.texts.size() && running_.size() < window) {
    GenerateRequest request;
    request.prompt = job_.texts[next_];
    request.pooling = job_.pooling;
    request.cache_write = false;
    if (!Submit(next_, std::move(request))) break;
    job_.texts[next_++] = {};
  }
  if (over_ || !running_.empty() || next_ < job_.texts.size()) return;
  over_ = true;
  usage_.total_ms = static_cast<double>(service_.clock().NowMs() - begun_ms_);
  service_.feed().Wake();
  sink_->OnDone(usage_);
}

void Vectors::Take(size_t index, Completion completion) {
  if (completion.reason == FinishReason::kFailed) {
    return Fail(ApiError::FromEngine(completion.status));
  }
  if (completion.reason == FinishReason::kCancelled) {
    return Fail({503, "the server is shutting down; try another one"});
  }
  service_.metrics().Observe(completion, StopKind::kEnd);
  if (index == kShared) return;
  if (job_.tenant->quota) {
    job_.tenant->quota->Spend(completion.prompt_tokens - completion.report.used_tokens,
                              service_.clock().NowMs());
  }
  usage_.tokens += completion.prompt_tokens;
  usage_.cached_tokens += completion.report.used_tokens;
  sink_->OnVector(index, std::move(completion.vector));
}

void Vectors::Fail(const ApiError& error) {
  End();
  exchange_->Respond(ErrorResponse(error, &exchange_->request()));
}

void Vectors::End() {
  over_ = true;
  for (const Running& running : running_) running.stream->Cancel();
}

}  // namespace

std::optional<ApiError> StartVectors(Service* service, const http::ExchangePtr& exchange,
                                     VectorJob job, std::unique_ptr<VectorSink> sink) {
  const ServedModel& model = service->model();
  if (job.texts.size() * static_cast<size_t>(model.dim) > kVectorFloatsMax) {
    return ApiError{400, fmt::format("one request may have at most {} texts for this model",
                                     kVectorFloatsMax / static_cast<size_t>(model.dim))};
  }
  for (const std::vector<TokenId>& text : job.texts) {
    const int64_t tokens = int64_t(text.size());
    if (tokens > model.context_tokens) return vectors::TextTooLong(model, tokens);
  }
  if (job.tenant->quota) {
    const auto refused = job.tenant->quota->Begin(service->clock().NowMs());
    if (refused) return ApiError::OverQuota(*refused);
  }
  const Status room = exchange->account()->TakeAnswer(
      job.texts.size() * static_cast<size_t>(model.dim) * kFloatBytes, "the vectors");
  if (!room.ok()) return ApiError::From(room);
  std::make_shared<Vectors>(service, exchange, std::move(job), std::move(sink))->Start();
  return std::nullopt;
}

}  // namespace reprise::api
