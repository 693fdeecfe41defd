// SPDX-License-Identifier: Apache-2.0
// Runs every tests/scenario/*.txt: a script of cache operations and what they must give. A bug
// report about reuse becomes a test without C++. README.md beside this file has the language.
// Works on ids alone (StateIndex); every invariant is checked after every line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cache/index/state_index.h"

namespace reprise {
namespace {

using Words = std::vector<std::string>;

// The geometry of a small published model of each kind; only sizes and costs matter here.
StateSpec SpecOf(const std::string& kind) {
  StateSpec spec;
  spec.token_cost = 0.8e9;
  spec.token_cost_per_position = 25'000;
  const std::vector<StateTensor> kv = {{"k", {2, 256}, DType::kF16}, {"v", {2, 256}, DType::kF16}};
  const std::vector<StateTensor> recurrent = {{"delta", {16, 128, 128}, DType::kF32},
                                              {"conv", {6144, 3}, DType::kF32}};
  for (int i = 0; i < 6; ++i) {
    if (kind == "window") spec.layers.push_back({i, StateKind::kWindowKv, 256, kv});
    if (kind == "attention" || kind == "hybrid") {
      spec.layers.push_back({i, StateKind::kFullKv, 0, kv});
    }
  }
  for (int i = 6; i < 24; ++i) {
    if (kind == "recurrent" || kind == "hybrid") {
      spec.layers.push_back({i, StateKind::kRecurrent, 0, recurrent});
    }
  }
  return spec;
}

struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<Boundary> boundaries;
};

class Script {
 public:
  // The first thing that is not as the script says, or "".
  std::string Run(std::istream& in) {
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      line = line.substr(0, line.find('#'));
      const Words words = Split(line);
      if (words.empty()) continue;
      error_.clear();
      Execute(words);
      if (error_.empty() && index_) {
        index_->actions().clear();
        const Status status = index_->CheckInvariants();
        if (!status.ok()) error_ = status.message();
      }
      if (!error_.empty()) {
        return "line " + std::to_string(number) + ": " + line + "\n  " + error_ + "\n" +
               (index_ ? index_->Dump() : "");
      }
    }
    return "";
  }

 private:
  static Words Split(const std::string& line) {
    std::istringstream stream(line);
    Words words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
  }

  void Execute(const Words& w) {
    const std::string& verb = w[0];
    if (verb == "model") {
      kind_ = w.at(1);
    } else if (verb == "option") {
      SetOption(w);
    } else if (verb == "time") {
      now_ms_ += std::stoll(w.at(1));
      Index().SetTime(now_ms_);
    } else if (verb == "run") {
      RunWhole(w);
    } else if (verb == "acquire") {
      leases_[w.at(1)] = Acquire(w);
    } else if (verb == "start") {
      Start(w.at(1));
    } else if (verb == "step") {
      Compute(w.at(1), std::stoi(w.at(2)));
    } else if (verb == "append") {
      const Prompt more = PromptOf(w, 2);
      Index().Append(leases_.at(w.at(1)), more.tokens);
    } else if (verb == "finish") {
      Index().Finish(std::move(leases_.at(w.at(1))));
      leases_.erase(w.at(1));
    } else if (verb == "drop") {
      leases_.erase(w.at(1));
    } else if (verb == "expect") {
      for (size_t i = 1; i < w.size(); ++i) Expect(w[i], ReportFields());
    } else if (verb == "stats") {
      for (size_t i = 1; i < w.size(); ++i) Expect(w[i], StatsFields());
    } else if (verb == "awaits") {
      ExpectAwaited(w);
    } else if (verb == "maintain") {
      while (Index().Maintain()) {
      }
    } else if (verb == "reset") {
      Index().Reset(nullptr);
    } else if (verb == "tree") {
      expected_tree_.clear();
    } else if (verb == "|") {
      ExpectTreeLine(w);
    } else {
      error_ = "no such verb: " + verb;
    }
  }

  void SetOption(const Words& w) {
    const int64_t value = std::stoll(w.at(2));
    if (w[1] == "budget_mib") {
      cache_.budget_bytes = size_t(value) << 20;
    } else if (w[1] == "gap") {
      cache_.snapshot_gap = int32_t(value);
    } else if (w[1] == "grid") {
      cache_.snapshot_grid = int32_t(value);
    } else if (w[1] == "ladder") {
      cache_.ladder_tokens = int32_t(value);
    } else if (w[1] == "rungs") {
      rungs_percent_ = value;
    } else if (w[1] == "entries") {
      cache_.entry_count_max = value;
    } else if (w[1] == "ttl_ms") {
      cache_.ttl_ms = value;
    } else if (w[1] == "sequences") {
      cache_.sequence_count = int32_t(value);
    } else {
      error_ = "no such option: " + w[1];
    }
  }

  StateIndex& Index() {
    if (!index_) {
      StateIndex::Options options;
      options.spec = SpecOf(kind_);
      options.ladder_share = double(rungs_percent_) / 100;
      options.cache = cache_;
      index_ = std::make_unique<StateIndex>(std::move(options));
    }
    return *index_;
  }

  // "sys*1000 /system u1*40 /message": runs of tokens by name, boundaries behind them.
  Prompt PromptOf(const Words& w, size_t from, size_t to = SIZE_MAX) {
    Prompt prompt;
    for (size_t i = from; i < std::min(w.size(), to); ++i) {
      if (w[i][0] == '/') {
        const auto at = static_cast<int32_t>(prompt.tokens.size());
        BoundaryKind kind = BoundaryKind::kMessage;
        if (w[i] == "/system") kind = BoundaryKind::kSystem;
        if (w[i] == "/breakpoint") kind = BoundaryKind::kBreakpoint;
        prompt.boundaries.push_back({at, kind});
        continue;
      }
      const size_t star = w[i].find('*');
      const int count = star == std::string::npos ? 1 : std::stoi(w[i].substr(star + 1));
      const std::string name = w[i].substr(0, star);
      const auto [it, added] = names_.try_emplace(name, 100'000 * (1 + int(names_.size())));
      for (int t = 0; t < count; ++t) prompt.tokens.push_back(it->second + t);
    }
    return prompt;
  }

  // NAME [key=value ..] : PIECES [=> PIECES]
  Lease Acquire(const Words& w, Prompt* reply = nullptr) {
    const size_t colon = size_t(std::find(w.begin(), w.end(), ":") - w.begin());
    const size_t arrow = size_t(std::find(w.begin(), w.end(), "=>") - w.begin());
    NamespaceKey key{"model", "tenant"};
    CacheRequest request;
    for (size_t i = 2; i < colon; ++i) {
      const std::string name = w[i].substr(0, w[i].find('='));
      const std::string value = w[i].substr(w[i].find('=') + 1);
      if (name == "salt") key.salt = value;
      if (name == "digest") key.digest = value;
      if (name == "pin_ms") request.pin_ms = std::stoll(value);
      if (name == "min") request.min_cache_tokens = std::stoi(value);
      if (name == "read") request.read = value != "0";
      if (name == "write") request.write = value != "0";
      if (name == "idle") request.idle = value != "0";
    }
    const Prompt prompt = PromptOf(w, colon + 1, arrow);
    if (reply != nullptr) *reply = PromptOf(w, arrow + 1);
    request.key = &key;
    request.tokens = prompt.tokens;
    request.boundaries = prompt.boundaries;
    Lease lease = Index().Acquire(request);
    report_ = Index().record(lease).report;
    return lease;
  }

  void Start(const std::string& name) {
    const Status status = Index().Start(leases_.at(name)).status;
    if (!status.ok()) error_ = status.message();
    report_ = Index().record(leases_.at(name)).report;
  }

  void Compute(const std::string& name, int32_t count) {
    const Lease& lease = leases_.at(name);
    const auto& record = Index().record(lease);
    count = std::min(count, int32_t(record.tokens.size()) - record.computed.logical);
    Status status = Index().Reserve(lease, count);
    if (status.ok()) status = Index().Commit(lease, {count});
    if (!status.ok()) error_ = status.message();
    report_ = Index().record(lease).report;
  }

  // A whole request: prefill in steps of 512, the reply token by token but for the last, which is
  // sampled and never run.
  void RunWhole(const Words& w) {
    const std::string name = w.at(1);
    Prompt reply;
    leases_[name] = Acquire(w, &reply);
    Start(name);
    const auto& record = Index().record(leases_[name]);
    while (error_.empty() && record.computed.logical < record.prompt_tokens) Compute(name, 512);
    if (!reply.tokens.empty() && error_.empty()) {
      Index().Append(leases_[name], reply.tokens);
      const int32_t last = int32_t(record.tokens.size()) - 1;
      while (error_.empty() && record.computed.logical < last) Compute(name, 1);
    }
    const ReuseReport report = record.report;
    if (error_.empty()) Index().Finish(std::move(leases_[name]));
    leases_.erase(name);
    report_ = report;
  }

  std::map<std::string, std::string> ReportFields() const {
    return {{"used", std::to_string(report_.used_tokens)},
            {"computed", std::to_string(report_.prompt_tokens - report_.used_tokens)},
            {"kv", std::to_string(report_.kv_tokens)},
            {"state", std::to_string(report_.state_tokens)},
            {"known", std::to_string(report_.known_tokens)},
            {"diverged", std::to_string(report_.diverged_at)},
            {"snapshots", std::to_string(report_.snapshots_taken)},
            {"reason", std::string(NameOf(report_.reason))}};
  }

  std::map<std::string, std::string> StatsFields() {
    const CacheStats s = Index().stats();
    uint64_t snapshots_evicted = 0, blocks_evicted = 0;
    for (const uint64_t n : s.snapshots_evicted) snapshots_evicted += n;
    for (const uint64_t n : s.blocks_evicted) blocks_evicted += n;
    return {{"snapshots", std::to_string(s.snapshots)},
            {"entries", std::to_string(s.entries)},
            {"pinned", std::to_string(s.entries_pinned)},
            {"blocks_cached", std::to_string(s.blocks_cached)},
            {"blocks_leased", std::to_string(s.blocks_leased)},
            {"blocks_copied", std::to_string(s.blocks_copied)},
            {"snapshots_evicted", std::to_string(snapshots_evicted)},
            {"blocks_evicted", std::to_string(blocks_evicted)},
            {"expired", std::to_string(s.snapshots_evicted[size_t(EvictReason::kExpired)])},
            {"waits", std::to_string(s.waits)},
            {"exact", std::to_string(s.lookups_exact)},
            {"partial", std::to_string(s.lookups_partial)},
            {"miss", std::to_string(s.lookups_miss)},
            {"namespaces", std::to_string(s.namespaces)},
            {"leases", std::to_string(s.leases)}};
  }

  // field=value, field<=number, field>=number
  void Expect(const std::string& claim, const std::map<std::string, std::string>& fields) {
    const size_t op = claim.find_first_of("<>=");
    const size_t value = claim.find_first_not_of("<>=", op);
    const auto it = fields.find(claim.substr(0, op));
    if (it == fields.end() || value == std::string::npos) {
      error_ = "cannot read: " + claim;
      return;
    }
    const std::string want = claim.substr(value);
    const std::string how = claim.substr(op, value - op);
    const bool ok = how == "="    ? it->second == want
                    : how == "<=" ? std::stoll(it->second) <= std::stoll(want)
                    : how == ">=" ? std::stoll(it->second) >= std::stoll(want)
                                  : false;
    if (!ok) error_ += it->first + " is " + it->second + ", expected " + how + " " + want + ". ";
  }

  // awaits A none | awaits A B POSITION
  void ExpectAwaited(const Words& w) {
    const auto awaited = Index().FindAwaited(leases_.at(w.at(1)));
    std::string found = "none";
    if (awaited) {
      for (const auto& [name, lease] : leases_) {
        if (lease.id() == awaited->lease_id) found = name;
      }
      found += " " + std::to_string(awaited->position);
    }
    const std::string want = w.at(2) == "none" ? "none" : w.at(2) + " " + w.at(3);
    if (found != want) error_ = "awaits " + found;
  }

  // After `tree`, lines "| .." must be the lines of the dump, tokens left out, from the top.
  void ExpectTreeLine(const Words& w) {
    std::istringstream dump(Index().Dump());
    std::string line;
    expected_tree_.push_back({});
    for (size_t i = 1; i < w.size(); ++i) {
      expected_tree_.back() += (i > 1 ? " " : "") + w[i];
    }
    for (size_t i = 0; i < expected_tree_.size(); ++i) {
      line = "(nothing)";
      std::getline(dump, line);
      std::string shown;
      for (const std::string& word : Split(line)) {
        if (std::isdigit(static_cast<unsigned char>(word[0])) || word == "..") continue;
        shown += (shown.empty() ? "" : " ") + word;
      }
      if (i + 1 == expected_tree_.size() && shown != expected_tree_[i]) error_ = "is: " + shown;
    }
  }

  std::string kind_ = "hybrid";
  int64_t rungs_percent_ = 0;  // so that trees stay readable
  CacheOptions cache_ = [] {
    CacheOptions options;
    options.budget_bytes = size_t{8} << 30;
    return options;
  }();
  std::unique_ptr<StateIndex> index_;
  std::map<std::string, int> names_;
  std::map<std::string, Lease> leases_;
  ReuseReport report_;
  int64_t now_ms_ = 0;
  std::string error_;
  std::vector<std::string> expected_tree_;
};

std::vector<std::string> Scenarios() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(REPRISE_SCENARIO_DIR)) {
    if (file.path().extension() == ".txt") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Scenario : public testing::TestWithParam<std::string> {};

TEST_P(Scenario, Holds) {
  std::ifstream file(std::string(REPRISE_SCENARIO_DIR) + "/" + GetParam() + ".txt");
  ASSERT_TRUE(file.good());
  EXPECT_EQ(Script().Run(file), "");
}

INSTANTIATE_TEST_SUITE_P(Files, Scenario, testing::ValuesIn(Scenarios()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace reprise
