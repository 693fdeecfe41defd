"""Breaks one promise at a time and asks whether the tests notice.

    tools/mutants.py                    every mutant: apply, build its tests, run them, undo
    tools/mutants.py victim_reversed    only those named
    tools/mutants.py --count 8 --seed 3 --minutes 15
                                        eight of them, chosen by the seed, for 15 minutes at most
    tools/mutants.py --check            only whether every mutant still applies (a test of the tree)

A mutant is a small textual edit that must apply exactly once. It is killed if one of its tests
fails, survives if all pass; one that does not build is an error, like one that does not apply. One
that is not judged when the time is up is named and counts as neither.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import time

from planted import adapters, api, cpu, crowds, devices, drafts, grammar, http, keys, operator, pictures, sample, weights

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINE = [("engine_test", "tests/engine_test"), ("fairness_test", "tests/fairness_test")]
CACHE = [("cache_test", "src/cache/cache_test")]
TIER = [("tier_test", "src/tier/tier_test")]
MODEL = [("model_test", "src/model/model_test")]
KERNELS = [("kernels_test", "src/kernels/kernels_test")]
DEVICE = [("device_test", "src/device/device_test")]
GRAMMAR = [("grammar_test", "src/grammar/grammar_test")]
HOSTILE = [("grammar_hostile_test", "src/grammar/grammar_hostile_test")]
BASE = [("base_test", "src/base/base_test")]
TEXT = [("text_test", "src/text/text_test")]
HTTP = [("http_test", "src/http/http_test")]
HUB = [("hub_test", "src/hub/hub_test")]
API = [("api_test", "src/api/api_test")]
ATTACK = [("api_attack_test", "src/api/api_attack_test")]
CLI = [("cli_test", "src/cli/cli_test")]
SAMPLE = [("sample_test", "src/sample/sample_test")]
SEEDS = "1000"  # of the simulations: enough for a mutant, few enough for all of them

# name, file, text, what it becomes, tests. More of them in planted/.
MUTANTS = [
    ("token_for_everybody", "src/hub/net/client.cc",
     "own && !request.token.empty()", "(own || true) && !request.token.empty()", HUB),
    ("from_https_to_any_origin", "src/hub/net/url.cc",
     "return tls == other.tls && host == other.host", "return host == other.host", HUB),
    ("length_beside_chunks", "src/hub/net/response_parser.cc",
     "  if (chunked && length) return Fail", "  if (chunked && length && *length == 77) return Fail", HUB),
    ("digest_unread", "src/hub/download.cc",
     "if (partial_.IsRight()) return OkStatus();", "if (partial_.IsRight() || true) return OkStatus();", HUB),
    ("part_of_another_place", "src/hub/download.cc", "first == begin && last + 1 == total", "last + 1 == total", HUB),
    ("paths_that_leave_the_snapshot", "src/hub/names/listing.cc", ' || part == ".."', "", HUB),
    ("blob_of_any_size", "src/hub/cache/cache_folder.cc",
     "static_cast<uint64_t>(st.st_size) == file.bytes", "file.bytes > 0", HUB),
    ("removed_although_linked", "src/hub/cache/inventory.cc",
     "if (unfinished || linked.contains(blob.name)) continue;", "if (unfinished) continue;", HUB),
    ("folder_with_some_shards", "src/hub/pull.cc",
     "return std::all_of(shards->begin(), shards->end(),", "return std::any_of(shards->begin(), shards->end(),", HUB),
    ("paths_on_the_engines_thread", "src/cache/index/moves/loads.cc",
     "if (blocks > blocks_left_) {", "if (blocks > 100'000) {", CACHE),
    ("paths_one_after_the_other", "src/cache/index/moves/loads.cc",
     "size_t kTurnBlocks = 256;", "size_t kTurnBlocks = 1'000'000;", CACHE),
    ("schemas_once_have_all", "src/api/constrain/constraints.cc",
     "!entry->again && bytes_once", "false && bytes_once", API),
    ("choices_not_described", "src/cli/flags.cc",
     "parser_->choices[option] = rule.one_of;", "parser_->choices[option] = {};", CLI),
    ("requests_in_manual_pages", "src/cli/help/manual_page.cc",
     "if (!out.empty() && (out[0] == '.' || out[0] == '\\''))", "if (out.empty())", CLI),
    ("told_too_much", "src/cache/announce/announcer.cc",
     "BlocksUpTo(node, below ? state_.tree->end(node) : HeldTo(node))",
     "BlocksUpTo(node, HeldTo(node) > state_.tree->begin(node) || below ? state_.tree->end(node) : HeldTo(node))",
     CACHE),
    ("pastes_sent_by_their_line_breaks", "src/cli/line/key_reader.cc",
     "    pasting_ = true;", "    pasting_ = false;", CLI),
    ("history_for_everybody", "src/cli/line/history.cc", "::fchmod(file, 0600);", "::fchmod(file, 0644);", CLI),
    ("models_move_the_cursor", "src/cli/chat/reply_style.cc",
     """if (character != "\\t" && (code < 0x20""", """if (character == "x" && (code < 0x20""", CLI),
    ("everything_fits", "src/cli/doctor/fit.cc",
     "fit.weights = model.weight_bytes <= memory_bytes;", "fit.weights = true;", CLI),
    ("loops_unnoticed", "src/api/chat/long_reply.h", "count_ >= next_loop_ && Repeats()", "count_ < 0 && Repeats()", API),
    ("no_address_is_similar", "src/http/router.cc",
     "known.ends_with(path) || path.ends_with(known)", "known == path", HTTP),
    ("tenants_told", "src/cache/index/state_index.cc",
     "return it != namespace_of_.end() && it->second->first.first.empty();",
     "return it != namespace_of_.end();", CACHE),
    ("flight_of_another_tenant", "src/cache/index/flights.h",
     "flight.root == waiting.root && flight.in_flight()", "flight.in_flight()",
     [("sim_test", "tests/sim_test")]),
    ("records_are_worth_nothing", "src/cache/index/keep/worth.cc",
     "return std::min(compute, rates_.CostOfLoad", "if (compute >= 0) return compute;\n  return std::min(compute, rates_.CostOfLoad", CACHE),
    ("pins_beyond_the_share", "src/cache/index/keep/evict.cc",
     "    if (!pin || pins == PinsGo::kNone) break;", "    if (pins != PinsGo::kAll || !pin) break;", CACHE),
    ("records_sought_in_vain", "src/cache/index/moves/loads.cc",
     "  if (record.limit() - index_.Match(record).usable < kLoadTokensMin) return;\n", "", CACHE),
    ("rows_chosen_by_the_engine", "src/engine/compaction.cc",
     "background != nullptr && executor.pool() != nullptr", "background == nullptr", ENGINE),
    ("tiers_without_shares", "src/tier/catalog.cc",
     "  if (over == 0) return OldestLeaf();", "  if (over != 1) return OldestLeaf();", TIER),
    ("days_without_shares", "src/tier/guard/day_shares.h",
     "    return left - wanted >= reserved;", "    return left - wanted >= 0 * reserved;", TIER),
    ("asleep_before_those_who_wait", "src/engine/admission.cc",
     "  if (!roster_.running().empty() || !roster_.waiting().empty()) return false;\n  for (const auto& idle",
     "  if (!roster_.running().empty()) return false;\n  for (const auto& idle", ENGINE),
    ("a_smaller_budget_evicts_nothing", "src/cache/index/room.cc",
     "  while (bytes_used() > bytes && bytes_used() + slice > before &&", "  while (bytes_used() > bytes && bytes_used() + slice < before &&",
     CACHE),
    ("states_above_the_memory_of_all", "src/cli/serve/fleet/state_shares.cc",
     "newest ? total - std::min(total, bytes) : over", "newest ? 0 : over", CLI),
    ("the_last_used_gives_way", "src/cli/serve/fleet/state_shares.cc",
     "return a->last_use_ms < b->last_use_ms;", "return a->last_use_ms > b->last_use_ms;", CLI),
    ("victim_reversed", "src/engine/roster.cc",
     "if (last != nullptr && !(worst < rank)) return;",
     "if (last != nullptr && !(rank < worst)) return;",
     ENGINE),
    ("posted_in_a_step", "src/engine/admission.cc",
     "  AdmitRequests();\n  std::vector<NextRows>", "  Admit();\n  std::vector<NextRows>", ENGINE),
    ("memory_not_got_ahead", "src/engine/admission.cc", "  cache_->BackAhead(next);\n", "", ENGINE),
    ("idle_work_replaced_in_a_step", "src/engine/admission.cc",
     "  if (shares_.front().sequence->request.idle) return;\n  AdmitRequests();", "  AdmitRequests();", ENGINE),
    ("nothing_looked_up_ahead", "src/engine/admission.cc",
     "if (!sequence->looked_up && !LookUp(*sequence)) break;", "if (sequence) break;", ENGINE),
    ("cancelled_runs_on", "src/engine/admission.cc",
     "i < sequences.size() && sought > 0", "i < sequences.size() && sought > 1", ENGINE),
    ("last_token_stays", "src/cache/index/state_index.cc", "  record.last = tokens.back();\n", "", ENGINE),
    ("unread_tokens_lost", "src/engine/token_stream.cc", "    more_.push_back(std::move(token));\n", "", ENGINE),
    ("needy_not_considered", "src/engine/admission.cc",
     "Sequence* victim = others > 0 ? roster_.Last() : &needy;",
     "Sequence* victim = &needy;\n"
     "  for (const auto& one : roster_.running()) {\n"
     "    if (one.get() != &needy && !one->finished) victim = one.get();\n"
     "  }", ENGINE),
    ("preempted_to_the_back", "src/engine/roster.cc",
     "  waiting_.push_back(Take(&running_, sequence));",
     "  sequence.turn = 1e9;\n  waiting_.push_back(Take(&running_, sequence));", ENGINE),
    ("queue_priority_ignored", "src/engine/roster.cc",
     "  const int32_t priority = sequence.lent_priority;",
     "  const int32_t priority = running ? sequence.lent_priority : 0;", ENGINE),
    ("priority_not_lent", "src/engine/roster.cc",
     "    lent = std::max(lent, sequence->request.priority);",
     "    lent += 0;", ENGINE),
    ("admission_never_closed", "src/engine/admission.cc",
     "  return wanted <= cache_->BytesFree();", "  return wanted > 0;", ENGINE),
    ("admission_never_opened", "src/engine/admission.cc",
     "  return wanted <= cache_->BytesFree();", "  return wanted == 0;", ENGINE),
    ("long_prompts_at_once", "src/engine/admission.cc",
     "kTokensPerStep - kTokensPerRunning * others", "kTokensPerStep * 100 - others", ENGINE),
    ("lookups_at_once", "src/cache/index/lookup.cc",
     "begin + std::min(record.prompt_tokens - begin, *tokens_left)", "record.prompt_tokens", CACHE),
    ("lookups_begin_again", "src/cache/index/lookup.cc",
     "const int32_t known = tree_.Match(record.root, tokens, nullptr, &record.place);",
     "const int32_t known = tree_.Match(record.root, tokens, nullptr);", CACHE),
    ("bulk_ignored", "src/cache/policy/value.cc",
     "kTurns - 1)] - slope_ * bulk;", "kTurns - 1)] - 0 * slope_ * bulk;", CACHE),
    ("bulk_of_snapshots_ignored", "src/cache/policy/value.cc",
     " - kSnapshotSlope * bulk;", " - 0 * kSnapshotSlope * bulk;", CACHE),
    ("open_ends_counted", "src/cache/policy/value.cc",
     "static_cast<double>(open_.front().left_ms) + PatienceMs() < now_ms", "now_ms >= 0", CACHE),
    ("scans_not_resisted", "src/cache/index/keep/evict.cc",
     "guard_.resists() && options_.policy->resists_scans()", "false", CACHE),
    ("loops_warm_everything", "src/cache/policy/scan_guard.cc",
     "item.used > items_[warm.oldest].used)", "came_back)", CACHE),
    ("one_shots_are_warm", "src/cache/policy/scan_guard.cc",
     "const bool warms = came_back && item.bytes", "const bool warms = item.bytes", CACHE),
    ("guard_never_rests", "src/cache/policy/scan_guard.cc",
     "resists_ = found_by_return_ > 1.1 * found_by_age_;", "resists_ = true;", CACHE),
    ("subjects_without_bound", "src/cache/policy/scan_guard.cc",
     "if (slot < item_max_) {", "if (slot < UINT32_MAX - item_max_) {", CACHE),
    ("keys_go_stale", "src/cache/index/state_index.cc",
     "std::clamp((order_.limit() + 511) / 512, kRekeyMin, kRekeyMax)",
     "std::clamp(0 * order_.limit(), kRekeyMin, kRekeyMax)", CACHE),
    ("bulk_not_learnt", "src/cache/policy/value.cc",
     "kExpected + seen * reuses_ / (reuses_ + kTrust)", "kExpected + 0 * seen * kTrust", CACHE),
    ("shared_blocks_freed", "src/cache/store/block_pool.cc",
     "    if (--refs.lease > 0) continue;", "    if (refs.lease = 0; false) continue;", CACHE),
    ("limit_ignored", "src/engine/admission.cc",
     "  while (roster_.full()) {", "  while (roster_.full() && next.arrival == 0) {", ENGINE),
    ("tenant_share_ignored", "src/engine/roster.cc",
     "return {priority, others >= ShareOf(*sequence.tenant), sequence.turn, sequence.arrival};",
     "return {priority, others < 0, sequence.turn, sequence.arrival};", ENGINE),
    ("tenant_turns_ignored", "src/engine/roster.cc",
     "  sequence->turn = std::max(turn_, tenant->next_turn);", "  sequence->turn = 0;", ENGINE),
    ("cancelled_behind_the_inbox", "src/engine/admission.cc",
     "  if (cancelled_.empty()) return;\n", "  cancels_->Take(&cancelled_);\n", ENGINE),
    ("ended_waits_are_no_change", "src/engine/roster.cc",
     "    sequence->asked_at = 0;\n    ++changes_;", "    sequence->asked_at = 0;", ENGINE),
    ("blocked_for_ever", "src/engine/admission.cc",
     "roster_.full() && roster_.changes() == blocked_at_;",
     "roster_.full() && blocked_at_ > 0;", ENGINE),
    ("ends_and_starts_in_one_step", "src/engine/admission.cc",
     "  if (PutsOffStarts()) return;\n", "", ENGINE),
    ("put_off_for_ever", "src/engine/admission.cc",
     " && beside_many && !put_off_;", " && beside_many;", ENGINE),
    ("many_wanted_by_nobody", "src/cache/index/room.cc",
     "    if (!r.started || r.idle || r.load) continue;", "    if (r.id < UINT64_MAX) continue;", ENGINE),
    ("logits_of_all_are_plain", "src/engine/sequence.h",
     "!request.on_logits && request.pooling", "request.pooling", ENGINE),
    ("nothing_lent", "src/engine/roster.cc",
     "  if (!std::exchange(waits_, waits) && !waits) return;",
     "  waits_ = waits;\n  return;", ENGINE),
    ("lossy_state_published", "src/cache/index/room.cc",
     "  r.canonical = false;\n", "", ENGINE),
    ("shared_blocks_compacted_in_place", "src/cache/index/room.cc",
     "    if (shared(block)) block = blocks_.Allocate(r.owner);",
     "    if (shared(block) && r.owner == UINT32_MAX) block = blocks_.Allocate(r.owner);", ENGINE),
    ("compacted_blocks_not_freed", "src/cache/index/room.cc",
     "    if (i >= r.table.size() || gone[i] != r.table[i]) blocks_.UnrefLease(gone[i]);",
     "    if (i < r.table.size() && gone[i] != r.table[i]) blocks_.UnrefLease(gone[i]);", ENGINE),
    ("window_not_run_again", "src/engine/admission.cc",
     "    wanted.replay_tokens = sequence.compaction->window();\n", "", ENGINE),
    ("reply_not_run_again", "src/engine/admission.cc",
     "    cache_->Append(sequence.lease, sequence.again);\n", "", ENGINE),
    ("pool_reads_the_window", "src/model/snapkv/keep_list.cc",
     "Pool(weights.first(size_t(before)))", "Pool(weights)", MODEL),
    ("kept_ties_are_left_out", "src/model/snapkv/keep_list.cc",
     "size_t equals = wanted - least.larger;", "size_t equals = wanted - least.larger - 1;", MODEL),
    ("keys_weighed_by_their_block_alone", "src/kernels/cpu/attention.cc",
     "      const AttentionState mine = state(head * blocks, begin);",
     "      const AttentionState mine = state(task, begin);", KERNELS),
    ("scale_of_the_first_group", "src/kernels/cpu/generic/kv_q8-inl.h",
     "      if (c % kGroup == 0) scale = Load(", "      if (c == 0) scale = Load(", KERNELS),
    ("codes_not_bounded", "src/kernels/cpu/generic/kv_q8-inl.h",
     "const V16 q = Min(Max(Mul(Load(values + i), inverse), Set(-127)), Set(127));",
     "const V16 q = Mul(Load(values + i), inverse);", KERNELS),
    ("elements_not_rounded", "src/kernels/cpu/generic/kv_q8-inl.h",
     "RoundF16(Mul(Set(scale[group % 16]), code))", "Mul(Set(scale[group % 16]), code)", KERNELS),
    ("scales_stay_behind", "src/kernels/cpu/attention.cc",
     "lie(scales, KvGroups(channels))", "lie(scales, KvGroups(channels) - 1)", KERNELS),
    ("queue_share_ignored", "src/engine/submission.cc",
     "    if (load.waiting >= ShareOf(options_.waiting_max, load.weight, weights)) return false;",
     "    if (load.weight > 0) return false;", ENGINE),
    ("idle_ignores_the_gap", "src/sched/scheduler.cc",
     "left = std::min(left, idle_rows_);", "left = std::min(left, options_.idle_rows_max);", ENGINE),
    ("cache_share_ignored", "src/cache/index/keep/keeper.cc",
     "  if (tenants_.size() <= 1) return Tenants::kAll;",
     "  if (tenants_.size() <= 64) return Tenants::kAll;", CACHE),
    ("records_not_synced", "src/tier/folder/record_file.cc",
     "  return folder.fdatasync(fd) != 0 ? errno : 0;", "  return 0;", TIER),
    ("folder_not_synced", "src/tier/folder/record_file.cc",
     "  return folder.fsync(folder.fd()) != 0 ? errno : 0;", "  return 0;", TIER),
    ("write_fault_stops_reads", "src/tier/record_store.cc",
     "  if (!writes_.Fail(why)) return;\n", "  (void)reads_.Fail(why);\n  if (!writes_.Fail(why)) return;\n", TIER),
    ("renamed_record_is_lost", "src/tier/record_store.cc",
     "    (void)catalog_.Replace(id, one.name, one.facts, RecordBytes(one.facts));\n", "    catalog_.Lose(id);\n", TIER),
    ("lost_records_are_found", "src/tier/catalog.cc",
     "    if (records_.at(id).lost) return false;\n", "", TIER),
    ("a_queue_is_a_failure", "src/tier/record_store.cc",
     "    ++stats_.looks_failed;\n    news->looked.push_back(ticket);\n", "    ++stats_.looks_failed;\n    FailReads(Internal(\"late\"), \"\");\n    news->looked.push_back(ticket);\n", TIER),
    ("a_bad_record_closes_the_disk", "src/tier/guard/quarantine.h",
     "    return faults_ >= kFaultsMax;", "    return faults_ >= 1;", TIER),
    ("parts_left_behind", "src/tier/redis/redis_home.cc",
     "    if (!committed_ && parts_ > 0) RemoveParts();\n", "", TIER),
    ("parts_not_renewed", "src/tier/redis/redis_home.cc",
     "  for (size_t part = 1; part <= parts; ++part) renew(PartKey(name, part));\n", "", TIER),
    ("aborted_bytes_spent", "src/tier/record_store.cc",
     "  day_.GiveBack(storing_->facts.space,\n"
     "                storing_->bytes - std::min(storing_->bytes, storing_->handed));\n", "", TIER),
    ("refused_documents_evict", "src/tier/documents/document_store.cc",
     "  if (!Fits(bytes) || writes_.open() || !day_.Take(bytes, WallMs())) {",
     "  if (Fits(bytes)) (void)MakeRoom(document.owner, bytes);\n"
     "  if (!Fits(bytes) || writes_.open() || !day_.Take(bytes, WallMs())) {", TIER),
    ("unread_documents_removed", "src/tier/documents/document_store.cc",
     "    } else if (head.status().code() == StatusCode::kDataLoss) {", "    } else if (!head.ok()) {", TIER),
    ("looks_one_by_one", "src/tier/transfers.cc",
     "constexpr size_t kLooksAtOnce = 64;", "constexpr size_t kLooksAtOnce = 1;", TIER),
    ("a_reset_blinds_all", "src/tier/waits/resets.h",
     "[&](const PathId& one) { return one.empty() || one == space; });",
     "[&](const PathId&) { return !space.empty(); });", TIER),
    ("a_reset_leaves_what_is_almost_written", "src/tier/record_store.cc",
     "    storing_->forget = true;\n", "    storing_->forget = false;\n", TIER),
    ("what_may_be_gone_is_continued", "src/tier/record_store.cc",
     "  if (home_->keeps_ms() == 0) return true;\n", "  if (home_->keeps_ms() >= 0) return true;\n", TIER),
    ("a_replica_is_taken_for_the_master", "src/tier/redis/redis_link.cc",
     "  if (sentinels) REPRISE_TRY(link->CheckRole());\n", "", TIER),
    ("one_sentinel_has_all_the_time", "src/tier/redis/redis_link.cc",
     "now + left / parts)", "now + left + 0 * left / parts)", TIER),
    ("spills_do_not_wait_for_an_answer", "src/cache/tier/record_tier.cc",
     "      if (store_->Confirms(*spill.path, spill.move.tokens)) return;\n", "", CACHE),
    ("the_host_forgets_in_one_call", "src/cache/tier/host_tier.cc",
     "  for (size_t i = 0; i < kDropsPerPoll; ++i) {", "  for (;;) {", CACHE),
    ("blocks_of_any_size", "src/tier/record.cc",
     "f.block_bytes > kBlockBytesMax || ", "", TIER),
    ("wishes_without_bound", "src/cache/index/moves/spills.cc",
     "  if (wishes.size() > kWishesMax) wishes.pop_front();\n", "", CACHE),
    ("pages_given_back_by_the_engine", "src/cache/store/unit_arena.cc",
     "  if (returns_ != nullptr) return returns_->Begin(offset, bytes);\n", "", CACHE),
    ("all_copied_in_at_once", "src/cache/tier/record_tier.cc",
     "constexpr size_t kCopyInBytes = size_t{16} << 20;", "constexpr size_t kCopyInBytes = size_t{16} << 40;", CACHE),
    ("packed_counts_as_plain", "src/tier/record_store.cc", "  done.bytes = bytes;\n", "", TIER),
    ("packed_not_given_back_for_the_day", "src/tier/record_store.cc",
     "  day_.GiveBack(done.facts.space, done.bytes - std::min(done.bytes, bytes));\n", "", TIER),
    ("packed_bytes_not_sealed", "src/tier/folder/record_file.cc",
     "if (!seal_->Open(static_cast<uint32_t>(index + 1), stored, tag)) {",
     "if (as_it_is && !seal_->Open(static_cast<uint32_t>(index + 1), stored, tag)) {", TIER),
    ("room_not_in_the_index", "src/tier/folder/folder_index.cc",
     "one.bytes = Take<uint64_t>(&rest);", "(void)Take<uint64_t>(&rest);", TIER),
    ("writing_not_charged", "src/cache/tier/record_tier.cc",
     "if (!parts_->lane().beside()) pace_.Charge(written_ns - charged_ns_);", "", CACHE),
    ("spilled_while_evicted", "src/cache/index/keep/worth.cc",
     "entry.spilling || entry.readers > 0 ||", "entry.readers > 0 ||", CACHE),
    ("restored_while_evicted", "src/cache/index/keep/worth.cc",
     "entry.spilling || entry.readers > 0 ||", "entry.spilling ||", CACHE),
    ("states_used_before_they_are_filled", "src/cache/state_cache.cc",
     "const std::optional<int64_t> ns = store_->EndFilling(lease.state());",
     "const std::optional<int64_t> ns;", CACHE),
    ("low_priority_is_forgotten", "src/cache/index/keep/worth.cc", "- (facts.low ? kBefore : 0)", "", CACHE),
    ("quick_tiers_wait", "src/cache/tier/joined_tier.cc",
     "if (joined.done.more && (!done.ok || joined.told)) continue;",
     "if (joined.done.more) continue;", CACHE),
    ("passed_records_stay", "src/tier/plan.cc",
     "if (bytes > wish.shape.state_bytes ||", "if (true ||", CACHE),
    ("lost_events_stay_lost", "src/cache/announce/announcer.cc", "  RepeatSome(&events);\n", "", CACHE),
    ("moves_keep_their_memory", "src/cache/index/keep/keeper.cc",
     "    if (!GiveUpAhead() && !EvictOne(why, kAnyKey, PinsGo::kAll) && !ForgetOldestRecord() &&\n"
     "        !CancelOneMove()) {",
     "    if (!GiveUpAhead() && !EvictOne(why, kAnyKey, PinsGo::kAll)) {", CACHE),
    ("blocks_taken_in_one_step", "src/cache/index/state_index.cc",
     "  if (left != record.turn_of(std::clamp(rows, 1, options_.block_tokens))) return;",
     "  if (rows + left >= 0) return;", CACHE),
    ("ahead_kept", "src/cache/index/state_index.cc",
     "    if (!one.ahead) continue;", "    if (one.id != 0) continue;", CACHE),
    ("published_in_one_step", "src/cache/index/kind/tail_kind.cc",
     "before < record.prompt_tokens ? 0 : tokens - record.turn_of(tokens);", "0;", CACHE),
    ("windows_need_all", "src/cache/index/moves/spills.cc",
     "if ((with_state && head.first_block < needed) || head.first_block * tokens < held) {",
     "if (with_state && head.first_block < needed) {", CACHE),
    ("rounding_not_told", "src/cache/index/lookup.cc",
     "report->rounded = match.usable > 0 && tier_ != nullptr && tier_->rounds();",
     "report->rounded = false;", CACHE),
    ("rounded_blocks_shared", "src/cache/index/publish.cc",
     "const bool alike = tier_ == nullptr || !tier_->rounds();", "const bool alike = true;", CACHE),
    ("damaged_loads_are_published", "src/cache/index/moves/loads.cc",
     "  if (!done.ok) {\n    ++index_.stats_.loads_failed;", "  if (done.id == 0) {\n    ++index_.stats_.loads_failed;",
     CACHE),
    ("idle_takes_pins", "src/cache/index/state_index.cc",
     "EvictReason::kRunning, !record.idle)", "EvictReason::kRunning, true)", ENGINE),
    ("streams_wait_for_prompts", "src/sched/scheduler.cc",
     "return std::min(options_.gap_ms_max, options_.slow_down_max * stream_ms_);",
     "return options_.gap_ms_max;",
     [("sched_test", "src/sched/sched_test")]),
    ("first_tokens_wait_for_chunks", "src/sched/scheduler.cc",
     "return ends && runnables[i].rows_ready > room ?", "return !ends && runnables[i].rows_ready > room ?",
     [("sched_test", "src/sched/sched_test")]),
    ("streams_leave_no_rows", "src/sched/scheduler.cc",
     "const int32_t kept = prompts.empty() ? 0 : KeptForPrompts(streams);", "const int32_t kept = 0;",
     [("sched_test", "src/sched/sched_test")]),
    ("pin_cap_removed", "src/cache/index/keep/worth.cc",
     "  while (pins_.bytes() > PinnedBytesMax()) {", "  while (pins_.bytes() > 100 * PinnedBytesMax()) {", CACHE),
    ("window_blocks_never_dropped", "src/cache/index/publish.cc",
     "    blocks_.UnrefLease(record.table[g]);\n    record.table[g] = BlockId();",
     "    break;", CACHE),
    ("ttl_ignored", "src/cache/index/keep/evict.cc",
     "  return ttl_ms > 0 && entry.used_ms + ttl_ms <= now_ms_ && entry.pinned_until_ms == 0;",
     "  return ttl_ms < 0 && entry.used_ms < 0;", CACHE),
    ("tails_by_share", "src/cache/policy/value.cc",
     "kPower * std::min(0., log_odds(turns) - best + kAlike)",
     "kPower * std::min(0., log_odds(turns) - best + 0 * kAlike)", CACHE),
    ("tails_by_age_only", "src/cache/policy/value.cc",
     "kPower * std::min(0., log_odds(turns) - best + kAlike)",
     "0 * kPower * std::min(0., log_odds(turns) - best + kAlike)", CACHE),
    ("ladder_off", "src/cache/policy/snapshot_plan.cc",
     "    if (in_.rung_gap > 0) AddRungs();", "", CACHE),

    # Errors in the later pieces that drivers cut work into: only shapes that models have show them.
    ("later_tokens_read_the_first", "src/kernels/cpu/project.cc",
     "AtToken(buffers[static_cast<size_t>(kernel.activations)].rows, token);",
     "AtToken(buffers[static_cast<size_t>(kernel.activations)].rows, 0);", KERNELS),
    ("last_token_of_a_block_left_out", "src/kernels/cpu/project.cc",
     "std::min(unit.input->block_tokens, x.rows - token)",
     "std::min(unit.input->block_tokens, x.rows - token - (token > 0 ? 1 : 0))", KERNELS),
    ("tokens_behind_128_not_quantised", "src/kernels/cpu/project.cc",
     "const int64_t end = std::min(row_end - input.first_row, input.x.rows);",
     "const int64_t end = std::min<int64_t>(std::min(row_end - input.first_row, input.x.rows), 128);",
     KERNELS),
    ("experts_behind_128_are_others", "src/kernels/cpu/packed_matrix.h",
     "const size_t at = size_t(index * group_count_) * group_bytes_;",
     "const size_t at = size_t(index % 128 * group_count_) * group_bytes_;", KERNELS),
    ("rows_of_experts_wrap", "src/kernels/cpu/expert_ops.cc",
     "row[slot[pair]] = static_cast<int32_t>(pair / routing.top_k);",
     "row[slot[pair]] = static_cast<int32_t>(pair / routing.top_k % 256);", KERNELS),
    ("far_blocks_are_near_ones", "src/kernels/cpu/attention.cc",
     "const int block = task.block_begin + int(index - task.partial);",
     "const int block = task.block_begin + int(index - task.partial) % 1024;",
     KERNELS),
    ("last_block_not_merged", "src/kernels/cpu/attention.cc",
     "p < std::min(end, task_end); ++p) {", "p < std::min(end, task_end) - (end == task_end); ++p) {", KERNELS),
    ("every_result_kept", "src/kernels/cpu/attention.cc",
     "kRoundFloats = 1 << 19;", "kRoundFloats = 1 << 28;", KERNELS),
    ("siblings_compute", "src/device/processors.cc",
     "return std::min(processors.at_once, processors.core_count());", "return processors.at_once;", DEVICE),
    ("window_one_block_short", "src/kernels/cpu/attention.cc",
     "const int begin = FirstSeen(call.params, s.position + row) / kKeys;",
     "const int begin = FirstSeen(call.params, s.position + row) / kKeys + (s.position > 4096 ? 1 : 0);",
     KERNELS),
    ("positions_wrap", "src/kernels/cpu/row_ops.cc",
     "static_cast<float>(step.host.positions[size_t(t)])",
     "static_cast<float>(step.host.positions[size_t(t)] % 131072)", KERNELS),
    ("taps_go_to_the_first", "src/kernels/cpu/segments.h",
     "std::byte* to = unit(tap(s, done).state);", "std::byte* to = unit(tap(s, 0).state);", KERNELS),
    ("third_tile_is_the_first", "src/kernels/cpu/scan_ops.cc",
     "const int column = static_cast<int>(task % tiles) * kTileColumns;",
     "const int column = static_cast<int>(task % tiles % 2) * kTileColumns;", KERNELS),
    ("mask_of_another_place", "src/grammar/matcher.cc",
     "    const auto key = static_cast<uint32_t>(place_);",
     "    const auto key = static_cast<uint32_t>(place_) / 2;", GRAMMAR),
    ("subtree_too_long", "src/grammar/parse/trie_walk.h",
     "node.chars <= plain(state)) {", "node.chars <= plain(state) + 1) {", GRAMMAR),
    ("count_forgets_the_pattern", "src/grammar/parse/plain.cc",
     "  const int64_t left = int64_t{form.max} - course.longest;",
     "  const int64_t left = int64_t{form.max};", GRAMMAR),
    ("within_by_its_beginning", "src/grammar/regex/regex_compare.cc",
     "within = pairs.size() <= kPairsMax && (!Nullable(a) || Nullable(b));",
     "within = pairs.size() <= kPairsMax;", GRAMMAR),
    ("fulfilled_is_not_dropped", "src/grammar/regex/regex_pool.cc",
     "  if (flat.size() > 1) Absorb(&flat);\n", "", GRAMMAR),
    ("excluded_is_not_nothing", "src/grammar/regex/regex_pool.cc",
     "  if (Excludes(flat)) return RegexId::kNothing;",
     "  if (Excludes(flat) && exhausted_) return RegexId::kNothing;", GRAMMAR),
    ("counts_within_counts_unseen", "src/grammar/parse/automaton.cc",
     "    if (!pool_.CountsCounts(grammar_->regex(lexeme))) continue;", "    continue;", GRAMMAR),
    ("any_number_of_properties", "src/grammar/schema/json_schema.cc",
     "    if (shape.properties.size() > kPropertiesMax) {", "    if (shape.properties.size() > 100 * kPropertiesMax) {", HOSTILE),
    ("share_without_limit", "src/base/account/account.cc",
     "bytes > limits_.share_bytes - std::min(limits_.share_bytes, held)", "bytes > limits_.bytes + held", BASE),
    ("refusal_forgotten", "src/base/account/account.cc",
     "if (steps <= left && !refused_) return OkStatus();", "if (steps <= left) return OkStatus();", BASE),
    ("body_forgotten", "src/base/account/account.cc",
     "    (void)holding_.Set(body_);", "    (void)holding_.Set(0);", BASE),
    ("holding_not_given_back", "src/base/account/account.h",
     "  ~Holding() { (void)Set(0); }", "  ~Holding() = default;", BASE),
    ("youngest_gives_way", "src/http/shares/places.cc",
     "    *leaves = giving->waiting.front();", "    *leaves = giving->waiting.back();", HTTP),
    ("address_without_share", "src/http/shares/places.cc",
     "own->second.count >= address_max_", "own->second.count >= count_max_", HTTP),
    ("least_gives_way", "src/http/shares/places.cc",
     "other.count > giving->count", "other.count < giving->count", HTTP),
    ("busy_gives_way", "src/http/connection.cc",
     "    if (parser_->state() != RequestParser::State::kHead) hub_->places->SetWaiting(this, false);\n",
     "", HTTP),
    ("idle_stays", "src/http/connection.cc",
     "  hub_->places->SetWaiting(this, true);\n  if (!buffer_.empty())", "  if (!buffer_.empty())", HTTP),
    ("heavy_share_has_all", "src/http/shares/work_queue.cc",
     "lane->of_share_max = std::max(1, threads - 1);", "lane->of_share_max = threads;", HTTP),
    ("quick_waits_for_small", "src/http/shares/work_queue.h",
     "single_ ? 0 : static_cast<size_t>(size)", "size == Size::kHeavy ? 2 : single_ ? 0 : 1", HTTP),
    ("every_task_wakes_all", "src/http/shares/work_queue.cc",
     "  lane.changed.notify_one();", "  lane.changed.notify_all();", HTTP),
    ("every_address_a_client", "src/http/shares/places.cc",
     "  std::fill(six.s6_addr + 8, six.s6_addr + 16, uint8_t{0});\n", "", HTTP),
    ("restart_stays_small", "src/http/connection.cc",
     "  if (size == WorkQueue::Size::kHeavy) exchange->account()->Widen();\n", "", HTTP),
    ("restart_forgotten", "src/http/connection.cc",
     "    if (!again) return live.DropBody();", "    if (!again || !exchange->request().id.empty()) return live.DropBody();", HTTP),
    ("heavy_ones_begin_small_for_ever", "src/http/connection.cc",
     "past.BeginsHeavy(share, &handler) ? Size::kHeavy : Size::kSmall;", "Size::kSmall;", HTTP),
    ("body_not_counted", "src/http/connection.cc",
     "account_->TakeBody(more).ok()", "account_->TakeBody(0).ok()", HTTP),
    ("turns_not_taken", "src/http/shares/work_queue.cc",
     "lane->turns.splice(lane->turns.end(), lane->turns, turn);",
     "lane->turns.splice(lane->turns.begin(), lane->turns, turn);", HTTP),
    ("refused_grammars_compiled_again", "src/api/constrain/constraints.cc",
     "    KeepRefusal(key, language.status());", "    if (limits_.refusals == 0) KeepRefusal(key, language.status());", ATTACK),
    ("languages_not_held", "src/api/constrain/constraints.cc",
     "  while (!language->Hold()) {", "  while (!language->Hold() && limits_.refusals == 0) {", ATTACK),
    ("kept_languages_stay", "src/api/constrain/constraints.cc",
     "  if (unused == entries_.rend()) return false;", "  return false;", ATTACK),
    ("references_not_paid", "src/api/responses/request.cc",
     "account->TakeReading(bytes, \"the items", "account->TakeReading(0 * bytes, \"the items", ATTACK),
    ("references_copied", "src/api/responses/item.cc",
     "  items_.push_back(*found);",
     "  items_.push_back(*found);\n  items_.back().text = std::string(found->text.get());", ATTACK),
    ("rerank_reads_all", "src/api/vectors/rerank.cc",
     "    meter.ids_max = static_cast<size_t>(model.context_tokens);\n", "", ATTACK),
    ("prompts_read_to_the_end", "src/api/chat/prompt.cc",
     "  if (wanted == Wanted::kWhatFits) meter.ids_max", "  if (wanted == Wanted::kWhatFits && account == nullptr) meter.ids_max", ATTACK),
    ("forgotten_requests_are_reported", "src/api/chat/reply.cc",
     "  if (!plan_.cache.forget) {", "  {", [("api_test", "src/api/api_test")]),
    ("forgotten_requests_are_stored", "src/api/chat/job.cc",
     "  cache->write = false;\n", "", [("api_test", "src/api/api_test")]),
    ("reply_not_paid", "src/api/chat/voice/reply_room.cc",
     "TakeAnswer(bytes, \"the reply\")", "TakeAnswer(0 * bytes, \"the reply\")", ATTACK),
    ("texts_around_a_gap_read_to_the_end", "src/api/llamacpp/infill.cc",
     "Wanted::kWhatFits", "Wanted::kAll", ATTACK),
    ("long_texts_not_paid", "src/api/ops/text_routes.cc",
     "TakeAnswer(3 * bytes, \"the text\")", "TakeAnswer(0 * bytes, \"the text\")", ATTACK),
    ("pieces_not_paid", "src/api/ops/text_routes.cc",
     "    if (with_pieces) bytes += kPieceBytes", "    if (with_pieces) bytes += 0 * kPieceBytes", ATTACK),
    ("small_requests_never_start_over", "src/api/errors.cc",
     "  if (exchange->account()->wants_more()) return exchange->StartOver();\n", "", ATTACK),
    ("left_clients_not_asked_for", "src/text/tokenizer.cc",
     "    if (meter->account != nullptr) REPRISE_TRY(meter->account->Spend(0, \"tokenising the text\"));\n", "", ATTACK),
    ("tokenising_is_free", "src/text/tokenizer.cc",
     "Spend(text.size() / kBytesPerStep, ", "Spend(0 * text.size() / kBytesPerStep, ", TEXT),
    ("stops_begin_again", "src/text/stop_strings.cc",
     "matched = stop.shorter[matched - 1];", "matched = 0;", TEXT),
    ("growth_not_held", "src/grammar/matcher.cc",
     "if (!run_->automaton.exhausted() && run_->Hold()) return status;",
     "if (!run_->automaton.exhausted()) return status;", GRAMMAR),
    ("grammar_not_held", "src/grammar/matcher.cc",
     "  return holding_.Set(grammar_->bytes()) && run->Hold();", "  return run->Hold();", GRAMMAR),
    ("masks_not_held", "src/grammar/matcher.h",
     "bytes_seen = bytes()", "bytes_seen = automaton.bytes()", GRAMMAR),
    *adapters.MUTANTS,
    *devices.MUTANTS,
    *((*mutant, API) for mutant in api.MUTANTS),
    *((*mutant, GRAMMAR) for mutant in grammar.MUTANTS),
    *((*mutant, HTTP) for mutant in http.MUTANTS),
    *((*mutant, SAMPLE) for mutant in sample.MUTANTS),
    *drafts.MUTANTS,
    *cpu.MUTANTS, *crowds.MUTANTS, *keys.MUTANTS, *operator.MUTANTS,
    *pictures.MUTANTS,
    *weights.MUTANTS,
]


def apply(mutant):
    """The mutated text of the file, or an exception that says what does not fit."""
    name, path, old, new, _ = mutant
    text = (ROOT / path).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{name}: its text occurs {text.count(old)} times in {path}, not once")
    return text.replace(old, new)


def judge(mutant, build, end):
    """'killed by TEST', 'SURVIVED', 'DOES NOT BUILD', or 'not judged' by the time `end`."""
    name, path, _, _, tests = mutant
    file = ROOT / path
    original = file.read_bytes()
    try:
        file.write_text(apply(mutant))
        made = subprocess.run(["ninja", "-C", build, *(target for target, _ in tests)],
                              capture_output=True, text=True, timeout=max(1, end - time.monotonic()))
        if made.returncode != 0:
            return "DOES NOT BUILD:\n" + made.stdout[-2000:]
        for target, program in tests:
            environment = dict(os.environ, REPRISE_SIM_SEEDS=SEEDS)
            left = end - time.monotonic()
            try:
                ran = subprocess.run([pathlib.Path(build) / program, "--gtest_fail_fast"], cwd=ROOT,
                                     env=environment, capture_output=True, text=True,
                                     timeout=max(1, min(600, left)))
            except subprocess.TimeoutExpired:
                return f"killed by {target} (it does not end)" if left > 600 else "not judged"
            if ran.returncode != 0:
                failed = [line for line in ran.stdout.splitlines() if line.startswith("[  FAILED  ]")]
                return f"killed by {failed[0][12:].split(' (')[0].strip() if failed else target}"
        return "SURVIVED"
    except subprocess.TimeoutExpired:
        return "not judged"
    finally:
        file.write_bytes(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--build", default=str(ROOT / "build/dev"), help="build folder")
    parser.add_argument("--check", action="store_true", help="only whether all apply")
    parser.add_argument("--count", type=int, help="try that many, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1, help="which ones --count chooses")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="stop after so long")
    arguments = parser.parse_args()
    known = {mutant[0] for mutant in MUTANTS}
    for name in arguments.names:
        if name not in known:
            sys.exit(f"there is no mutant '{name}' (known: {', '.join(sorted(known))})")
    wanted = [m for m in MUTANTS if not arguments.names or m[0] in arguments.names]
    for mutant in wanted:
        try:
            apply(mutant)
        except (ValueError, OSError) as error:
            sys.exit(str(error))
    if arguments.check:
        print(f"{len(wanted)} mutants apply")
        return
    if arguments.count is not None:
        wanted = random.Random(arguments.seed).sample(wanted, min(arguments.count, len(wanted)))
    end = time.monotonic() + 60 * arguments.minutes
    killed = alive = 0
    for mutant in wanted:
        begin = time.monotonic()
        verdict = judge(mutant, arguments.build, end) if begin < end else "not judged"
        killed += verdict.startswith("killed")
        alive += not verdict.startswith(("killed", "not judged"))
        print(f"{mutant[0]:30} {verdict} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{killed} of {len(wanted)} killed, {len(wanted) - killed - alive} not judged")
    sys.exit(alive > 0)


if __name__ == "__main__":
    main()
