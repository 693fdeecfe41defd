// SPDX-License-Identifier: Apache-2.0
#include "weights/format/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"
#include "weights/recipe/recipe.h"

namespace reprise {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMin = 8;
constexpr uint64_t kAlignmentMax = 1 << 21;  // a huge page; more is a trick with padding
constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kNameBytesMax = 63;
constexpr uint32_t kRankMax = 4;
constexpr uint32_t kTypeCount = 13;
constexpr uint32_t kNvfp4 = 40;

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Bytes of one value; 0 for those whose size is not fixed.
size_t FixedBytes(GgufType type) {
  constexpr size_t kBytes[kTypeCount] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<uint32_t>(type)];
}

// What remains of the bytes. Every take is bounded by it.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  bool Take(uint64_t count, std::span<const std::byte>* taken) {
    if (count > left()) return false;
    *taken = bytes_.subspan(at_, count);
    at_ += count;
    return true;
  }

  template <typename T>
  bool Read(T* value) {
    if (sizeof(T) > left()) return false;
    *value = Load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return true;
  }

  bool ReadString(std::string_view* text) {
    uint64_t length = 0;
    std::span<const std::byte> taken;
    if (!Read(&length) || !Take(length, &taken)) return false;
    *text = {reinterpret_cast<const char*>(taken.data()), taken.size()};
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

}  // namespace

std::string_view GgufTensorTypeName(uint32_t id) {
  constexpr std::string_view kNames[] = {
      "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
      "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
      "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
      "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
      "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
      "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0"};
  return id < std::size(kNames) ? kNames[id] : "unknown";
}

std::string_view GgufStrings::Iterator::operator*() const {
  return {reinterpret_cast<const char*>(at_ + 8), Load<uint64_t>(at_)};
}

GgufStrings::Iterator& GgufStrings::Iterator::operator++() {
  at_ += 8 + Load<uint64_t>(at_);
  return *this;
}

std::optional<int64_t> GgufValue::IntAt(uint64_t index) const {
  CHECK(index < size_);
  const std::byte* at = bytes_.data() + index * FixedBytes(type_);
  switch (type_) {
    case GgufType::kU8:
      return Load<uint8_t>(at);
    case GgufType::kI8:
      return Load<int8_t>(at);
    case GgufType::kU16:
      return Load<uint16_t>(at);
    case GgufType::kI16:
      return Load<int16_t>(at);
    case GgufType::kU32:
      return Load<uint32_t>(at);
    case GgufType::kI32:
      return Load<int32_t>(at);
    case GgufType::kI64:
      return Load<int64_t>(at);
    case GgufType::kU64: {
      const uint64_t value = Load<uint64_t>(at);
      if (value > INT64_MAX) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::NumberAt(uint64_t index) const {
  CHECK(index < size_);
  const std::byte* at = bytes_.data() + index * FixedBytes(type_);
  if (type_ == GgufType::kF32) return Load<float>(at);
  if (type_ == GgufType::kF64) return Load<double>(at);
  if (type_ == GgufType::kU64) return static_cast<double>(Load<uint64_t>(at));
  const std::optional<int64_t> integer = IntAt(index);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

std::optional<bool> GgufValue::BoolAt(uint64_t index) const {
  CHECK(index < size_);
  if (type_ != GgufType::kBool) return std::nullopt;
  return bytes_[index] != std::byte{0};
}

GgufStrings GgufValue::strings() const {
  CHECK(type_ == GgufType::kString);
  return GgufStrings(bytes_, size_);
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto at = std::lower_bound(
      entries_by_key_.begin(), entries_by_key_.end(), key,
      [this](uint32_t index, std::string_view wanted) { return entries_[index].key < wanted; });
  if (at == entries_by_key_.end() || entries_[*at].key != key) return nullptr;
  return &entries_[*at].value;
}

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes), cursor_(bytes) {}

  Result<GgufFile> Run() {
    uint64_t tensor_count = 0, value_count = 0;
    REPRISE_TRY(ReadHead(&tensor_count, &value_count));
    for (uint64_t i = 0; i < value_count; ++i) REPRISE_TRY(ReadEntry());
    REPRISE_TRY(IndexEntries());
    REPRISE_TRY(ReadAlignment());
    for (uint64_t i = 0; i < tensor_count; ++i) REPRISE_TRY(ReadTensor());
    REPRISE_TRY(CheckNames());
    REPRISE_TRY(PlaceTensors());
    return std::move(file_);
  }

 private:
  Status Truncated(const std::string& where) const {
    return DataLoss("the file ends inside " + where + ": it is truncated or corrupt");
  }

  Status ReadHead(uint64_t* tensor_count, uint64_t* value_count) {
    std::span<const std::byte> magic;
    if (!cursor_.Take(4, &magic) || std::memcmp(magic.data(), "GGUF", 4) != 0) {
      return DataLoss("not a GGUF file: it does not begin with \"GGUF\"");
    }
    uint32_t version = 0;
    if (!cursor_.Read(&version)) return Truncated("the header");
    if (version != 0 && (version & 0xFFFF) == 0) {
      return Unimplemented("a big-endian GGUF file: convert it to little-endian first");
    }
    if (version == 1) return Unimplemented("GGUF version 1 is too old: convert the model again");
    if (version != 2 && version != 3) {
      return Unimplemented("GGUF version " + std::to_string(version) +
                           " is not supported (2 and 3 are)");
    }
    file_.version_ = version;
    if (!cursor_.Read(tensor_count) || !cursor_.Read(value_count)) return Truncated("the header");
    // The shortest value takes 13 bytes (an empty key and one byte), the shortest tensor 24.
    if (*value_count > cursor_.left() / 13 || *tensor_count > cursor_.left() / 24 ||
        *value_count > UINT32_MAX || *tensor_count > UINT32_MAX) {
      return DataLoss("the header promises " + std::to_string(*value_count) + " values and " +
                      std::to_string(*tensor_count) + " tensors, more than the file can hold");
    }
    return OkStatus();
  }

  Status ReadEntry() {
    std::string_view key;
    uint32_t type = 0;
    if (!cursor_.ReadString(&key) || !cursor_.Read(&type)) return Truncated("the metadata");
    if (key.empty() || key.size() > kKeyBytesMax) {
      return DataLoss("a metadata key of " + std::to_string(key.size()) +
                      " bytes (1 to 65535 are allowed)");
    }
    const bool is_array = type == static_cast<uint32_t>(GgufType::kArray);
    uint64_t count = 1;
    if (is_array && (!cursor_.Read(&type) || !cursor_.Read(&count)))
      return Truncated("the metadata");
    if (type >= kTypeCount || type == static_cast<uint32_t>(GgufType::kArray)) {
      return DataLoss("metadata " + Quoted(key) + " has the unknown type " + std::to_string(type));
    }
    std::span<const std::byte> payload;
    if (!TakeValues(static_cast<GgufType>(type), count, &payload)) {
      return Truncated("the metadata, in the value of " + Quoted(key));
    }
    file_.entries_.push_back(
        {key, GgufValue(static_cast<GgufType>(type), is_array, count, payload)});
    return OkStatus();
  }

  bool TakeValues(GgufType type, uint64_t count, std::span<const std::byte>* payload) {
    if (type != GgufType::kString) {
      const size_t each = FixedBytes(type);
      return count <= cursor_.left() / each && cursor_.Take(count * each, payload);
    }
    if (count > cursor_.left() / 8) return false;
    const uint64_t begin = cursor_.offset();
    std::string_view text;
    for (uint64_t i = 0; i < count; ++i) {
      if (!cursor_.ReadString(&text)) return false;
    }
    *payload = bytes_.subspan(begin, cursor_.offset() - begin);
    return true;
  }

  Status IndexEntries() {
    std::vector<uint32_t>& order = file_.entries_by_key_;
    order.resize(file_.entries_.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      return file_.entries_[a].key < file_.entries_[b].key;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const std::string_view key = file_.entries_[order[i]].key;
      if (file_.entries_[order[i - 1]].key == key) {
        return DataLoss("metadata " + Quoted(key) + " occurs twice");
      }
    }
    return OkStatus();
  }

  Status ReadAlignment() {
    const GgufValue* value = file_.Find("general.alignment");
    if (value == nullptr) return OkStatus();
    if (value->is_array() || value->type() != GgufType::kU32) {
      return DataLoss("general.alignment must be a 32-bit unsigned integer");
    }
    alignment_ = static_cast<uint64_t>(*value->IntAt(0));
    if (alignment_ < kAlignmentMin || alignment_ > kAlignmentMax ||
        !std::has_single_bit(alignment_)) {
      return DataLoss("general.alignment is " + std::to_string(alignment_) +
                      "; it must be a power of two from 8 to 2097152");
    }
    return OkStatus();
  }

  Status ReadTensor() {
    StoredTensor tensor;
    uint32_t rank = 0, type = 0;
    uint64_t offset = 0;
    if (!cursor_.ReadString(&tensor.name)) return Truncated("the tensor table");
    const std::string shown = "tensor " + Quoted(tensor.name);
    if (tensor.name.empty() || tensor.name.size() > kNameBytesMax) {
      return DataLoss(shown + ": its name has " + std::to_string(tensor.name.size()) +
                      " bytes (1 to 63 are allowed)");
    }
    if (!cursor_.Read(&rank)) return Truncated("the tensor table");
    if (rank > kRankMax)
      return DataLoss(shown + " has " + std::to_string(rank) +
                      " dimensions (at most 4 are allowed)");
    int64_t extents[kRankMax];  // reversed on the way in
    for (uint32_t i = 0; i < rank; ++i) {
      int64_t& extent = extents[rank - 1 - i];
      if (!cursor_.Read(&extent)) return Truncated("the tensor table");
      if (extent <= 0) return DataLoss(shown + " has a dimension of " + std::to_string(extent));
    }
    if (!cursor_.Read(&type) || !cursor_.Read(&offset)) return Truncated("the tensor table");
    // NVFP4 is read as what it makes (weights/recipe/recipe.h).
    const bool nvfp4 = type == kNvfp4;
    const auto dtype = nvfp4 ? std::optional(DType::kBF16) : FindDTypeByGgufId(type);
    if (!dtype) {
      return Unimplemented(shown + " has type " + std::string(GgufTensorTypeName(type)) + " (" +
                           std::to_string(type) + "), which is not supported");
    }
    const std::optional<Shape> shape = Shape::FromUntrusted({extents, rank});
    if (!shape) return DataLoss(shown + " has more elements than 63 bits can count");
    const int64_t block = nvfp4 ? kNvfp4BlockValues : TraitsOf(*dtype).block_elements;
    if (shape->cols() % block != 0) {
      return DataLoss(shown + ": rows of " + std::to_string(shape->cols()) +
                      " do not divide into blocks of " +
                      std::string(nvfp4 ? "nvfp4" : NameOf(*dtype)));
    }
    const std::optional<size_t> size =
        nvfp4 ? size_t(shape->elements() / kNvfp4BlockValues) * kNvfp4BlockBytes
              : TensorBytes(*dtype, *shape);
    if (!size) return DataLoss(shown + " has more bytes than 64 bits can count");
    if (offset % alignment_ != 0) return DataLoss(shown + " begins at an unaligned offset");
    tensor.dtype = *dtype;
    tensor.shape = *shape;
    if (nvfp4) tensor.recipe = &kNvfp4Blocks;
    file_.tensors_.push_back(tensor);
    places_.push_back({offset, *size});
    return OkStatus();
  }

  Status CheckNames() const {
    std::vector<std::string_view> names;
    names.reserve(file_.tensors_.size());
    for (const StoredTensor& tensor : file_.tensors_) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) return DataLoss("tensor " + Quoted(*twice) + " occurs twice");
    return OkStatus();
  }

  // Now that the table has ended, the data section has a beginning.
  Status PlaceTensors() {
    if (file_.tensors_.empty()) return OkStatus();
    const uint64_t padding = (alignment_ - cursor_.offset() % alignment_) % alignment_;
    if (padding > cursor_.left()) return Truncated("the padding before the tensors");
    const std::span<const std::byte> data = bytes_.subspan(cursor_.offset() + padding);
    std::vector<uint32_t> order(places_.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [this](uint32_t a, uint32_t b) { return places_[a].offset < places_[b].offset; });
    uint64_t end = 0;
    for (const uint32_t index : order) {
      StoredTensor& tensor = file_.tensors_[index];
      const Place place = places_[index];
      if (place.offset > data.size() || place.size > data.size() - place.offset) {
        return DataLoss("tensor " + Quoted(tensor.name) +
                        " lies beyond the end of the file: it is truncated or corrupt");
      }
      if (place.offset < end)
        return DataLoss("tensor " + Quoted(tensor.name) + " overlaps another");
      end = place.offset + place.size;
      tensor.bytes = data.subspan(place.offset, place.size);
    }
    return OkStatus();
  }

  struct Place {
    uint64_t offset;
    uint64_t size;
  };

  const std::span<const std::byte> bytes_;
  Cursor cursor_;
  uint64_t alignment_ = kAlignmentDefault;
  std::vector<Place> places_;
  GgufFile file_;
};

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).Run();
}

}  // namespace reprise
