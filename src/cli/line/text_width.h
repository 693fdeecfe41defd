// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace reprise::cli {

// Columns of a terminal that a character takes: 0 (combining marks, joiners), 1, or 2 (East Asian,
// emoji). As the C library knows them. Control characters take none.
int ColumnsOf(uint32_t code);

// A character as a person sees it: a code point with the marks, joined parts and flags that belong
// to it. Not all of Unicode's rules for grapheme clusters, but what people type and paste.
struct Cluster {
  size_t bytes = 0;
  int columns = 0;
};

// The cluster at the start of `text`; invalid bytes are one cluster each.
// REQUIRES: text is not empty.
Cluster FirstCluster(std::string_view text);

// Where the cluster begins that ends at byte `at`. REQUIRES: 0 < at <= text.size(), and a cluster
// ends there.
size_t ClusterBefore(std::string_view text, size_t at);

// Columns of a text without line breaks.
int ColumnsOf(std::string_view text);

}  // namespace reprise::cli
