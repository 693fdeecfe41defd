// SPDX-License-Identifier: Apache-2.0
#include "model/adapter/adapter.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/sha256.h"
#include "kernels/backend.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

constexpr std::string_view kWeight = ".weight";

// The name of a weight from its layer on: what stands before it depends on what the model was
// wrapped in when it was trained. Empty: the name is of no layer of the text model.
std::string_view FromLayer(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  for (const std::string_view prefix :
       {"", "model.", "backbone.", "language_model.", "model.language_model.",
        "language_model.model.", "transformer."}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    if (rest.starts_with(kLayers)) return rest;
  }
  return {};
}

// A tensor of the plan that is changed by the adapter's product for some weight, or a part of it.
struct Target {
  size_t index = 0;
  const FusedTensor* fused = nullptr;  // its rows are these of the weight; null: all of them
};

// The tensors of the plan by the names that files may have for them.
using Targets = std::multimap<std::string, Target, std::less<>>;

Targets FindTargets(const AdaptableModel& model, AdapterFormat format) {
  Targets targets;
  const bool gguf = format == AdapterFormat::kGguf;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const PlannedTensor& tensor = model.tensors[i];
    const auto add = [&](const std::string& name, const FusedTensor* fused) {
      const std::string_view known = gguf ? std::string_view(name) : FromLayer(name);
      if (!known.empty()) targets.emplace(known, Target{i, fused});
    };
    add(gguf ? tensor.gguf : tensor.hf, nullptr);
    for (const FusedTensor* fused : {&tensor.fused, &tensor.other_fused}) {
      if (!fused->empty()) add(gguf ? fused->gguf : fused->hf, fused);
    }
  }
  return targets;
}

// Where row (or column) i of a weight in memory is in the adapter's file. `count` of them.
std::vector<int64_t> FilePlaces(const HeadRows& heads, bool columns, int64_t count, bool base_gguf,
                                bool file_gguf) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  const bool ordered = heads.columns == columns;
  std::vector<int64_t> gguf_of(places.size());
  for (int64_t row = 0; row < count; ++row) {
    const int64_t of = ordered ? HfRowOfGgufRow(heads, row) : row;
    gguf_of[size_t(of)] = row;
  }
  for (int64_t row = 0; row < count; ++row) {
    int64_t at = ordered ? FileRowOfMemoryRow(heads, base_gguf, row) : row;
    if (ordered && base_gguf) at = HfRowOfGgufRow(heads, at);
    places[size_t(row)] = file_gguf ? gguf_of[size_t(at)] : at;
  }
  return places;
}

// Rows of weights, to be packed.
struct Values {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> bytes;

  Values(DType type, int64_t row_count, int64_t col_count)
      : dtype(type),
        rows(row_count),
        cols(col_count),
        bytes(RowBytes(type, col_count) * size_t(row_count)) {}
  std::byte* row(int64_t i) { return bytes.data() + RowBytes(dtype, cols) * size_t(i); }
};

// What the values are held as: floats as they are stored, all else as F32.
DType HeldAs(const StoredTensor& tensor) {
  const bool is_float = tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  return is_float ? tensor.dtype : DType::kF32;
}

void ReadFloats(const StoredTensor& tensor, int64_t row, float* out) {
  const int64_t cols = tensor.shape.cols();
  const std::byte* at = tensor.bytes.data() + RowBytes(tensor.dtype, cols) * size_t(row);
  DequantiseRow(tensor.dtype, at, out, cols);
}

bool InOrder(const std::vector<int64_t>& places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != int64_t(i)) return false;
  }
  return true;
}

// Columns of the narrow matrix in the order of memory.
Values ReadDown(const StoredTensor& tensor, const std::vector<int64_t>& places) {
  Values values(HeldAs(tensor), tensor.shape[0], int64_t(places.size()));
  if (values.dtype == tensor.dtype && InOrder(places)) {
    std::memcpy(values.bytes.data(), tensor.bytes.data(), values.bytes.size());
    return values;
  }
  std::vector<float> stored(places.size()), moved(places.size());
  for (int64_t r = 0; r < values.rows; ++r) {
    ReadFloats(tensor, r, stored.data());
    for (size_t i = 0; i < places.size(); ++i) moved[i] = stored[size_t(places[i])];
    QuantiseRow(values.dtype, moved.data(), values.row(r), values.cols);
  }
  return values;
}

// Rows of the tall matrix in the order of memory, each times what the base's row is multiplied by.
Values ReadUp(const StoredTensor& tensor, const std::vector<int64_t>& places,
              const std::vector<float>& factors) {
  const bool scaled = std::any_of(factors.begin(), factors.end(), [](float f) { return f != 1; });
  Values values(scaled ? DType::kF32 : HeldAs(tensor), int64_t(places.size()), tensor.shape[1]);
  if (!scaled && values.dtype == tensor.dtype) {
    const size_t row_bytes = RowBytes(tensor.dtype, values.cols);
    for (size_t i = 0; i < places.size(); ++i) {
      std::memcpy(values.row(int64_t(i)), tensor.bytes.data() + row_bytes * size_t(places[i]),
                  row_bytes);
    }
    return values;
  }
  std::vector<float> row(static_cast<size_t>(values.cols));
  for (size_t i = 0; i < places.size(); ++i) {
    ReadFloats(tensor, places[i], row.data());
    for (float& value : row) value *= factors[i];
    QuantiseRow(values.dtype, row.data(), values.row(int64_t(i)), values.cols);
  }
  return values;
}

std::string ShapeText(int64_t rows, int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

// What is hashed: everything that decides the bits, by the places of weights in the plan, whatever
// order and names the file has.
class Content {
 public:
  void Add(size_t index, float scale, const Values& down, const Values& up) {
    std::string& parts = parts_[index];
    parts.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    for (const Values* values : {&down, &up}) {
      parts += std::string(NameOf(values->dtype)) + ShapeText(values->rows, values->cols);
      // By OpenSSL, which has the processor's instructions: this is most of what loading takes.
      unsigned char hash[SHA256_DIGEST_LENGTH];
      ::SHA256(reinterpret_cast<const unsigned char*>(values->bytes.data()), values->bytes.size(),
               hash);
      parts.append(reinterpret_cast<const char*>(hash), sizeof(hash));
    }
  }
  std::string Hex(std::string_view model) const {
    std::string all(model);
    for (const auto& [index, parts] : parts_) {
      all += " " + std::to_string(index) + ":" + std::to_string(parts.size()) + ":" + parts;
    }
    return Sha256Hex(all).substr(0, 32);
  }

 private:
  std::map<size_t, std::string> parts_;
};

Result<Matrix> Pack(Values values, const OpContext& context) {
  const DType held = context.backend->HeldAs(values.dtype);
  if (held != values.dtype) {
    Values other(held, values.rows, values.cols);
    std::vector<float> row(static_cast<size_t>(values.cols));
    for (int64_t r = 0; r < values.rows; ++r) {
      DequantiseRow(values.dtype, values.row(r), row.data(), values.cols);
      QuantiseRow(held, row.data(), other.row(r), values.cols);
    }
    values = std::move(other);
  }
  return Matrix::Pack(context, {values.dtype, 1, values.rows, values.cols}, values.bytes.data(),
                      RowBytes(values.dtype, values.cols));
}

Status CheckSizes(const StoredLowRank& stored, const PlannedTensor& tensor,
                  const FusedTensor* fused) {
  const int64_t rows = fused != nullptr ? fused->rows : tensor.rows;
  if (stored.up.shape[0] == rows && stored.down.shape[1] == tensor.cols) return OkStatus();
  return InvalidArgument("the adapter's product for " + Quoted(stored.weight) + " is " +
                         ShapeText(stored.up.shape[0], stored.down.shape[1]) +
                         ", but the model's weight is " + ShapeText(rows, tensor.cols));
}

}  // namespace

bool IsAdaptable(const PlannedTensor& tensor) {
  const auto turned = [](const FusedTensor& fused) { return fused.transposed || fused.step != 1; };
  return tensor.is_matrix() && tensor.role == TensorRole::kLayer && tensor.slices == 1 &&
         tensor.hf.find('{') == std::string::npos && !turned(tensor.fused) &&
         !turned(tensor.other_fused);
}

Result<std::shared_ptr<const Adapter>> Adapter::Load(const AdapterFile& file, double scale,
                                                     const AdaptableModel& model,
                                                     const OpContext& context) {
  const bool gguf = file.format() == AdapterFormat::kGguf;
  const auto& families = model.architectures;
  if (!file.architecture().empty() &&
      std::find(families.begin(), families.end(), file.architecture()) == families.end()) {
    return InvalidArgument("the adapter is for " + Quoted(file.architecture()) + " models");
  }
  if (!file.invocation().empty()) {
    return Unimplemented(
        "activated adapters (aLoRA), which count from invocation tokens on, are not supported");
  }
  const Targets targets = FindTargets(model, file.format());
  std::shared_ptr<Adapter> adapter(new Adapter());
  adapter->products_.resize(model.tensors.size());
  Content content;
  for (const StoredLowRank& stored : file.products()) {
    const std::string_view name =
        gguf ? std::string_view(stored.weight) : FromLayer(stored.weight);
    auto [begin, end] = targets.equal_range(name);
    if (begin == end) {
      return Unimplemented("the adapter changes " + Quoted(stored.weight) +
                           ", which is no linear layer of this model that can have an adapter");
    }
    const double effective = stored.scale * scale;
    if (!std::isfinite(effective) || std::abs(effective) > 1e9) {
      return InvalidArgument("the adapter's scale for " + Quoted(stored.weight) + " is no number");
    }
    for (auto target = begin; target != end; ++target) {
      const auto& [index, fused] = target->second;
      const PlannedTensor& tensor = model.tensors[index];
      if (!IsAdaptable(tensor)) {
        return Unimplemented("the adapter changes " + Quoted(stored.weight) +
                             ", and adapters of embeddings, heads and experts are not supported");
      }
      REPRISE_TRY(CheckSizes(stored, tensor, fused));
      std::vector<int64_t> rows =
          FilePlaces(tensor.head_rows, false, tensor.rows, model.gguf, gguf);
      const std::vector<int64_t> cols =
          FilePlaces(tensor.head_rows, true, tensor.cols, model.gguf, gguf);
      std::vector<float> factors(rows.size(), 1);
      for (size_t i = 0; i < rows.size(); ++i) {
        const float in_gguf = GgufFactor(tensor, int64_t(i));
        if (model.gguf != gguf) factors[i] = model.gguf ? in_gguf : 1 / in_gguf;
        if (fused != nullptr) rows[i] = fused->RowOf(rows[i]);
      }
      const float factor = static_cast<float>(effective);
      if (factor == 0) continue;  // the weight as it is, to the bit
      LowRank& product = adapter->products_[index];
      if (!product.empty()) {
        return InvalidArgument("the adapter changes " + Quoted(stored.weight) +
                               " under two names");
      }
      Values down = ReadDown(stored.down, cols);
      Values up = ReadUp(stored.up, rows, factors);
      product.scale = factor;
      content.Add(index, factor, down, up);
      REPRISE_ASSIGN(product.down, Pack(std::move(down), context));
      REPRISE_ASSIGN(product.up, Pack(std::move(up), context));
      adapter->bytes_ += product.down.bytes() + product.up.bytes();
    }
  }
  adapter->digest_ = adapter->bytes_ == 0 ? model.digest : content.Hex(model.digest);
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

}  // namespace reprise
