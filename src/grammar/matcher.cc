// SPDX-License-Identifier: Apache-2.0
#include "grammar/matcher.h"

#include <algorithm>

namespace reprise::grammar {
namespace {

// Some 100 ns each; what was computed once is not computed again.
constexpr uint64_t kLexemeSteps = 200'000;  // of a lexeme, when it is compiled

}  // namespace

Language::Language(Grammar grammar, std::shared_ptr<const TokenTrie> trie, const Limits& limits)
    : grammar_(std::make_shared<const Grammar>(std::move(grammar))),
      trie_(std::move(trie)),
      limits_(limits),
      holding_(limits.ledger, limits.share),
      run_(std::make_shared<Run>(grammar_, limits_)) {}

size_t Language::Run::bytes() const {
  size_t bytes = automaton.bytes();
  for (const auto& [place, mask] : masks) bytes += mask.size() * sizeof(uint64_t);
  return bytes;
}

std::shared_ptr<Language::Run> Language::Current() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

std::shared_ptr<Language::Run> Language::Replace(const std::shared_ptr<Run>& old) {
  const std::lock_guard lock(mutex_);
  if (run_ == old) run_ = std::make_shared<Run>(grammar_, limits_);
  return run_;
}

Status Language::Prepare(uint64_t steps_max) {
  const std::shared_ptr<Run> run = Current();
  const std::lock_guard lock(run->mutex);
  if (run->automaton.Prepare(*trie_, kLexemeSteps, steps_max)) return OkStatus();
  return Unimplemented(
      "a pattern that counts what is itself counted, as in (a{1,9}b){1,9}, takes too long to "
      "follow");
}

bool Language::Hold() {
  const std::shared_ptr<Run> run = Current();
  const std::lock_guard lock(run->mutex);
  return holding_.Set(grammar_->bytes()) && run->Hold();
}

uint64_t Language::steps() const {
  const std::shared_ptr<Run> run = Current();
  const std::lock_guard lock(run->mutex);
  return run->automaton.steps();
}

size_t Language::bytes() const {
  const std::shared_ptr<Run> run = Current();
  const std::unique_lock lock(run->mutex, std::try_to_lock);
  if (lock.owns_lock()) run->bytes_seen = run->bytes();
  return grammar_->bytes() + run->bytes_seen;
}

Matcher::Matcher(std::shared_ptr<Language> language)
    : language_(std::move(language)), run_(language_->Current()), place_(run_->automaton.start()) {}

template <typename StepFn>
Status Matcher::Try(bool much, uint64_t steps_max, StepFn&& step) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const std::lock_guard lock(run_->mutex);
      const bool crowded = much && attempt == 0 && run_->automaton.crowded();
      if (!run_->automaton.exhausted() && !crowded) {
        run_->automaton.AllowSteps(steps_max);
        const Status status = step(*run_);
        if (!run_->automaton.exhausted() && run_->Hold()) return status;
      }
    }
    // The old places mean nothing to the new automaton, unless they are taken along.
    const std::shared_ptr<Language::Run> old = run_;
    run_ = language_->Replace(old);
    if (run_ == old) break;
    const std::scoped_lock locks(old->mutex, run_->mutex);
    std::vector<PlaceId> places = {place_};
    for (const Mark& mark : marks_) places.push_back(mark.place);
    run_->automaton.Import(old->automaton, places);
    place_ = places[0];
    for (size_t i = 0; i < marks_.size(); ++i) marks_[i].place = places[i + 1];
  }
  return ResourceExhausted("the constraint takes more time or memory than it may");
}

void Matcher::Note() {
  if (marks_.size() == 2 * kRollbackMax)
    marks_.erase(marks_.begin(), marks_.begin() + kRollbackMax);
  marks_.push_back({place_, static_cast<uint32_t>(text_.size())});
}

Status Matcher::AcceptBytes(std::string_view bytes) {
  if (ended_) return InvalidArgument("the text has ended");
  return Try(/*much=*/false, kTokenSteps, [&](Language::Run& run) -> Status {
    PlaceId place = place_;
    for (const char byte : bytes) place = run.automaton.Next(place, static_cast<uint8_t>(byte));
    if (run.automaton.exhausted()) return OkStatus();
    if (place == PlaceId::kDead) return InvalidArgument("the text is not allowed here");
    Note();
    text_ += bytes;
    place_ = place;
    return OkStatus();
  });
}

Status Matcher::Accept(int32_t token) {
  const TokenTrie& trie = language_->trie();
  if (token < 0 || static_cast<size_t>(token) >= trie.vocab_size()) {
    return InvalidArgument("no token of the vocabulary");
  }
  if (std::ranges::find(trie.ends(), token) != trie.ends().end()) {
    if (ended_ || !complete()) return InvalidArgument("the text cannot end here");
    Note();
    ended_ = true;
    return OkStatus();
  }
  const std::string_view bytes = trie.bytes(token);
  if (bytes.empty()) return InvalidArgument("the token has no text");
  return AcceptBytes(bytes);
}

void Matcher::Rollback(size_t count) {
  CHECK(count <= marks_.size());
  if (count == 0) return;
  const Mark mark = marks_[marks_.size() - count];
  marks_.resize(marks_.size() - count);
  place_ = mark.place;
  text_.resize(mark.text_size);
  ended_ = false;
}

bool Matcher::complete() {
  const std::lock_guard lock(run_->mutex);
  return run_->automaton.Accepts(place_);
}

std::string Matcher::Forced(size_t max, bool* ends) {
  std::string forced;
  bool over = false;
  if (ends != nullptr) *ends = false;
  if (ended_) return forced;
  const Status status = Try(/*much=*/false, kTokenSteps, [&](Language::Run& run) {
    forced.clear();
    PlaceId place = place_;
    while (forced.size() < max) {
      const int byte = run.automaton.OnlyByte(place);
      if (byte < 0) break;
      forced += static_cast<char>(byte);
      place = run.automaton.Next(place, static_cast<uint8_t>(byte));
    }
    over = run.automaton.Ends(place);
    return OkStatus();
  });
  if (!status.ok()) return {};
  if (ends != nullptr) *ends = over;
  return forced;
}

void Matcher::Walk(Language::Run& run, std::span<uint64_t> mask) const {
  Automaton& automaton = run.automaton;
  const TokenTrie& trie = language_->trie();
  const auto allow = [&](int32_t token) {
    mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token & 63);
  };
  run.walk.Run(
      trie, place_, automaton.PlainDepth(place_),
      [&](PlaceId place, uint8_t byte) { return automaton.Next(place, byte); },
      [&](PlaceId place) { return automaton.PlainByForm(place); },
      [&](const TokenTrie::Part& part) {
        for (size_t i = 0; i < mask.size(); ++i) mask[i] |= part.mask[i];
      },
      allow);
  if (automaton.Accepts(place_)) {
    for (const int32_t end : trie.ends()) allow(end);
  }
}

Status Matcher::Fill(std::span<uint64_t> mask, uint64_t steps_max) {
  CHECK(mask.size() == (language_->trie().vocab_size() + 63) / 64);
  return Try(/*much=*/true, steps_max, [&](Language::Run& run) {
    std::fill(mask.begin(), mask.end(), 0);
    if (ended_) return OkStatus();
    const auto key = static_cast<uint32_t>(place_);
    if (const auto known = run.masks.find(key); known != run.masks.end()) {
      std::copy(known->second.begin(), known->second.end(), mask.begin());
      return OkStatus();
    }
    Walk(run, mask);
    if (run.automaton.exhausted()) return OkStatus();
    if (run.masks.size() >= language_->limits_.masks) run.masks.clear();
    run.masks.emplace(key, std::vector<uint64_t>(mask.begin(), mask.end()));
    return OkStatus();
  });
}

}  // namespace reprise::grammar
