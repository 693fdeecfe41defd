// SPDX-License-Identifier: Apache-2.0
#include "api/llamacpp/request.h"

#include "api/openai/output_rules.h"
#include "api/openai/params.h"

namespace reprise::api::llamacpp {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 30;

// What this server does not have, and the values that mean without it.
constexpr std::pair<const char*, double> kNeutral[] = {
    {"typical_p", 1},       {"mirostat", 0},     {"dynatemp_range", 0}, {"dry_multiplier", 0},
    {"xtc_probability", 0}, {"top_n_sigma", -1}, {"n_probs", 0},        {"t_max_predict_ms", 0},
    {"n_indent", 0},        {"min_keep", 0},     {"n_keep", 0}};
constexpr const char* kRefused[] = {"samplers", "lora", "image_data", "response_fields",
                                    "multimodal_data"};
constexpr const char* kOff[] = {"post_sampling_probs", "timings_per_token", "return_progress"};

bool IsEmpty(const JsonValue& value) {
  return (value.is_string() && value.as_string().empty()) ||
         (value.is_array() && value.items().empty());
}

void RefuseUnsupported(Fields* fields) {
  for (const auto& [name, neutral] : kNeutral) fields->Leave(name, neutral);
  for (const char* name : kRefused) {
    const JsonValue* value = fields->Find(name);
    if (value == nullptr || IsEmpty(*value)) continue;
    fields->Fail(name, "is not supported by this server");
  }
  for (const char* name : kOff) {
    bool on = false;
    fields->Read(name, &on);
    if (on) fields->Fail(name, "is not supported by this server");
  }
}

}  // namespace

CompletionRequest ReadCompletion(const ServiceOptions& options, int64_t vocab_size,
                                 Fields* fields) {
  CompletionRequest request;
  RefuseUnsupported(fields);
  fields->Read("stream", &request.stream);
  fields->Read("return_tokens", &request.return_tokens);
  openai::ReadReplyOptions(options, vocab_size, fields, &request.options);
  openai::ReadCacheControl(fields, &request.cache);
  openai::ReadAnswerRule(fields, &request.options.rule);
  if (request.options.choices != 1) fields->Fail("n", "must be 1");
  if (request.options.seed == UINT64_MAX) request.options.seed.reset();  // -1: a random one
  fields->Read("repeat_penalty", 0.01, 100.0, &request.options.sampling.repetition_penalty);
  int32_t tokens = -1;  // no limit
  fields->Read("n_predict", -1, kTokensMax, &tokens);
  if (tokens >= 0) request.options.max_tokens = tokens;
  return request;
}

}  // namespace reprise::api::llamacpp
