// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: refused, or the tensors cover the data exactly.
#include <cstdint>

#include "base/check.h"
#include "weights/format/safetensors.h"

namespace {
uint64_t sink = 0;
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const auto file = reprise::SafetensorsFile::Parse(std::as_bytes(bytes));
  if (!file.ok()) {
    CHECK(!file.status().message().empty());
    return 0;
  }
  size_t total = 0;
  for (const reprise::StoredTensor& tensor : file->tensors()) {
    CHECK(tensor.bytes.size() == *reprise::TensorBytes(tensor.dtype, tensor.shape));
    for (const std::byte b : tensor.bytes) sink += static_cast<uint8_t>(b);
    total += tensor.bytes.size();
    sink += file->ReadIds(tensor.name).ok() + tensor.name.size();
  }
  for (const auto& tensor : file->foreign()) {
    for (const std::byte b : tensor.bytes) sink += static_cast<uint8_t>(b);
    total += tensor.bytes.size();
    sink += file->ReadIds(tensor.name).ok();
  }
  CHECK(total < size);
  sink += file->FindMetadata("format").has_value();
  return 0;
}
