// SPDX-License-Identifier: Apache-2.0
#include "api/ops/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/chat/reply.h"
#include "api/service.h"

namespace reprise::api {
namespace {

// The bounds that vLLM's boards expect.
constexpr double kFirstTokenBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                        1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kTokenBounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                   .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
constexpr double kRequestBounds[] = {.01, .05, .1, .3, .5, .8, 1,  1.5, 2,   2.5, 5,
                                     10,  15,  20, 30, 40, 50, 60, 120, 240, 480, 960};
constexpr double kCountBounds[] = {1,    2,    5,     10,    20,    50,     100, 200, 500, 1000,
                                   2000, 5000, 10000, 20000, 50000, 100000, 2e5, 5e5, 1e6};

constexpr const char* kFinishNames[] = {"stop", "length", "stop", "tool_calls"};

class Page {
 public:
  explicit Page(std::string* out) : out_(*out) {}

  void Head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Number>
  void Line(std::string_view name, std::string_view labels, Number value) {
    if (labels.empty()) {
      out_ += fmt::format("{} {}\n", name, value);
    } else {
      out_ += fmt::format("{}{{{}}} {}\n", name, labels, value);
    }
  }
  template <typename Number>
  void Gauge(std::string_view name, std::string_view help, std::string_view labels, Number value) {
    Head(name, "gauge", help);
    Line(name, labels, value);
  }
  template <typename Number>
  void Counter(std::string_view name, std::string_view help, std::string_view labels,
               Number value) {
    Head(name, "counter", help);
    Line(name, labels, value);
  }
  void Add(const Histogram& histogram, const std::string& name, std::string_view help,
           const std::string& labels) {
    Head(name, "histogram", help);
    histogram.Write(name, labels, &out_);
  }

 private:
  std::string& out_;
};

// A label value: backslash, quote and newline escaped.
std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

template <typename Counts, typename Name>
void WriteReasons(Page* page, const std::string& metric, std::string_view help,
                  const Counts& counts, Name name_of) {
  page->Head(metric, "counter", help);
  for (size_t i = 0; i < counts.size(); ++i) {
    page->Line(metric, fmt::format("reason=\"{}\"", name_of(i)), counts[i]);
  }
}

}  // namespace

void Histogram::Add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(at - bounds_.begin())];
  sum_ += value;
}

void Histogram::Write(const std::string& name, const std::string& labels, std::string* out) const {
  const std::string comma = labels.empty() ? "" : ",";
  uint64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    *out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, bound, total);
  }
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  *out += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, braces, sum_, total);
}

Metrics::Metrics()
    : first_token_seconds_(kFirstTokenBounds),
      token_seconds_(kTokenBounds),
      total_seconds_(kRequestBounds),
      queue_seconds_(kRequestBounds),
      prefill_seconds_(kRequestBounds),
      decode_seconds_(kRequestBounds),
      prompt_tokens_(kCountBounds),
      generated_tokens_(kCountBounds) {}

void Metrics::Observe(const Completion& completion, StopKind stop) {
  const double first = completion.first_token_ms / 1000;
  const double total = completion.total_ms / 1000;
  const double queue = completion.queue_ms / 1000;
  std::lock_guard lock(mutex_);
  first_token_seconds_.Add(first);
  total_seconds_.Add(total);
  queue_seconds_.Add(queue);
  prefill_seconds_.Add(std::max(0.0, first - queue));
  decode_seconds_.Add(std::max(0.0, total - first));
  prompt_tokens_.Add(completion.prompt_tokens);
  generated_tokens_.Add(completion.generated_tokens);
  if (completion.generated_tokens > 1) {
    token_seconds_.Add((total - first) / (completion.generated_tokens - 1));
  }
  prompt_tokens_sum_ += static_cast<uint64_t>(completion.prompt_tokens);
  cached_tokens_sum_ += static_cast<uint64_t>(completion.report.used_tokens);
  generated_tokens_sum_ += static_cast<uint64_t>(completion.generated_tokens);
  ++finished_[static_cast<size_t>(stop)];
}

void Metrics::CountAnswer(int status) {
  if (status < 0 || status >= static_cast<int>(answers_.size())) return;
  std::lock_guard lock(mutex_);
  ++answers_[static_cast<size_t>(status)];
}

std::string Metrics::Format(Service* service) const {
  const EngineStats stats = service->engine().stats();
  std::string out;
  std::lock_guard lock(mutex_);
  WriteOwn(service, stats, &out);
  if (service->options().metrics_compat) WriteCompat(service, stats, &out);
  return out;
}

void Metrics::WriteOwn(Service* service, const EngineStats& stats, std::string* out) const {
  Page page(out);
  const CacheStats& cache = stats.cache;
  page.Gauge("reprise_info", "The model that is served.",
             fmt::format("model=\"{}\",family=\"{}\"", Escape(service->model().id),
                         Escape(service->model().family)),
             1);
  page.Gauge("reprise_requests_running", "Requests in the current steps.", "", stats.running);
  page.Gauge("reprise_requests_waiting", "Requests in the queue.", "", stats.waiting);
  page.Gauge("reprise_requests_idle", "Idle-time prefills at hand.", "", stats.idle);
  page.Head("reprise_requests_total", "counter", "Requests of the engine by how they ended.");
  page.Line("reprise_requests_total", "outcome=\"finished\"", stats.requests_finished);
  page.Line("reprise_requests_total", "outcome=\"cancelled\"", stats.requests_cancelled);
  page.Line("reprise_requests_total", "outcome=\"failed\"", stats.requests_failed);
  page.Line("reprise_requests_total", "outcome=\"refused\"", stats.requests_refused);
  page.Head("reprise_http_answers_total", "counter", "HTTP answers by status; 499: client gone.");
  for (size_t status = 0; status < answers_.size(); ++status) {
    if (answers_[status] == 0) continue;
    page.Line("reprise_http_answers_total", fmt::format("status=\"{}\"", status), answers_[status]);
  }
  page.Counter("reprise_engine_steps_total", "Forward passes.", "", stats.steps);
  page.Counter("reprise_engine_rows_total", "Tokens run through the model.", "", stats.rows);
  page.Counter("reprise_engine_rows_idle_total", "Of them in idle time.", "", stats.rows_idle);
  page.Counter("reprise_engine_busy_seconds_total", "Time inside forward passes.", "",
               stats.busy_ms / 1000);
  page.Counter("reprise_engine_preemptions_total", "Sequences sent back to the queue.", "",
               stats.preemptions);
  page.Counter("reprise_prompt_tokens_total", "Prompt tokens of requests.", "",
               cache.tokens_prompt);
  page.Counter("reprise_prompt_tokens_reused_total", "Of them read from the cache.", "",
               cache.tokens_reused);
  page.Counter("reprise_generated_tokens_total", "Tokens generated.", "", stats.tokens_generated);
  WriteReasons(&page, "reprise_cache_missed_tokens_total",
               "Prompt tokens that were computed, by the reason.", cache.tokens_missed,
               [](size_t i) { return NameOf(static_cast<MissReason>(i)); });
  WriteReasons(&page, "reprise_cache_snapshots_taken_total", "Snapshots, by where they were taken.",
               cache.snapshots_taken,
               [](size_t i) { return NameOf(static_cast<SnapshotReason>(i)); });
  WriteReasons(&page, "reprise_cache_snapshots_evicted_total", "Snapshots dropped, by the reason.",
               cache.snapshots_evicted,
               [](size_t i) { return NameOf(static_cast<EvictReason>(i)); });
  WriteReasons(&page, "reprise_cache_blocks_evicted_total", "K/V blocks dropped, by the reason.",
               cache.blocks_evicted, [](size_t i) { return NameOf(static_cast<EvictReason>(i)); });
  page.Counter("reprise_cache_snapshots_restored_total", "Snapshots read back.", "",
               cache.snapshots_restored);
  page.Head("reprise_cache_bytes", "gauge", "State memory by use.");
  page.Line("reprise_cache_bytes", "tier=\"memory\",use=\"running\"", cache.bytes_leased);
  page.Line("reprise_cache_bytes", "tier=\"memory\",use=\"cached\"", cache.bytes_cached);
  page.Line("reprise_cache_bytes", "tier=\"memory\",use=\"metadata\"", cache.bytes_metadata);
  page.Gauge("reprise_cache_snapshot_bytes", "Of the cached bytes: snapshots.", "tier=\"memory\"",
             cache.bytes_snapshots);
  page.Gauge("reprise_cache_budget_bytes", "State memory that may be used.", "tier=\"memory\"",
             cache.bytes_budget);
  page.Gauge("reprise_cache_snapshots", "Snapshots held.", "", cache.snapshots);
  page.Gauge("reprise_cache_nodes", "Nodes of the tree.", "", cache.nodes);
  page.Gauge("reprise_cache_tokens", "Tokens stored.", "", cache.tokens_stored);
  page.Gauge("reprise_cache_leases", "Leases held by requests.", "", cache.leases);
  page.Add(first_token_seconds_, "reprise_first_token_seconds", "Submission to first token.", "");
  page.Add(token_seconds_, "reprise_token_seconds", "Mean time between tokens of a request.", "");
  page.Add(total_seconds_, "reprise_request_seconds", "Submission to last token.", "");
  page.Add(queue_seconds_, "reprise_queue_seconds", "Submission to first step.", "");
}

void Metrics::WriteCompat(Service* service, const EngineStats& stats, std::string* out) const {
  Page page(out);
  const CacheStats& cache = stats.cache;
  const std::string labels =
      fmt::format("model_name=\"{}\",engine=\"0\"", Escape(service->model().id));
  const size_t used = cache.bytes_leased + cache.bytes_cached;
  const double usage = cache.bytes_budget > 0
                           ? static_cast<double>(used) / static_cast<double>(cache.bytes_budget)
                           : 0;
  page.Gauge("vllm:num_requests_running", "Requests running.", labels, stats.running);
  page.Gauge("vllm:num_requests_waiting", "Requests waiting.", labels, stats.waiting);
  page.Gauge("vllm:kv_cache_usage_perc", "State memory in use, 0 to 1.", labels, usage);
  page.Gauge("vllm:cache_config_info", "Blocks of 64 tokens.",
             fmt::format("{},block_size=\"64\",num_gpu_blocks=\"{}\"", labels,
                         cache.blocks_leased + cache.blocks_cached),
             1);
  page.Counter("vllm:prompt_tokens_total", "Prompt tokens.", labels, prompt_tokens_sum_);
  page.Counter("vllm:prompt_tokens_cached_total", "Prompt tokens reused.", labels,
               cached_tokens_sum_);
  page.Counter("vllm:generation_tokens_total", "Tokens generated.", labels, generated_tokens_sum_);
  page.Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up.", labels,
               cache.tokens_prompt);
  page.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found.", labels, cache.tokens_reused);
  page.Counter("vllm:num_preemptions_total", "Preemptions.", labels, stats.preemptions);
  page.Head("vllm:request_success_total", "counter", "Finished requests.");
  const uint64_t stop = finished_[0] + finished_[2];
  page.Line("vllm:request_success_total", labels + ",finished_reason=\"stop\"", stop);
  for (const size_t i : {size_t{1}, size_t{3}}) {
    page.Line("vllm:request_success_total",
              fmt::format("{},finished_reason=\"{}\"", labels, kFinishNames[i]), finished_[i]);
  }
  page.Add(first_token_seconds_, "vllm:time_to_first_token_seconds", "Time to first token.",
           labels);
  page.Add(token_seconds_, "vllm:inter_token_latency_seconds", "Time between tokens.", labels);
  page.Add(total_seconds_, "vllm:e2e_request_latency_seconds", "Whole request.", labels);
  page.Add(queue_seconds_, "vllm:request_queue_time_seconds", "Waiting.", labels);
  page.Add(prefill_seconds_, "vllm:request_prefill_time_seconds", "Prefill.", labels);
  page.Add(decode_seconds_, "vllm:request_decode_time_seconds", "Decode.", labels);
  page.Add(prompt_tokens_, "vllm:request_prompt_tokens", "Prompt tokens of a request.", labels);
  page.Add(generated_tokens_, "vllm:request_generation_tokens", "Tokens of a reply.", labels);
}

}  // namespace reprise::api
