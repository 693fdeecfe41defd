// SPDX-License-Identifier: Apache-2.0
#include "tier/seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <xxhash.h>

#include <cstring>
#include <limits>

#include "base/check.h"

namespace reprise {
namespace {

constexpr size_t kNonceBytes = 12;

uint8_t* BytesOf(std::span<std::byte> data) { return reinterpret_cast<uint8_t*>(data.data()); }
const uint8_t* BytesOf(std::span<const std::byte> data) {
  return reinterpret_cast<const uint8_t*>(data.data());
}

std::array<uint8_t, kNonceBytes> NonceOf(uint32_t part) {
  std::array<uint8_t, kNonceBytes> nonce{};
  for (int i = 0; i < 4; ++i) nonce[static_cast<size_t>(i)] = static_cast<uint8_t>(part >> (8 * i));
  return nonce;
}

}  // namespace

struct Seal::Cipher {
  StateKey::Bytes key;
  EVP_CIPHER_CTX* context = ::EVP_CIPHER_CTX_new();

  ~Cipher() {
    ::EVP_CIPHER_CTX_free(context);
    ::OPENSSL_cleanse(key.data(), key.size());
  }
  // Returns false only where a tag does not fit.
  bool Run(bool close, uint32_t part, std::span<std::byte> data, std::span<const std::byte> also,
           Tag* tag) {
    const auto nonce = NonceOf(part);
    const int size = static_cast<int>(data.size());
    int done = 0;
    CHECK(::EVP_CipherInit_ex(context, EVP_aes_256_gcm(), nullptr, key.data(), nonce.data(),
                              close ? 1 : 0) == 1);
    if (!also.empty()) {
      CHECK(::EVP_CipherUpdate(context, nullptr, &done, BytesOf(also),
                               static_cast<int>(also.size())) == 1);
    }
    if (size > 0) {
      CHECK(::EVP_CipherUpdate(context, BytesOf(data), &done, BytesOf(data), size) == 1 &&
            done == size);
    }
    if (!close) {
      CHECK(::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag->data()) == 1);
    }
    std::array<uint8_t, 16> rest;
    if (::EVP_CipherFinal_ex(context, rest.data(), &done) != 1) return false;
    if (close) {
      CHECK(::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, tag->data()) == 1);
    }
    return true;
  }
};

Seal::Seal(const StateKey& key, const Salt& salt) {
  const std::string_view about(reinterpret_cast<const char*>(salt.data()), salt.size());
  const StateKey::Bytes derived = key.Derive("record", about);
  std::memcpy(&seed_, derived.data(), sizeof(seed_));
  if (!key.secret()) return;
  cipher_ = std::make_unique<Cipher>();
  CHECK(cipher_->context != nullptr);
  cipher_->key = derived;
}

Seal::~Seal() = default;

Seal::Tag Seal::Sum(uint32_t part, std::span<const std::byte> data,
                    std::span<const std::byte> also) const {
  const uint64_t first = XXH3_64bits_withSeed(also.data(), also.size(), seed_ + part);
  const XXH128_hash_t sum = XXH3_128bits_withSeed(data.data(), data.size(), first);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, sum);
  Tag tag;
  std::memcpy(tag.data(), canonical.digest, tag.size());
  return tag;
}

Seal::Tag Seal::Close(uint32_t part, std::span<std::byte> data, std::span<const std::byte> also) {
  CHECK(data.size() < size_t{std::numeric_limits<int>::max()});
  if (cipher_ == nullptr) return Sum(part, data, also);
  Tag tag;
  CHECK(cipher_->Run(/*close=*/true, part, data, also, &tag));
  return tag;
}

bool Seal::Open(uint32_t part, std::span<std::byte> data, const Tag& tag,
                std::span<const std::byte> also) {
  CHECK(data.size() < size_t{std::numeric_limits<int>::max()});
  if (cipher_ == nullptr) return Sum(part, data, also) == tag;
  Tag expected = tag;
  return cipher_->Run(/*close=*/false, part, data, also, &expected);
}

Seal::Salt RandomSalt() {
  Seal::Salt salt;
  CHECK(::RAND_bytes(salt.data(), static_cast<int>(salt.size())) == 1);
  return salt;
}

}  // namespace reprise
