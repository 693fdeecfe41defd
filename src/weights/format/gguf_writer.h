// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "weights/format/gguf.h"
#include "weights/format/tensor_stream.h"

namespace reprise {

template <typename T>
concept GgufNumber = std::same_as<T, uint8_t> || std::same_as<T, int8_t> ||
    std::same_as<T, uint16_t> || std::same_as<T, int16_t> || std::same_as<T, uint32_t> ||
    std::same_as<T, int32_t> || std::same_as<T, uint64_t> || std::same_as<T, int64_t> ||
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bool>;

template <GgufNumber T>
constexpr GgufType GgufTypeOf() {
  if constexpr (std::same_as<T, bool>) return GgufType::kBool;
  if constexpr (std::same_as<T, float>) return GgufType::kF32;
  if constexpr (std::same_as<T, double>) return GgufType::kF64;
  if constexpr (sizeof(T) == 8) return std::signed_integral<T> ? GgufType::kI64 : GgufType::kU64;
  if constexpr (sizeof(T) == 4) return std::signed_integral<T> ? GgufType::kI32 : GgufType::kU32;
  if constexpr (sizeof(T) == 2) return std::signed_integral<T> ? GgufType::kI16 : GgufType::kU16;
  return std::signed_integral<T> ? GgufType::kI8 : GgufType::kU8;
}

// Writes a GGUF version 3 file as llama.cpp reads it: first values and the list of tensors, then
// the data of the tensors in that order, in pieces of any size.
//
//   GgufWriter writer;
//   writer.PutString("general.architecture", "qwen3");
//   writer.Put<uint32_t>("qwen3.block_count", 28);
//   REPRISE_TRY(writer.AddTensor("token_embd.weight", DType::kQ8_0, {vocabulary, width}));
//   REPRISE_TRY(writer.Open(path));
//   while (...) REPRISE_TRY(writer.Append(rows));
//   REPRISE_TRY(writer.Finish());
class GgufWriter {
 public:
  // REQUIRES: the key is new and Open was not called. The type is part of the format:
  // Put<uint32_t>.
  template <GgufNumber T>
  void Put(std::string_view key, std::type_identity_t<T> value) {
    PutBytes(key, GgufTypeOf<T>(), false, 1, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  template <GgufNumber T>
  void PutArray(std::string_view key, std::span<const T> values) {
    PutBytes(key, GgufTypeOf<T>(), true, values.size(),
             {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void PutString(std::string_view key, std::string_view value);
  void PutStrings(std::string_view key, std::span<const std::string_view> values);
  // A value of another file, as it is.
  void PutValue(std::string_view key, const GgufValue& value);

  // Fails if the format or llama.cpp cannot hold it: a name of 64 bytes or more, rank above 4, an
  // empty tensor, rows that are not whole blocks, a name given twice.
  Status AddTensor(std::string_view name, DType dtype, const Shape& shape);
  uint64_t tensor_bytes() const;  // of all tensors so far, padding included

  Status Open(const std::string& path);
  Status Append(std::span<const std::byte> bytes) { return stream_->Append(bytes); }
  Status Finish() { return stream_->Finish(); }

 private:
  void PutBytes(std::string_view key, GgufType type, bool is_array, uint64_t count,
                std::string_view bytes);

  std::string values_;
  std::unordered_set<std::string> keys_;
  std::string tensors_;
  std::unordered_set<std::string> names_;
  std::vector<uint64_t> sizes_;
  uint64_t offset_ = 0;
  std::optional<TensorStream> stream_;
};

}  // namespace reprise
