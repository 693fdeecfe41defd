"""Mutants of a change of keys, and of models that share a server. See mutants.py."""

CACHE = [("cache_test", "src/cache/cache_test")]
TIER = [("tier_test", "src/tier/tier_test")]
CLI = [("cli_test", "src/cli/cli_test")]

MUTANTS = [
    ("old_records_are_continued", "src/cache/tier/record_tier.cc",
     "!models_before_.contains(catalog[place->record].facts.model)", "true", CACHE),
    ("old_records_are_not_sought", "src/cache/tier/record_tier.cc",
     "  if (before) roots.push_back(*before);\n", "", CACHE),
    ("old_records_stay_known", "src/cache/tier/known_records.cc",
     "  Forget(id);\n  Know(id, place);", "  Know(id, place);", CACHE),
    ("nearer_old_records_count_as_all", "src/cache/tier/joined_tier.cc",
     "return has && tier->Continues(record);", "return has && (tier == tiers_[0] || tier->Continues(record));",
     CACHE),
    ("old_documents_unread", "src/tier/documents/document_store.cc",
     "  for (const StateKey& key : keys_.all()) {\n    auto content",
     "  for (const StateKey& key : keys_.all().first(1)) {\n    auto content", TIER),
    ("old_documents_stay", "src/tier/documents/document_store.cc",
     "if (entries_.contains(id)) queue_.push_back({.id = std::move(id), .remove = true});", "", TIER),
    ("old_documents_are_anothers", "src/tier/documents/document_store.cc",
     "    if (old == owners_.end()) continue;", "    if (old == owners_.end() || true) continue;", TIER),
    ("who_was_let_in_waits_again", "src/cli/serve/fleet/fleet.cc",
     "if (!let_in && member->place", "if (member->place", CLI),
    ("models_come_as_they_are_listed", "src/cli/serve/fleet/fleet.cc",
     "if (next == nullptr || member.wanted_at < next->wanted_at) next = &member;",
     "if (next == nullptr) next = &member;", CLI),
    ("who_waited_is_no_guest", "src/cli/serve/fleet/fleet.cc",
     "  for (const Waiting& one : member->waiting) member->guests.insert(one.exchange);\n", "", CLI),
    ("guests_stay_when_they_leave", "src/cli/serve/fleet/fleet.cc",
     "    if (member->guests.erase(exchange) == 0) return;", "    if (member->guests.count(exchange) == 0) return;", CLI),
]
