// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/references.h"

#include <charconv>

namespace reprise::grammar {
namespace {

// Without the fragment, if that is empty.
std::string_view TrimFragment(std::string_view uri) {
  if (uri.ends_with('#')) uri.remove_suffix(1);
  return uri;
}

// RFC 3986 as far as schemas use it: a reference with a scheme stands for itself, "#x" is in the
// base, another name replaces what is behind the last slash.
std::string Resolve(std::string_view base, std::string_view reference) {
  if (reference.find("://") != reference.npos || reference.starts_with("urn:")) {
    return std::string(reference);
  }
  const std::string_view document = base.substr(0, base.find('#'));
  if (reference.starts_with('#')) return std::string(document) + std::string(reference);
  if (reference.starts_with('/')) {
    const size_t scheme = document.find("://");
    const size_t host = scheme == document.npos ? document.npos : document.find('/', scheme + 3);
    return std::string(document.substr(0, host)) + std::string(reference);
  }
  const size_t slash = document.rfind('/');
  const std::string_view folder = slash == document.npos ? "" : document.substr(0, slash + 1);
  return std::string(folder) + std::string(reference);
}

std::string DecodePercent(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// RFC 6901, behind the first slash.
const JsonValue* Follow(const JsonValue* node, std::string_view pointer) {
  while (node != nullptr && !pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t slash = pointer.find('/');
    std::string key = DecodePercent(pointer.substr(0, slash));
    pointer.remove_prefix(slash == pointer.npos ? pointer.size() : slash);
    for (const auto& [from, to] : {std::pair{"~1", '/'}, std::pair{"~0", '~'}}) {
      for (size_t at = key.find(from); at != key.npos; at = key.find(from, at + 1)) {
        key.replace(at, 2, 1, to);
      }
    }
    if (node->is_array()) {
      size_t index = 0;
      const auto done = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool number = done.ptr == key.data() + key.size() && !key.empty();
      node = number && index < node->items().size() ? &node->items()[index] : nullptr;
    } else {
      node = node->Find(key);
    }
  }
  return node;
}

}  // namespace

References::References(const JsonValue& root) : root_(root) { Collect(root, "", 0); }

void References::Collect(const JsonValue& node, const std::string& outer, int depth) {
  constexpr int kDepthMax = 256;
  if (depth > kDepthMax) return;
  if (node.is_array()) {
    for (const JsonValue& item : node.items()) Collect(item, outer, depth + 1);
  }
  if (!node.is_object()) return;
  std::string base = outer;
  for (const char* key : {"$id", "id"}) {
    const JsonValue* id = node.Find(key);
    if (id == nullptr || !id->is_string()) continue;
    const std::string name = Resolve(base, id->as_string());
    by_name_.emplace(TrimFragment(name), &node);
    if (!id->as_string().starts_with('#')) base = TrimFragment(name);
    if (depth == 0) base_ = base;
    break;
  }
  const JsonValue* anchor = node.Find("$anchor");
  if (anchor != nullptr && anchor->is_string()) {
    by_name_.emplace(base + "#" + std::string(anchor->as_string()), &node);
  }
  for (const auto& member : node.members()) Collect(member.value, base, depth + 1);
}

Result<const JsonValue*> References::Find(std::string_view reference) const {
  const JsonValue* found = nullptr;
  const std::string full = Resolve(base_, reference);
  const size_t hash = full.find('#');
  const std::string document = full.substr(0, hash);
  const std::string fragment = hash == full.npos ? "" : full.substr(hash + 1);
  if (const auto whole = by_name_.find(full); whole != by_name_.end()) {
    found = whole->second;
  } else if (fragment.empty() || fragment.starts_with('/')) {
    const auto part = by_name_.find(document);
    if (document == base_ || document.empty()) {
      found = &root_;
    } else if (part != by_name_.end()) {
      found = part->second;
    }
    if (found != nullptr && !fragment.empty()) found = Follow(found, fragment);
  }
  if (found != nullptr) return found;
  return Unimplemented("$ref \"" + std::string(reference.substr(0, 200)) +
                       "\" leads to nothing in this schema, and nothing is fetched");
}

}  // namespace reprise::grammar
