// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: refused, or every value and every tensor can be read to its last byte;
// and as a part of a set: refused, or its number is one of the set's.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "weights/format/gguf.h"
#include "weights/format/gguf_parts.h"
#include "weights/metadata.h"
#include "weights/recipe/recipe.h"

namespace {

uint64_t sink = 0;

void Touch(const reprise::GgufFile::Entry& entry) {
  const reprise::GgufValue& value = entry.value;
  if (value.type() == reprise::GgufType::kString) {
    uint64_t count = 0;
    for (const std::string_view text : value.strings()) {
      for (const char c : text) sink += static_cast<unsigned char>(c);
      ++count;
    }
    CHECK(count == value.size());
    return;
  }
  for (uint64_t i = 0; i < value.size(); ++i) {
    sink +=
        value.IntAt(i).has_value() + value.NumberAt(i).has_value() + value.BoolAt(i).has_value();
  }
}

// The last row of a tensor of NVFP4.
void Make(const reprise::StoredTensor& tensor) {
  const auto recipe = reprise::MakeNvfp4Recipe(tensor, nullptr);
  CHECK(recipe != nullptr);
  if (recipe->rows == 0 || recipe->cols > 1 << 20) return;
  std::vector<float> row(static_cast<size_t>(recipe->cols));
  reprise::MakeRow(*recipe, recipe->rows - 1, row.data());
  for (const float value : row) sink += value > 0;
}

// The file beside itself: never a set, as both are the same part.
void TouchPart(const reprise::GgufFile& file) {
  const auto part = reprise::ReadGgufPart(file);
  if (!part.ok()) {
    CHECK(!part.status().message().empty());
    return;
  }
  CHECK(part->number >= 1 && part->number <= part->count);
  CHECK(part->count <= reprise::kGgufPartsMax);
  const std::string path = reprise::GgufPartPath("m", part->number, part->count);
  CHECK(reprise::GgufPartStem(path, *part) == "m");
  int accepted = 0;
  for (int64_t number = 1; number <= 2; ++number) {
    accepted += reprise::CheckGgufPart(file, number, 2, file).ok();
  }
  CHECK(accepted <= 1);
  const reprise::GgufFile* both[] = {&file, &file};
  sink += reprise::CheckGgufTensorCount(both).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const reprise::Result<reprise::GgufFile> file = reprise::GgufFile::Parse(std::as_bytes(bytes));
  if (!file.ok()) {
    CHECK(!file.status().message().empty());
    return 0;
  }
  for (const reprise::GgufFile::Entry& entry : file->entries()) {
    CHECK(file->Find(entry.key) == &entry.value);
    Touch(entry);
  }
  size_t total = 0;
  for (const reprise::StoredTensor& tensor : file->tensors()) {
    if (tensor.recipe != nullptr) {
      Make(tensor);
    } else {
      CHECK(tensor.bytes.size() == *reprise::TensorBytes(tensor.dtype, tensor.shape));
    }
    for (const std::byte b : tensor.bytes) sink += static_cast<uint8_t>(b);
    total += tensor.bytes.size();
  }
  CHECK(total <= size);
  TouchPart(*file);
  const reprise::Metadata metadata(&*file);
  for (const reprise::GgufFile::Entry& entry : file->entries()) {
    sink += metadata.IntPerLayer(entry.key, 4, {0, 9}).ok() + metadata.Text(entry.key).ok() +
            metadata.Texts(entry.key, 100).ok() + metadata.Numbers(entry.key, 100).ok();
  }
  return 0;
}
