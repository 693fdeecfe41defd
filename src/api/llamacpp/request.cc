// SPDX-License-Identifier: Apache-2.0
#include "api/llamacpp/request.h"

#include "api/fields/unsupported.h"
#include "api/openai/output_rules.h"
#include "api/openai/params.h"

namespace reprise::api::llamacpp {

CompletionRequest ReadCompletion(const ServiceOptions& options, int64_t vocab_size,
                                 Fields* fields) {
  CompletionRequest request;
  fields->SetDialect(Dialect::kLlamaCpp);
  fields->Read("stream", &request.stream);
  fields->Read("return_tokens", &request.return_tokens);
  fields->Read("return_progress", &request.return_progress);
  openai::ReadReplyOptions(options, vocab_size, fields, &request.options);
  openai::ReadCacheControl(fields, &request.cache);
  openai::ReadAnswerRule(fields, &request.options.rule);
  if (request.options.choices != 1) fields->Fail("n", "must be 1");
  if (request.options.seed == UINT64_MAX) request.options.seed.reset();  // -1: a random one
  CheckPenaltyWindow(fields);
  return request;
}

}  // namespace reprise::api::llamacpp
