// SPDX-License-Identifier: Apache-2.0
#include "events/event_batch.h"

#include "events/msgpack.h"
#include "state/virtual_tokens.h"

namespace reprise {
namespace {

constexpr char kMedium[] = "GPU";

void WriteHashes(const BlockEvent& event, MsgpackWriter* out) {
  out->Array(event.hashes.size());
  for (const uint64_t hash : event.hashes) out->Uint(hash);
}

void WriteEvent(const BlockEvent& event, int32_t block_tokens, MsgpackWriter* out) {
  switch (event.kind) {
    case BlockEvent::Kind::kStored:
      out->Array(8).String("BlockStored");
      WriteHashes(event, out);
      event.parent ? out->Uint(*event.parent) : out->Nil();
      out->Array(event.tokens.size());
      for (const TokenId token : event.tokens) {
        out->Uint(IsVirtual(token) ? VirtualTokens::Get().Word(token) : uint64_t(token));
      }
      out->Uint(static_cast<uint32_t>(block_tokens)).Nil().String(kMedium).Nil();
      return;
    case BlockEvent::Kind::kRemoved:
      out->Array(3).String("BlockRemoved");
      WriteHashes(event, out);
      out->String(kMedium);
      return;
    case BlockEvent::Kind::kCleared:
      out->Array(1).String("AllBlocksCleared");
      return;
  }
}

}  // namespace

std::string EncodeBatch(double seconds, std::span<const BlockEvent> events, int32_t block_tokens) {
  std::string bytes;
  MsgpackWriter out(&bytes);
  out.Array(3).Double(seconds).Array(events.size());
  for (const BlockEvent& event : events) WriteEvent(event, block_tokens, &out);
  out.Uint(0);
  return bytes;
}

}  // namespace reprise
