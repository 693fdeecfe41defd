// SPDX-License-Identifier: Apache-2.0
#include "api/ops/cache_view.h"

#include <algorithm>
#include <utility>

#include "base/json_writer.h"

namespace reprise::api::ops {
namespace {

template <typename Counts, typename Name>
void WriteCounts(const char* key, const Counts& counts, Name name_of, JsonWriter* json) {
  json->Key(key).BeginObject();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) json->Member(name_of(i), uint64_t{counts[i]});
  }
  json->EndObject();
}

// The tree as a list: parents before children.
void WriteTree(const Tokenizer& tokenizer, const CacheView& view, JsonWriter* json) {
  json->Key("tree").BeginObject().Member("truncated", view.truncated).Key("nodes").BeginArray();
  std::vector<int64_t> path;  // the last node seen at each depth
  for (const TreeNodeView& node : view.nodes) {
    const size_t depth = static_cast<size_t>(node.depth);
    path.resize(depth + 1, -1);
    path[depth] = node.id;
    json->BeginObject().Member("id", uint64_t{node.id}).Key("parent");
    depth == 0 ? json->Null() : json->Int(path[depth - 1]);
    json->Member("depth", node.depth).Member("begin", node.begin).Member("end", node.end);
    json->Member("tokens", node.end - node.begin).Member("kv_end", node.kv_end);
    json->Member("lit_end", node.lit_end);
    json->Key("snapshots").BeginArray();
    for (const int32_t position : node.snapshots) json->Int(position);
    json->EndArray().Member("leased", node.leased).Member("idle_ms", node.idle_ms);
    json->Member("text", tokenizer.Decode(node.head, true));
    json->Member("text_tokens", uint64_t{node.head.size()}).EndObject();
  }
  json->EndArray().EndObject();
}

void WriteReports(const std::deque<ReportLog::Entry>& reports, JsonWriter* json) {
  json->Key("reports").BeginArray();
  for (const ReportLog::Entry& entry : reports) {
    json->BeginObject().Member("request_id", entry.request_id).Member("time_ms", entry.time_ms);
    json->Key("reprise").Raw(entry.report).EndObject();
  }
  json->EndArray();
}

// Of all that the picture shows, so not of idle_ms. Never 0.
uint64_t HashTree(const CacheView& view) {
  uint64_t hash = view.truncated ? 2 : 1;
  const auto add = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (const TreeNodeView& node : view.nodes) {
    for (const int64_t value :
         {int64_t{node.id}, int64_t{node.depth}, int64_t{node.begin}, int64_t{node.end},
          int64_t{node.kv_end}, int64_t{node.lit_end}, int64_t{node.leased}}) {
      add(value);
    }
    for (const int32_t position : node.snapshots) add(position);
    for (const TokenId token : node.head) add(token);
  }
  return std::max<uint64_t>(hash, 1);
}

// Another bar of the budget, and what there is to say of a lower tier besides.
void WriteTier(const TierStats& tier, JsonWriter* json) {
  json->BeginObject().Member("tier", tier.kind).Member("bytes", tier.bytes_max);
  json->Member("running_bytes", 0).Member("cached_bytes", tier.bytes);
  json->Member("metadata_bytes", 0).Member("snapshot_bytes", 0);
  json->Member("records", tier.records).Member("queued_bytes", tier.bytes_queued);
  json->Member("failing", tier.failing).Member("stores", tier.stores);
  json->Member("stores_failed", tier.stores_failed).Member("written_bytes", tier.bytes_written);
  json->Member("looks", tier.looks).Member("looks_failed", tier.looks_failed);
  json->Member("fetches", tier.fetches).Member("fetches_failed", tier.fetches_failed);
  json->Member("read_bytes", tier.bytes_read).Member("evicted", tier.evicted);
  json->Member("damaged", tier.damaged).Member("unreadable", tier.unreadable).EndObject();
}

void WriteServer(const EngineStats& stats, JsonWriter* json) {
  const CacheStats& cache = stats.cache;
  json->Key("server").BeginObject();
  json->Key("budget").BeginArray().BeginObject().Member("tier", "memory");
  json->Member("bytes", uint64_t{cache.bytes_budget});
  json->Member("running_bytes", uint64_t{cache.bytes_leased});
  json->Member("cached_bytes", uint64_t{cache.bytes_cached});
  json->Member("metadata_bytes", uint64_t{cache.bytes_metadata});
  json->Member("snapshot_bytes", uint64_t{cache.bytes_snapshots});
  json->Member("used_bytes_max", uint64_t{cache.bytes_used_max}).EndObject();
  for (const TierStats& tier : cache.tiers) {
    if (tier.present()) WriteTier(tier, json);
  }
  json->EndArray();
  json->Key("requests").BeginObject().Member("running", stats.running);
  json->Member("waiting", stats.waiting).Member("idle", stats.idle);
  json->Member("finished", stats.requests_finished).Member("cancelled", stats.requests_cancelled);
  json->Member("failed", stats.requests_failed).Member("refused", stats.requests_refused);
  json->EndObject();
  json->Key("totals").BeginObject().Member("lookups", cache.lookups);
  json->Member("lookups_exact", cache.lookups_exact);
  json->Member("lookups_partial", cache.lookups_partial);
  json->Member("lookups_miss", cache.lookups_miss);
  json->Member("prompt_tokens", cache.tokens_prompt).Member("reused_tokens", cache.tokens_reused);
  json->Member("generated_tokens", stats.tokens_generated);
  json->Member("steps", stats.steps)
      .Member("rows", stats.rows)
      .Member("rows_idle", stats.rows_idle);
  json->Member("busy_ms", stats.busy_ms).Member("preemptions", stats.preemptions).EndObject();
  WriteCounts(
      "missed_tokens", cache.tokens_missed,
      [](size_t i) { return NameOf(static_cast<MissReason>(i)); }, json);
  WriteCounts(
      "snapshots_taken", cache.snapshots_taken,
      [](size_t i) { return NameOf(static_cast<SnapshotReason>(i)); }, json);
  WriteCounts(
      "snapshots_evicted", cache.snapshots_evicted,
      [](size_t i) { return NameOf(static_cast<EvictReason>(i)); }, json);
  WriteCounts(
      "blocks_evicted", cache.blocks_evicted,
      [](size_t i) { return NameOf(static_cast<EvictReason>(i)); }, json);
  json->Key("stored").BeginObject().Member("snapshots", cache.snapshots);
  json->Member("entries", cache.entries).Member("pinned", cache.entries_pinned);
  json->Member("nodes", cache.nodes).Member("tokens", cache.tokens_stored);
  json->Member("blocks_cached", cache.blocks_cached).Member("blocks_leased", cache.blocks_leased);
  json->Member("leases", cache.leases).Member("namespaces", cache.namespaces).EndObject();
  json->EndObject();
}

}  // namespace

void CollectView(Service* service, const Tenant& tenant, const std::string& salt, size_t nodes_max,
                 std::function<void(CacheView)> done) {
  ReportLog::Log reports = service->reports().Of(tenant);
  service->engine().Post(
      [=, reports = std::move(reports), done = std::move(done)](StateCache& cache) mutable {
        const int64_t begin_ns = service->clock().NowNs();
        CacheView view;
        view.reports = std::move(reports);
        std::span<const TokenId> lit;
        if (view.reports.prompt != nullptr) lit = *view.reports.prompt;
        view.nodes = cache.View({service->model().digest, salt}, nodes_max, lit);
        view.truncated = view.nodes.size() >= nodes_max;
        view.stats = service->engine().stats();
        view.stats.cache = cache.stats();
        view.collect_ns = service->clock().NowNs() - begin_ns;
        done(std::move(view));
      });
}

std::string FormatView(Service* service, const Tenant& tenant, const CacheView& view,
                       SeenView* seen) {
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Member("object", "cache").Member("model", service->model().id);
  json.Member("tenant", tenant.name).Member("block_tokens", 64);
  if (tenant.admin) WriteServer(view.stats, &json);
  SeenView now;
  const std::deque<ReportLog::Entry>& reports = view.reports.entries;
  if (seen != nullptr) now = {HashTree(view), reports.empty() ? "none" : reports.back().request_id};
  if (seen == nullptr || now.tree != seen->tree) {
    WriteTree(*service->model().tokenizer, view, &json);
  }
  if (seen == nullptr || now.request_id != seen->request_id) WriteReports(reports, &json);
  json.EndObject();
  if (seen != nullptr) *seen = std::move(now);
  return out;
}

}  // namespace reprise::api::ops
