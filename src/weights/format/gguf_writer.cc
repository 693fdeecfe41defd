// SPDX-License-Identifier: Apache-2.0
#include "weights/format/gguf_writer.h"

#include "base/check.h"

namespace reprise {
namespace {

constexpr uint64_t kAlignment = 32;

template <typename T>
void AppendNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendString(std::string_view text, std::string* out) {
  AppendNumber<uint64_t>(text.size(), out);
  out->append(text);
}

}  // namespace

void GgufWriter::PutBytes(std::string_view key, GgufType type, bool is_array, uint64_t count,
                          std::string_view bytes) {
  CHECK(!stream_.has_value());
  CHECK(keys_.emplace(key).second);
  AppendString(key, &values_);
  if (is_array) AppendNumber(GgufType::kArray, &values_);
  AppendNumber(type, &values_);
  if (is_array) AppendNumber(count, &values_);
  values_.append(bytes);
}

void GgufWriter::PutString(std::string_view key, std::string_view value) {
  std::string bytes;
  AppendString(value, &bytes);
  PutBytes(key, GgufType::kString, false, 1, bytes);
}

void GgufWriter::PutStrings(std::string_view key, std::span<const std::string_view> values) {
  std::string bytes;
  for (const std::string_view value : values) AppendString(value, &bytes);
  PutBytes(key, GgufType::kString, true, values.size(), bytes);
}

void GgufWriter::PutValue(std::string_view key, const GgufValue& value) {
  const std::span<const std::byte> bytes = value.bytes();
  PutBytes(key, value.type(), value.is_array(), value.size(),
           {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status GgufWriter::AddTensor(std::string_view name, DType dtype, const Shape& shape) {
  CHECK(!stream_.has_value());
  const std::string shown = "tensor " + Quoted(name);
  const std::optional<size_t> size = TensorBytes(dtype, shape);
  if (name.empty() || name.size() > 63)
    return InvalidArgument(shown + ": GGUF names have 1 to 63 bytes");
  if (shape.rank() > 4) return InvalidArgument(shown + ": GGUF tensors have at most 4 dimensions");
  if (!size || *size == 0) {
    return InvalidArgument(shown + " of shape " + shape.ToString() + " cannot be stored as " +
                           std::string(NameOf(dtype)));
  }
  if (!names_.emplace(name).second) return InvalidArgument(shown + " was given twice");
  AppendString(name, &tensors_);
  AppendNumber(static_cast<uint32_t>(shape.rank()), &tensors_);
  for (int axis = shape.rank() - 1; axis >= 0; --axis) AppendNumber(shape[axis], &tensors_);
  AppendNumber(static_cast<uint32_t>(TraitsOf(dtype).gguf_id), &tensors_);
  AppendNumber(offset_, &tensors_);
  sizes_.push_back(*size);
  offset_ += (*size + kAlignment - 1) / kAlignment * kAlignment;
  return OkStatus();
}

uint64_t GgufWriter::tensor_bytes() const { return offset_; }

Status GgufWriter::Open(const std::string& path) {
  std::string head = "GGUF";
  AppendNumber<uint32_t>(3, &head);
  AppendNumber<uint64_t>(sizes_.size(), &head);
  AppendNumber<uint64_t>(keys_.size(), &head);
  head += values_;
  head += tensors_;
  REPRISE_ASSIGN(TensorStream stream,
                 TensorStream::Create(path, std::as_bytes(std::span(head)), sizes_, kAlignment));
  stream_.emplace(std::move(stream));
  return OkStatus();
}

}  // namespace reprise
