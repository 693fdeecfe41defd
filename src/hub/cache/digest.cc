// SPDX-License-Identifier: Apache-2.0
#include "hub/cache/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace reprise::hub {

struct Digest::Context {
  EVP_MD_CTX* evp = ::EVP_MD_CTX_new();
  ~Context() { ::EVP_MD_CTX_free(evp); }
};

Digest::Digest(std::string_view expected, uint64_t bytes) : context_(new Context) {
  const bool git = expected.size() == 40;
  CHECK(context_->evp != nullptr);
  CHECK(::EVP_DigestInit_ex(context_->evp, git ? ::EVP_sha1() : ::EVP_sha256(), nullptr) == 1);
  if (!git) return;
  const std::string head = "blob " + std::to_string(bytes);
  Add({head.c_str(), head.size() + 1});
}

Digest::~Digest() = default;

void Digest::Add(std::string_view piece) {
  CHECK(::EVP_DigestUpdate(context_->evp, piece.data(), piece.size()) == 1);
}

std::string Digest::Finish() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int count = 0;
  CHECK(::EVP_DigestFinal_ex(context_->evp, bytes, &count) == 1);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace reprise::hub
