// SPDX-License-Identifier: Apache-2.0
#include "api/ops/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/chat/reply.h"
#include "api/service.h"

namespace reprise::api {
namespace {

// The bounds that vLLM's boards expect; ours do with the same.
constexpr double kFirstTokenBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                        1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kTokenBounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                   .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
constexpr double kRequestBounds[] = {.01, .05, .1, .3, .5, .8, 1,  1.5, 2,   2.5, 5,
                                     10,  15,  20, 30, 40, 50, 60, 120, 240, 480, 960};
constexpr double kCountBounds[] = {1,    2,    5,     10,    20,    50,     100, 200, 500, 1000,
                                   2000, 5000, 10000, 20000, 50000, 100000, 2e5, 5e5, 1e6};

template <typename Counts, typename Name>
void WriteReasons(Exposition* page, const std::string& metric, std::string_view help,
                  const Counts& counts, Name name_of) {
  page->Head(metric, "counter", help);
  for (size_t i = 0; i < counts.size(); ++i) {
    page->Sample(metric, fmt::format("reason=\"{}\"", name_of(i)), counts[i]);
  }
}

// REQUIRES: follows reprise_cache_budget_bytes.
void WriteTier(Exposition* page, const TierStats& tier) {
  if (tier.bytes_max > 0) {
    page->Sample("reprise_cache_budget_bytes", fmt::format("tier=\"{}\"", tier.kind),
                 tier.bytes_max);
  }
  const auto name = [&](const char* what) { return fmt::format("reprise_{}_{}", tier.kind, what); };
  page->Gauge(name("records"), "Records in the tier.", "", tier.records);
  page->Gauge(name("queued_bytes"), "Bytes waiting to be written.", "", tier.bytes_queued);
  page->Gauge(name("failing"), "1 while the last read or write failed, else 0.", "",
              uint64_t{tier.failing});
  page->Counter(name("stores_total"), "Records written.", "", tier.stores);
  page->Counter(name("stores_failed_total"), "Records whose write failed.", "", tier.stores_failed);
  page->Counter(name("written_bytes_total"), "Bytes written.", "", tier.bytes_written);
  page->Counter(name("looks_total"), "Prompts looked up.", "", tier.looks);
  page->Counter(name("looks_failed_total"), "Lookups that failed or timed out.", "",
                tier.looks_failed);
  page->Counter(name("fetches_total"), "Prompts that started from state of this tier.", "",
                tier.fetches);
  page->Counter(name("fetches_failed_total"), "Reads that failed or found no usable record.", "",
                tier.fetches_failed);
  page->Counter(name("read_bytes_total"), "Bytes read to start prompts.", "", tier.bytes_read);
  page->Counter(name("read_seconds_total"), "Time that threads spent reading.", "",
                static_cast<double>(tier.fetch_ns) / 1e9);
  page->Counter(name("evicted_total"), "Records evicted to make room.", "", tier.evicted);
  page->Counter(name("damaged_total"), "Records found damaged.", "", tier.damaged);
}

void WriteDrafts(Exposition* page, const DraftCounts& drafts) {
  const auto each = [&](const char* name, uint64_t DraftCount::*count) {
    for (size_t i = 0; i < drafts.size(); ++i) {
      page->Sample(name, fmt::format("source=\"{}\"", NameOf(static_cast<Drafts>(i))),
                   drafts[i].*count);
    }
  };
  page->Head("reprise_drafts_total", "counter", "Draft tokens run, by drafter.");
  each("reprise_drafts_total", &DraftCount::run);
  page->Head("reprise_drafts_accepted_total", "counter", "Draft tokens accepted, by drafter.");
  each("reprise_drafts_accepted_total", &DraftCount::accepted);
}

}  // namespace

Metrics::Metrics()
    : first_token_seconds_(kFirstTokenBounds),
      token_seconds_(kTokenBounds),
      total_seconds_(kRequestBounds),
      queue_seconds_(kRequestBounds),
      prefill_seconds_(kRequestBounds),
      decode_seconds_(kRequestBounds),
      inference_seconds_(kRequestBounds),
      prompt_tokens_(kCountBounds),
      generated_tokens_(kCountBounds) {}

void Metrics::Observe(const Completion& completion, StopKind stop) {
  const double first = completion.first_token_ms / 1000;
  const double total = completion.total_ms / 1000;
  const double queue = completion.queue_ms / 1000;
  std::lock_guard lock(mutex_);
  if (completion.generated_tokens > 0) first_token_seconds_.Add(first);
  total_seconds_.Add(total);
  queue_seconds_.Add(queue);
  prefill_seconds_.Add(std::max(0.0, first - queue));
  decode_seconds_.Add(std::max(0.0, total - first));
  inference_seconds_.Add(std::max(0.0, total - queue));
  prompt_tokens_.Add(completion.prompt_tokens);
  generated_tokens_.Add(completion.generated_tokens);
  if (completion.generated_tokens > 1) {
    token_seconds_.Add((total - first) / (completion.generated_tokens - 1));
  }
  prompt_tokens_sum_ += static_cast<uint64_t>(completion.prompt_tokens);
  cached_tokens_sum_ += static_cast<uint64_t>(completion.report.used_tokens);
  generated_tokens_sum_ += static_cast<uint64_t>(completion.generated_tokens);
  ++(stop == StopKind::kLength ? finished_length_ : finished_stop_);
}

void Metrics::CountAnswer(int status) {
  if (status < 0 || status >= static_cast<int>(answers_.size())) return;
  std::lock_guard lock(mutex_);
  ++answers_[static_cast<size_t>(status)];
}

std::string Metrics::FormatOwn(Service* service) const {
  const EngineStats stats = service->engine().stats();
  std::string out;
  Exposition page(&out);
  std::lock_guard lock(mutex_);
  const CacheStats& cache = stats.cache;
  page.Gauge("reprise_info", "The model that is served.",
             fmt::format("model=\"{}\",family=\"{}\"", EscapeLabel(service->model().id),
                         EscapeLabel(service->model().family)),
             1);
  page.Gauge("reprise_requests_running", "Requests in the current steps.", "", stats.running);
  page.Gauge("reprise_requests_waiting", "Requests in the queue.", "", stats.waiting);
  page.Gauge("reprise_requests_idle", "Prefills waiting for idle time.", "", stats.idle);
  page.Head("reprise_requests_total", "counter",
            "Client requests by outcome; cancelled: the client left, or a stop string "
            "ended the reply.");
  page.Sample("reprise_requests_total", "outcome=\"finished\"", stats.requests_finished);
  page.Sample("reprise_requests_total", "outcome=\"cancelled\"", stats.requests_cancelled);
  page.Sample("reprise_requests_total", "outcome=\"failed\"", stats.requests_failed);
  page.Sample("reprise_requests_total", "outcome=\"refused\"", stats.requests_refused);
  page.Head("reprise_idle_prefills_total", "counter",
            "Idle-time prefills of expected next turns, by outcome.");
  page.Sample("reprise_idle_prefills_total", "outcome=\"finished\"", stats.idle_finished);
  page.Sample("reprise_idle_prefills_total", "outcome=\"dropped\"", stats.idle_dropped);
  page.Head("reprise_http_answers_total", "counter",
            "HTTP responses by status; 499: the client left.");
  for (size_t status = 0; status < answers_.size(); ++status) {
    if (answers_[status] == 0) continue;
    page.Sample("reprise_http_answers_total", fmt::format("status=\"{}\"", status),
                answers_[status]);
  }
  page.Counter("reprise_engine_steps_total", "Forward passes.", "", stats.steps);
  page.Counter("reprise_engine_rows_total", "Tokens run through the model.", "", stats.rows);
  page.Counter("reprise_engine_rows_idle_total", "Tokens run through the model in idle time.", "",
               stats.rows_idle);
  page.Counter("reprise_engine_busy_seconds_total", "Time inside forward passes.", "",
               stats.busy_ms / 1000);
  page.Counter("reprise_engine_preemptions_total", "Sequences sent back to the queue.", "",
               stats.preemptions);
  page.Counter("reprise_prompt_tokens_total", "Prompt tokens of requests.", "",
               cache.tokens_prompt);
  page.Counter("reprise_prompt_tokens_reused_total", "Prompt tokens read from the cache.", "",
               cache.tokens_reused);
  page.Counter("reprise_generated_tokens_total", "Tokens generated.", "", stats.tokens_generated);
  WriteDrafts(&page, stats.drafts);
  WriteReasons(&page, "reprise_cache_missed_tokens_total",
               "Prompt tokens computed, by reason of the cache miss.", cache.tokens_missed,
               [](size_t i) { return NameOf(static_cast<MissReason>(i)); });
  WriteReasons(&page, "reprise_cache_snapshots_taken_total", "Snapshots taken, by reason.",
               cache.snapshots_taken,
               [](size_t i) { return NameOf(static_cast<SnapshotReason>(i)); });
  WriteReasons(&page, "reprise_cache_snapshots_evicted_total", "Snapshots evicted, by reason.",
               cache.snapshots_evicted,
               [](size_t i) { return NameOf(static_cast<EvictReason>(i)); });
  WriteReasons(&page, "reprise_cache_blocks_evicted_total", "K/V blocks evicted, by reason.",
               cache.blocks_evicted, [](size_t i) { return NameOf(static_cast<EvictReason>(i)); });
  page.Counter("reprise_cache_snapshots_restored_total", "Snapshots restored.", "",
               cache.snapshots_restored);
  page.Counter("reprise_snapkv_compactions_total", "SnapKV compactions of running requests.", "",
               cache.compactions);
  page.Counter("reprise_snapkv_tokens_dropped_total", "K/V rows dropped by SnapKV.", "",
               cache.tokens_left_out);
  page.Counter("reprise_snapkv_bytes_freed_total", "K/V bytes freed by SnapKV.", "",
               cache.bytes_left_out);
  page.Head("reprise_cache_bytes", "gauge", "State memory by use.");
  page.Sample("reprise_cache_bytes", "tier=\"memory\",use=\"running\"", cache.bytes_leased);
  page.Sample("reprise_cache_bytes", "tier=\"memory\",use=\"cached\"", cache.bytes_cached);
  page.Sample("reprise_cache_bytes", "tier=\"memory\",use=\"metadata\"", cache.bytes_metadata);
  for (const TierStats& tier : cache.tiers) {
    if (!tier.present()) continue;
    page.Sample("reprise_cache_bytes", fmt::format("tier=\"{}\",use=\"cached\"", tier.kind),
                tier.bytes);
  }
  page.Gauge("reprise_cache_snapshot_bytes", "Bytes of cached snapshots.", "tier=\"memory\"",
             cache.bytes_snapshots);
  page.Gauge("reprise_cache_budget_bytes", "Budget of state memory.", "tier=\"memory\"",
             cache.bytes_budget);
  for (const TierStats& tier : cache.tiers) {
    if (tier.present()) WriteTier(&page, tier);
  }
  page.Gauge("reprise_cache_snapshots", "Snapshots held.", "", cache.snapshots);
  page.Gauge("reprise_cache_nodes", "Nodes of the tree.", "", cache.nodes);
  page.Gauge("reprise_cache_tokens", "Tokens stored.", "", cache.tokens_stored);
  page.Gauge("reprise_cache_leases", "Leases held by requests.", "", cache.leases);
  page.Add("reprise_first_token_seconds", "Submission to first token.", "", first_token_seconds_);
  page.Add("reprise_token_seconds", "Mean time between tokens of a request.", "", token_seconds_);
  page.Add("reprise_request_seconds", "Submission to last token.", "", total_seconds_);
  page.Add("reprise_queue_seconds", "Submission to first step.", "", queue_seconds_);
  return out;
}

}  // namespace reprise::api
