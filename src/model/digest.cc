// SPDX-License-Identifier: Apache-2.0
#include "model/digest.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/check.h"

namespace reprise {
namespace {

// Pieces of a large range are hashed apart and their hashes hashed together: changing this changes
// every digest.
constexpr size_t kPiece = size_t{1} << 20;

}  // namespace

struct Digest::State {
  XXH3_state_t* hash = XXH3_createState();
};

Digest::Digest() : state_(std::make_unique<State>()) {
  CHECK(state_->hash != nullptr && XXH3_128bits_reset(state_->hash) == XXH_OK);
}

Digest::~Digest() { XXH3_freeState(state_->hash); }

void Digest::Add(std::string_view text) {
  const uint64_t size = text.size();
  XXH3_128bits_update(state_->hash, &size, sizeof(size));
  XXH3_128bits_update(state_->hash, text.data(), text.size());
}

void Digest::AddBytes(ThreadPool& pool, std::span<const std::byte> bytes) {
  std::vector<XXH128_canonical_t> pieces((bytes.size() + kPiece - 1) / kPiece);
  pool.ParallelFor(int64_t(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::span<const std::byte> piece =
          bytes.subspan(size_t(i) * kPiece)
              .first(std::min(kPiece, bytes.size() - size_t(i) * kPiece));
      XXH128_canonicalFromHash(&pieces[size_t(i)], XXH3_128bits(piece.data(), piece.size()));
    }
  });
  Add({reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(pieces[0])});
}

std::string Digest::Hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->hash));
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

}  // namespace reprise
