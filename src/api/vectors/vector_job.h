// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "api/errors.h"
#include "api/service.h"
#include "api/tenants.h"
#include "http/exchange.h"

namespace reprise::api {

// Texts whose vectors are wanted.
struct VectorJob {
  std::vector<std::vector<TokenId>> texts;
  Pooling pooling = Pooling::kNone;
  const Tenant* tenant = nullptr;
  std::shared_ptr<const Adapter> adapter;  // that changes the model; null: none does
  // Tokens with which all texts begin: computed once, and kept. What follows is not: texts to embed
  // would fill the cache and seldom come again.
  size_t shared_tokens = 0;
};

struct VectorUsage {
  int64_t tokens = 0;
  int64_t cached_tokens = 0;
  double total_ms = 0;
};

// Hears of the vectors, on the server thread: each once, in any order, then OnDone. Vectors are as
// long as the model made them. An error is answered in its place.
class VectorSink {
 public:
  virtual ~VectorSink() = default;
  virtual void OnVector(size_t index, std::vector<float> vector) = 0;
  virtual void OnDone(const VectorUsage& usage) = 0;
};

// Floats that the answer to one request may have.
inline constexpr size_t kVectorFloatsMax = size_t{1} << 22;

// Sends the texts to the engine, as many at a time as it computes side by side. A client that
// leaves ends it. Fails at once if a text is too long, or all together are too many.
std::optional<ApiError> StartVectors(Service* service, const http::ExchangePtr& exchange,
                                     VectorJob job, std::unique_ptr<VectorSink> sink);

}  // namespace reprise::api
