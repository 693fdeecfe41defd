// SPDX-License-Identifier: Apache-2.0
#include "cache/tier/rehearsal_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {

RehearsalTier::RehearsalTier(const Options& options, Folder* folder)
    : options_(options), rng_(options.seed), folder_(folder != nullptr ? folder : &own_) {
  earlier_ = std::exchange(*folder_, {});
}

void RehearsalTier::Open(const StateMemory& memory, DeviceMemory& device) {
  memory_ = memory;
  device_ = &device;
}

void RehearsalTier::Find(const NamespaceKey& key, const PromptPaths& paths, const Found& found) {
  const std::span<const TokenId> prompt = paths.tokens();
  for (auto one = earlier_.begin(); one != earlier_.end();) {  // parents have smaller ids
    Kept& kept = one->second;
    const bool along = kept.key == key && kept.tokens.size() <= prompt.size() &&
                       std::equal(kept.tokens.begin(), kept.tokens.end(), prompt.begin());
    if (!along) {
      ++one;
      continue;
    }
    const auto parent = renamed_.find(kept.head.parent);
    const bool orphan = kept.head.parent.valid() && parent == renamed_.end();
    TierRecordId id;
    if (!orphan) {
      id = found({.parent = kept.head.parent.valid() ? parent->second : TierRecordId(),
                  .first_block = kept.head.first_block,
                  .position = kept.head.position,
                  .reason = kept.head.reason});
    }
    if (id.valid()) {
      renamed_[one->first] = id;
      kept.head.id = id;
      folder_->emplace(id, std::move(kept));
    }
    one = earlier_.erase(one);
  }
}

void RehearsalTier::Begin(const Move& move) {
  if (move.kind == Move::Kind::kFetch) Scribble(move);
  const auto polls = static_cast<int>(rng_.Below(static_cast<uint64_t>(options_.polls_max) + 1));
  pending_.push_back({move, polls});
}

void RehearsalTier::Scribble(const Move& move) {
  const auto noise = [&](DevicePtr<std::byte> to, size_t bytes) {
    const std::vector<std::byte> garbage(bytes, static_cast<std::byte>(rng_.Below(256)));
    device_->Upload(to, garbage.data(), bytes);
  };
  for (const BlockId block : move.blocks)
    noise(memory_.block(block), memory_.layout->block_bytes());
  if (move.state.valid()) noise(memory_.state(move.state), memory_.layout->state_bytes());
}

void RehearsalTier::Cancel(uint64_t move) {
  CHECK(std::erase_if(pending_, [&](const Pending& one) { return one.move.id == move; }) == 1);
}

void RehearsalTier::Remove(TierRecordId record) { folder_->erase(record); }

void RehearsalTier::Reset(const NamespaceKey* key) {
  for (Folder* folder : {folder_, &earlier_}) {
    std::erase_if(*folder,
                  [&](const auto& one) { return key == nullptr || one.second.key == *key; });
  }
}

size_t RehearsalTier::Write(const Move& move) {
  Kept kept;
  kept.key = *move.key;
  kept.head = move.records.front();
  kept.tokens.assign(move.tokens.begin(), move.tokens.end());
  size_t bytes = 0;
  for (size_t i = 0; i < move.blocks.size(); ++i) {
    auto& block = kept.blocks[move.first_block + static_cast<int32_t>(i)];
    block.resize(memory_.layout->block_bytes());
    device_->Download(block.data(), memory_.block(move.blocks[i]), block.size());
    if (options_.lies) block[0] ^= std::byte{1};
    bytes += block.size();
  }
  if (move.state.valid()) {
    kept.state.resize(memory_.layout->state_bytes());
    device_->Download(kept.state.data(), memory_.state(move.state), kept.state.size());
    if (options_.lies) kept.state[0] ^= std::byte{1};
    bytes += kept.state.size();
  }
  (*folder_)[kept.head.id] = std::move(kept);
  return bytes;
}

size_t RehearsalTier::Read(const Move& move) {
  size_t bytes = 0;
  for (const RecordHead& head : move.records) {
    const auto at = folder_->find(head.id);
    if (at == folder_->end()) return 0;
    for (const auto& [grid, block] : at->second.blocks) {
      if (grid < move.first_block) continue;
      const BlockId to = move.blocks.at(static_cast<size_t>(grid - move.first_block));
      device_->Upload(memory_.block(to), block.data(), block.size());
      bytes += block.size();
    }
  }
  if (move.state.valid()) {
    const std::vector<std::byte>& state = folder_->at(move.records.back().id).state;
    device_->Upload(memory_.state(move.state), state.data(), state.size());
    bytes += state.size();
  }
  return bytes;
}

Tier::News RehearsalTier::Poll(When) {
  const auto chance = [this](int percent) {
    return rng_.Below(100) < static_cast<uint64_t>(percent);
  };
  News news;
  std::vector<Pending> later;
  for (Pending& one : pending_) {
    if (one.polls_left-- > 0) {
      later.push_back(std::move(one));
      continue;
    }
    MoveDone done{.id = one.move.id, .ok = !chance(options_.percent_failing)};
    if (done.ok) {
      done.bytes = one.move.kind == Move::Kind::kSpill ? Write(one.move) : Read(one.move);
      done.ok = done.bytes > 0;
    }
    done.ns = static_cast<int64_t>(done.bytes) * options_.ns_per_byte;
    news.done.push_back(done);
  }
  pending_ = std::move(later);
  if (!folder_->empty() && chance(options_.percent_lost)) {
    const auto victim =
        std::next(folder_->begin(), static_cast<ptrdiff_t>(rng_.Below(folder_->size())));
    news.lost.push_back(victim->first);
    folder_->erase(victim);
  }
  return news;
}

}  // namespace reprise
