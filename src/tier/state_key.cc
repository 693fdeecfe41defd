// SPDX-License-Identifier: Apache-2.0
#include "tier/state_key.h"

#include <fcntl.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace reprise {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool ReadHex(std::string_view text, StateKey::Bytes* key) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  if (text.size() != 2 * key->size()) return false;
  for (size_t i = 0; i < key->size(); ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*key)[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

Result<StateKey> StateKey::Read(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return NotFound("the key file " + path + " cannot be opened: " + std::strerror(errno));
  }
  struct stat facts = {};
  std::array<char, 128> text;
  ssize_t size = -1;
  if (::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode)) {
    size = ::read(file, text.data(), text.size());
  }
  ::close(file);
  if (size < 0) return InvalidArgument("the key file " + path + " is not a file to read");
  if ((facts.st_mode & 077) != 0) {
    return InvalidArgument("the key file " + path +
                           " can be read by others than its owner; chmod it to 600");
  }
  StateKey key;
  key.secret_ = true;
  const std::string_view whole(text.data(), static_cast<size_t>(size));
  if (whole.size() == key.key_.size()) {
    std::memcpy(key.key_.data(), whole.data(), key.key_.size());
    return key;
  }
  if (ReadHex(whole, &key.key_)) return key;
  return InvalidArgument("the key file " + path +
                         " must have 32 bytes or 64 hexadecimal digits (openssl rand -hex 32)");
}

StateKey StateKey::Of(const Bytes& secret) {
  StateKey key;
  key.secret_ = true;
  key.key_ = secret;
  return key;
}

StateKey::Bytes StateKey::Derive(std::string_view label, std::string_view about) const {
  std::string text(label);
  text.push_back('\0');
  text.append(about);
  Bytes derived;
  unsigned int size = 0;
  CHECK(::HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
               reinterpret_cast<const uint8_t*>(text.data()), text.size(), derived.data(),
               &size) != nullptr &&
        size == derived.size());
  return derived;
}

PathId StateKey::NamespaceOf(std::string_view digest, std::string_view salt) const {
  std::string about = std::to_string(digest.size()) + ":";
  about.append(digest);
  about.append(salt);
  return {Derive("namespace", about)};
}

}  // namespace reprise
