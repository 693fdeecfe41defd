// SPDX-License-Identifier: Apache-2.0
#include "text/output/reasoning.h"

#include "text/output/tag_search.h"

namespace reprise {
namespace {

constexpr std::string_view kBegin = "<think>";
constexpr std::string_view kEnd = "</think>";

}  // namespace

void ReasoningSplitter::Feed(std::string_view text, std::string* reasoning, std::string* content) {
  pending_ += text;
  if (state_ == State::kStart) {
    const std::string_view begun = std::string_view(pending_).substr(BlanksAtStart(pending_));
    if (begun.size() < kBegin.size() && kBegin.starts_with(begun)) return;  // not decided
    if (begun.starts_with(kBegin)) {
      pending_ = begun.substr(kBegin.size());
      state_ = State::kThinking;
    } else {
      state_ = State::kContent;
    }
  }
  if (state_ == State::kThinking) {
    if (!thought_any_) pending_.erase(0, BlanksAtStart(pending_));
    const size_t end = pending_.find(kEnd);
    const std::string_view thought = std::string_view(pending_).substr(
        0, end == std::string::npos ? pending_.size() - TagBegunAtEnd(pending_, kEnd) : end);
    const size_t kept = thought.size() - BlanksAtEnd(thought);
    reasoning->append(pending_, 0, kept);
    thought_any_ = thought_any_ || kept > 0;
    pending_.erase(0, end == std::string::npos ? kept : end + kEnd.size());
    if (end == std::string::npos) return;
    state_ = State::kBetween;
  }
  if (state_ == State::kBetween) {
    pending_.erase(0, BlanksAtStart(pending_));
    if (pending_.empty()) return;
    state_ = State::kContent;
  }
  *content += pending_;
  pending_.clear();
}

void ReasoningSplitter::Finish(std::string* reasoning, std::string* content) {
  // White space at the end of unfinished thinking is dropped; the beginning of a tag is not one.
  if (state_ == State::kThinking) {
    reasoning->append(pending_, 0, pending_.size() - BlanksAtEnd(pending_));
  } else if (state_ == State::kStart) {
    *content += pending_;
  }
  pending_.clear();
}

}  // namespace reprise
