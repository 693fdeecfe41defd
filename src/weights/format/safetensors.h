// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/format/stored_tensor.h"
#include "weights/format/tensor_stream.h"

namespace reprise {

// safetensors:
//
//   u64 N | N bytes of JSON | data
//   {"name": {"dtype": "BF16", "shape": [64, 128], "data_offsets": [begin, end]}, ...,
//    "__metadata__": {"format": "pt"}}
//
// Offsets count from the first byte after the JSON. The tensors cover the data without holes or
// overlaps, each with exactly the bytes of its shape. Data may be unaligned.
//
// A file may hold tensors that nobody asks for in types that we do not compute with (masks,
// counters); they are kept under `foreign` so that asking for one can be answered.
class SafetensorsFile {
 public:
  static constexpr uint64_t kHeaderBytesMax = 100'000'000;

  struct Foreign {
    std::string_view name;
    std::string_view type;
    Shape shape;
    std::span<const std::byte> bytes;
  };

  // Views of `bytes`, which must outlive the result. Costs: memory in proportion to the header.
  static Result<SafetensorsFile> Parse(std::span<const std::byte> bytes);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // F32 F16 BF16 I32
  const std::vector<Foreign>& foreign() const { return foreign_; }
  const StoredTensor* Find(std::string_view name) const;  // linear
  // A one-dimensional tensor of I32 or I64 as ids. Fails if absent, of another type, or if a value
  // does not fit 32 bits.
  Result<std::vector<int32_t>> ReadIds(std::string_view name) const;
  // A string of __metadata__, if present.
  std::optional<std::string_view> FindMetadata(std::string_view key) const;

 private:
  explicit SafetensorsFile(JsonDocument header) : header_(std::move(header)) {}

  JsonDocument header_;  // names are views of it
  std::vector<StoredTensor> tensors_;
  std::vector<Foreign> foreign_;
};

// Writes a safetensors file: first the list of tensors, then their data in that order.
class SafetensorsWriter {
 public:
  // REQUIRES: before Open; dtype is F32, F16, BF16 or I32; the name is new.
  void AddTensor(std::string_view name, DType dtype, const Shape& shape);
  void PutMetadata(std::string_view key, std::string_view value);

  Status Open(const std::string& path);
  Status Append(std::span<const std::byte> bytes) { return stream_->Append(bytes); }
  Status Finish() { return stream_->Finish(); }

 private:
  std::string entries_;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::vector<uint64_t> sizes_;
  uint64_t offset_ = 0;
  std::optional<TensorStream> stream_;
};

}  // namespace reprise
