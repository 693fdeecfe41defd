// SPDX-License-Identifier: Apache-2.0
#include "weights/format/safetensors.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/check.h"

namespace reprise {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

struct ElementType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

constexpr ElementType kElementTypes[] = {
    {"F32", 32, DType::kF32},         {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},       {"I32", 32, DType::kI32},
    {"I64", 64, std::nullopt},        {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},        {"C64", 64, std::nullopt},
    {"U32", 32, std::nullopt},        {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},        {"I8", 8, std::nullopt},
    {"U8", 8, std::nullopt},          {"BOOL", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},     {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},
};

const ElementType* FindElementType(std::string_view name) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

Status Malformed(std::string_view name, const char* what) {
  return DataLoss("tensor " + Quoted(name) + " " + what);
}

// One entry of the header, checked against itself.
struct Placed {
  std::string_view name;
  const ElementType* type;
  Shape shape;
  uint64_t begin, end;
};

Result<Shape> ParseShape(std::string_view name, const JsonValue* value) {
  if (value == nullptr || !value->is_array()) return Malformed(name, "has no shape");
  int64_t extents[Shape::kRankMax];
  const std::span<const JsonValue> items = value->items();
  if (items.size() > Shape::kRankMax) return Malformed(name, "has too many dimensions");
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_int()) return Malformed(name, "has a dimension that is not an integer");
    extents[i] = items[i].as_int();
  }
  const std::optional<Shape> shape = Shape::FromUntrusted({extents, items.size()});
  if (!shape) return Malformed(name, "has an impossible shape");
  return *shape;
}

Result<Placed> ParseEntry(const JsonValue::Member& member) {
  const std::string_view name = member.key;
  if (!member.value.is_object()) return Malformed(name, "is not described by an object");
  const JsonValue* dtype = member.value.Find("dtype");
  const JsonValue* offsets = member.value.Find("data_offsets");
  if (dtype == nullptr || !dtype->is_string()) return Malformed(name, "has no dtype");
  const ElementType* type = FindElementType(dtype->as_string());
  if (type == nullptr) {
    return Unimplemented("tensor " + Quoted(name) + " has the unknown type " +
                         Quoted(dtype->as_string()));
  }
  REPRISE_ASSIGN(const Shape shape, ParseShape(name, member.value.Find("shape")));
  if (offsets == nullptr || !offsets->is_array() || offsets->items().size() != 2 ||
      !offsets->items()[0].is_int() || !offsets->items()[1].is_int()) {
    return Malformed(name, "has no data_offsets");
  }
  const int64_t begin = offsets->items()[0].as_int(), end = offsets->items()[1].as_int();
  if (begin < 0 || end < begin) return Malformed(name, "has offsets out of order");
  uint64_t bits = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(shape.elements()),
                             static_cast<uint64_t>(type->bits), &bits) ||
      bits % 8 != 0 || bits / 8 != static_cast<uint64_t>(end - begin)) {
    return Malformed(name, "does not have the bytes that its shape needs");
  }
  return Placed{name, type, shape, static_cast<uint64_t>(begin), static_cast<uint64_t>(end)};
}

Status CheckMetadata(const JsonValue& value) {
  if (!value.is_object()) return DataLoss("__metadata__ is not an object");
  for (const JsonValue::Member& member : value.members()) {
    if (!member.value.is_string()) return DataLoss("__metadata__ has a value that is not a string");
  }
  return OkStatus();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes)
    return DataLoss("not a safetensors file: it is too short");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  bytes = bytes.subspan(sizeof header_bytes);
  if (header_bytes > kHeaderBytesMax || header_bytes > bytes.size()) {
    return DataLoss("the header claims " + std::to_string(header_bytes) +
                    " bytes: the file is truncated or not safetensors");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), header_bytes);
  const std::span<const std::byte> data = bytes.subspan(header_bytes);
  if (text.empty() || text[0] != '{') return DataLoss("not a safetensors file: no JSON header");
  Result<JsonDocument> header = JsonDocument::Parse(text, {.depth_max = 8});
  if (!header.ok()) return DataLoss("the header is damaged: " + header.status().message());

  SafetensorsFile file(std::move(*header));
  std::vector<Placed> placed;
  for (const JsonValue::Member& member : file.header_.root().members()) {
    if (member.key == kMetadataKey) {
      REPRISE_TRY(CheckMetadata(member.value));
      continue;
    }
    REPRISE_ASSIGN(const Placed entry, ParseEntry(member));
    placed.push_back(entry);
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t end = 0;
  for (const Placed& entry : placed) {
    if (entry.begin != end)
      return Malformed(entry.name, "overlaps another or leaves a hole before it");
    end = entry.end;
    if (end > data.size()) {
      return Malformed(entry.name, "lies beyond the end of the file: it is truncated or corrupt");
    }
    const auto span = data.subspan(entry.begin, end - entry.begin);
    if (entry.type->dtype) {
      file.tensors_.push_back({entry.name, *entry.type->dtype, entry.shape, span, 0});
    } else {
      file.foreign_.push_back({entry.name, entry.type->name, entry.shape, span});
    }
  }
  if (end != data.size()) return DataLoss("bytes after the last tensor: the file is corrupt");
  return file;
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Result<std::vector<int32_t>> SafetensorsFile::ReadIds(std::string_view name) const {
  const Status wrong =
      InvalidArgument("tensor " + Quoted(name) + " must be I32 or I64 of one dimension");
  if (const StoredTensor* tensor = Find(name)) {
    if (tensor->dtype != DType::kI32 || tensor->shape.rank() != 1) return wrong;
    std::vector<int32_t> ids(static_cast<size_t>(tensor->shape.elements()));
    if (!ids.empty()) std::memcpy(ids.data(), tensor->bytes.data(), tensor->bytes.size());
    return ids;
  }
  for (const Foreign& tensor : foreign_) {
    if (tensor.name != name) continue;
    if (tensor.type != "I64" || tensor.shape.rank() != 1) return wrong;
    std::vector<int32_t> ids(static_cast<size_t>(tensor.shape.elements()));
    for (size_t i = 0; i < ids.size(); ++i) {
      int64_t id;
      std::memcpy(&id, tensor.bytes.data() + 8 * i, sizeof id);
      if (id < INT32_MIN || id > INT32_MAX) {
        return InvalidArgument("tensor " + Quoted(name) + " holds " + std::to_string(id) +
                               ", which is not a token id");
      }
      ids[i] = static_cast<int32_t>(id);
    }
    return ids;
  }
  return NotFound("there is no tensor " + Quoted(name));
}

std::optional<std::string_view> SafetensorsFile::FindMetadata(std::string_view key) const {
  const JsonValue* metadata = header_.root().Find(kMetadataKey);
  const JsonValue* value = metadata == nullptr ? nullptr : metadata->Find(key);
  if (value == nullptr) return std::nullopt;
  return value->as_string();
}

void SafetensorsWriter::AddTensor(std::string_view name, DType dtype, const Shape& shape) {
  CHECK(!stream_.has_value());
  const auto type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                 [dtype](const ElementType& t) { return t.dtype == dtype; });
  CHECK(type != std::end(kElementTypes));
  const uint64_t size = *TensorBytes(dtype, shape);
  AppendJsonString(name, &entries_);
  entries_ += ":{\"dtype\":\"" + std::string(type->name) + "\",\"shape\":" + shape.ToString();
  entries_ += ",\"data_offsets\":[" + std::to_string(offset_) + "," +
              std::to_string(offset_ + size) + "]},";
  sizes_.push_back(size);
  offset_ += size;
}

void SafetensorsWriter::PutMetadata(std::string_view key, std::string_view value) {
  CHECK(!stream_.has_value());
  metadata_.emplace(key, value);
}

Status SafetensorsWriter::Open(const std::string& path) {
  std::string json = "{";
  if (!metadata_.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata_) {
      AppendJsonString(key, &json);
      json += ':';
      AppendJsonString(value, &json);
      json += ',';
    }
    json.back() = '}';
    json += ',';
  }
  json += entries_;
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  std::string head(reinterpret_cast<const char*>(&length), sizeof length);
  head += json;
  REPRISE_ASSIGN(TensorStream stream,
                 TensorStream::Create(path, std::as_bytes(std::span(head)), sizes_, 1));
  stream_.emplace(std::move(stream));
  return OkStatus();
}

}  // namespace reprise
