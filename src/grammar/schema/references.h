// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "base/status.h"

namespace reprise::grammar {

// Finds what a `$ref` of a schema refers to: a place in the same document, by pointer
// ("#/$defs/item"), by anchor ("#item") or by the `$id` of a part. Nothing is ever fetched.
class References {
 public:
  // The document must outlive this.
  explicit References(const JsonValue& root);

  // Fails with kUnimplemented, naming the reference.
  Result<const JsonValue*> Find(std::string_view reference) const;

 private:
  void Collect(const JsonValue& node, const std::string& base, int depth);

  const JsonValue& root_;
  std::string base_;                                           // the root's own $id
  std::unordered_map<std::string, const JsonValue*> by_name_;  // ids and anchors, resolved
};

}  // namespace reprise::grammar
