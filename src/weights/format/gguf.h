// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/format/stored_tensor.h"

namespace reprise {

// GGUF, versions 2 and 3, little-endian:
//
//   "GGUF" | u32 version | u64 tensor_count | u64 value_count
//   value_count  x { string key | u32 type | value }
//   tensor_count x { string name | u32 rank | rank x u64 extent | u32 type | u64 offset }
//   padding to a multiple of general.alignment (u32, default 32)
//   data: each tensor at `offset` from here, itself a multiple of the alignment
//
//   string = u64 length | bytes            array = u32 element type | u64 count | elements
//   extents are listed innermost first: [64, 128] of PyTorch is {128, 64} here
//
// Every byte is hostile. Reading holds to this: a count is believed only as far as bytes for so
// many elements remain; memory is in proportion to the bytes read, never to a count; sums and
// products of numbers from the file are checked; tensors lie inside the file and do not overlap, so
// that all of them together are never more than the file. Duplicate names are refused.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// The strings of an array, read one after another from where they lie: no copies, no index.
class GgufStrings {
 public:
  class Iterator {
   public:
    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const std::byte* at_;
  };

  // REQUIRES: bytes hold exactly `count` whole strings.
  GgufStrings(std::span<const std::byte> bytes, uint64_t count) : bytes_(bytes), count_(count) {}
  uint64_t size() const { return count_; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  std::span<const std::byte> bytes_;
  uint64_t count_;
};

// A value, or an array of values of one type, in place.
class GgufValue {
 public:
  GgufValue(GgufType type, bool is_array, uint64_t size, std::span<const std::byte> bytes)
      : type_(type), is_array_(is_array), size_(size), bytes_(bytes) {}

  GgufType type() const { return type_; }  // of an array: of its elements
  bool is_array() const { return is_array_; }
  uint64_t size() const { return size_; }  // 1 if it is no array

  // Element `index` (0 of a single value), or nothing if the type is another: IntAt takes every
  // integer that fits int64_t, NumberAt integers and floats. REQUIRES: index < size().
  std::optional<int64_t> IntAt(uint64_t index) const;
  std::optional<double> NumberAt(uint64_t index) const;
  std::optional<bool> BoolAt(uint64_t index) const;
  // REQUIRES: type() == GgufType::kString. A single string is an array of one.
  GgufStrings strings() const;
  std::span<const std::byte> bytes() const { return bytes_; }  // all elements, as in the file

 private:
  GgufType type_;
  bool is_array_;
  uint64_t size_;
  std::span<const std::byte> bytes_;
};

// The directory of one file. Holds views of the bytes it was parsed from, which must outlive it.
// Thread safety: immutable.
class GgufFile {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  // Costs: time and memory in proportion to the header; the tensor data is not touched.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  const std::vector<Entry>& entries() const { return entries_; }         // in file order
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
  const GgufValue* Find(std::string_view key) const;

 private:
  friend class GgufParser;
  uint32_t version_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> entries_by_key_;
  std::vector<StoredTensor> tensors_;
};

// The name of a tensor type by its number, "unknown" if nobody has given it one.
std::string_view GgufTensorTypeName(uint32_t id);

}  // namespace reprise
