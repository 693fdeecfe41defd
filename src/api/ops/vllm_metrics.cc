// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "api/ops/metrics.h"
#include "api/service.h"

namespace reprise::api {

std::string Metrics::FormatVllm(Service* service) const {
  const EngineStats stats = service->engine().stats();
  const CacheStats& cache = stats.cache;
  const ServedModel& model = service->model();
  const std::string labels = fmt::format("model_name=\"{}\",engine=\"0\"", EscapeLabel(model.id));
  std::string out;
  Exposition page(&out);
  std::lock_guard lock(mutex_);
  page.Gauge("vllm:num_requests_running", "Requests running.", labels, stats.running);
  page.Gauge("vllm:num_requests_waiting", "Requests waiting.", labels, stats.waiting);
  // What is only remembered counts as free, as it does there: it makes room when room is needed. A
  // gateway that saw it as used would send nothing to a server with a full cache.
  page.Gauge("vllm:kv_cache_usage_perc", "State memory that requests hold, 0 to 1.", labels,
             cache.bytes_budget == 0 ? 0.0
                                     : static_cast<double>(cache.bytes_leased) /
                                           static_cast<double>(cache.bytes_budget));
  page.Gauge("vllm:cache_config_info", "K/V blocks of 64 tokens that the budget could hold.",
             fmt::format("{},block_size=\"64\",num_gpu_blocks=\"{}\"", labels,
                         model.kv_block_bytes == 0 ? 0 : cache.bytes_budget / model.kv_block_bytes),
             1);
  page.Counter("vllm:prompt_tokens_total", "Prompt tokens.", labels, prompt_tokens_sum_);
  page.Counter("vllm:prompt_tokens_cached_total", "Prompt tokens reused.", labels,
               cached_tokens_sum_);
  page.Counter("vllm:generation_tokens_total", "Tokens generated.", labels, generated_tokens_sum_);
  page.Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up.", labels,
               cache.tokens_prompt);
  page.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found.", labels, cache.tokens_reused);
  page.Counter("vllm:num_preemptions_total", "Preemptions.", labels, stats.preemptions);
  const auto finished = [&](const char* reason, uint64_t count) {
    page.Sample("vllm:request_success_total",
                fmt::format("{},finished_reason=\"{}\"", labels, reason), count);
  };
  page.Head("vllm:request_success_total", "counter", "Finished requests, by reason.");
  finished("stop", finished_stop_);
  finished("length", finished_length_);
  finished("error", stats.requests_failed);
  page.Add("vllm:time_to_first_token_seconds", "Time to first token.", labels,
           first_token_seconds_);
  page.Add("vllm:inter_token_latency_seconds", "Time between tokens.", labels, token_seconds_);
  page.Add("vllm:e2e_request_latency_seconds", "Whole request.", labels, total_seconds_);
  page.Add("vllm:request_queue_time_seconds", "Waiting.", labels, queue_seconds_);
  page.Add("vllm:request_prefill_time_seconds", "Prefill.", labels, prefill_seconds_);
  page.Add("vllm:request_decode_time_seconds", "Decode.", labels, decode_seconds_);
  page.Add("vllm:request_inference_time_seconds", "Prefill and decode.", labels,
           inference_seconds_);
  page.Add("vllm:request_prompt_tokens", "Prompt tokens of a request.", labels, prompt_tokens_);
  page.Add("vllm:request_generation_tokens", "Reply tokens.", labels, generated_tokens_);
  return out;
}

}  // namespace reprise::api
