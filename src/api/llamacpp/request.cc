// SPDX-License-Identifier: Apache-2.0
#include "api/llamacpp/request.h"

#include "api/openai/output_rules.h"
#include "api/openai/params.h"
#include "api/unsupported.h"

namespace reprise::api::llamacpp {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 30;

}  // namespace

CompletionRequest ReadCompletion(const ServiceOptions& options, int64_t vocab_size,
                                 Fields* fields) {
  CompletionRequest request;
  fields->Read("stream", &request.stream);
  fields->Read("return_tokens", &request.return_tokens);
  openai::ReadReplyOptions(options, vocab_size, fields, &request.options);
  openai::ReadCacheControl(fields, &request.cache);
  openai::ReadAnswerRule(fields, &request.options.rule);
  if (request.options.choices != 1) fields->Fail("n", "must be 1");
  if (request.options.seed == UINT64_MAX) request.options.seed.reset();  // -1: a random one
  CheckPenaltyWindow(fields);
  fields->Read("repeat_penalty", 0.01, 100.0, &request.options.sampling.repetition_penalty);
  int32_t tokens = -1;  // no limit
  fields->Read("n_predict", -1, kTokensMax, &tokens);
  if (tokens >= 0) request.options.max_tokens = tokens;
  return request;
}

}  // namespace reprise::api::llamacpp
