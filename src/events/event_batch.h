// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cache/announce/block_event.h"

namespace reprise {

// The payload of a message, as vLLM has it: MessagePack of
//
//   [seconds since 1970, [event, ...], data-parallel rank (0)]
//   ["BlockStored", [hash, ...], hash before them | nil, [token, ...], tokens of a block,
//    adapter (nil), medium, name of the adapter (nil)]
//   ["BlockRemoved", [hash, ...], medium]
//   ["AllBlocksCleared"]
//
// Arrays, not maps: all consumers read them. The medium is "GPU", their name for memory that a
// request starts from at once.
std::string EncodeBatch(double seconds, std::span<const BlockEvent> events, int32_t block_tokens);

}  // namespace reprise
