// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "weights/recipe/recipe.h"

namespace reprise {
namespace {

// How layers of ModelOpt's folders are quantised; of a mixture, those that are by the others.
constexpr std::string_view kModelOptAlgorithms[] = {
    "NVFP4",          "W4A16_NVFP4", "W4A8_NVFP4_FP8", "FP8", "FP8_PER_CHANNEL_PER_TOKEN",
    "MIXED_PRECISION"};

std::string_view TextOf(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string_view();
}

std::optional<DType> FloatType(const StoredPart& part) {
  if (part.type == "F32") return DType::kF32;
  if (part.type == "F16") return DType::kF16;
  if (part.type == "BF16") return DType::kBF16;
  return std::nullopt;
}

bool IsMatrix(const StoredPart& part) { return part.shape.rank() == 2; }
bool Is(const StoredPart& part, std::string_view type, int64_t rows, int64_t cols) {
  return part.type == type && IsMatrix(part) && part.shape[0] == rows && part.shape[1] == cols;
}

class Finder {
 public:
  Finder(const JsonValue& quantization, std::span<const StoredPart> tensors)
      : quantization_(quantization), method_(TextOf(quantization, "quant_method")) {
    for (const StoredPart& part : tensors) by_name_.emplace(part.name, &part);
  }

  Status CheckMethod() const;
  std::vector<std::unique_ptr<Recipe>> Run(std::span<const StoredPart> tensors) const {
    std::vector<std::unique_ptr<Recipe>> found;
    for (const StoredPart& part : tensors) {
      auto recipe = std::make_unique<Recipe>();
      recipe->data = part;
      if (Fill(recipe.get())) found.push_back(std::move(recipe));
    }
    return found;
  }

 private:
  bool Fill(Recipe* recipe) const;
  bool FillBytes(const std::string& stem, Recipe* recipe) const;
  bool FillIntegers(const std::string& stem, Recipe* recipe) const;
  bool FillNvfp4(const std::string& stem, std::string_view global, Recipe* recipe) const;
  bool ByModelOpt() const { return method_.starts_with("modelopt"); }
  bool FillAwq(const std::string& stem, Recipe* recipe) const;
  bool FillGptq(const std::string& stem, Recipe* recipe) const;

  StoredPart Part(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? StoredPart() : *at->second;
  }
  int64_t IntOr(std::string_view key, int64_t absent) const {
    const JsonValue* value = quantization_.Find(key);
    return value != nullptr && value->is_int() ? value->as_int() : absent;
  }

  const JsonValue& quantization_;
  const std::string_view method_;
  std::unordered_map<std::string_view, const StoredPart*> by_name_;
};

Status Finder::CheckMethod() const {
  const std::string other = "; take the original weights or a GGUF file";
  if (method_ == "fp8" || method_ == "compressed-tensors") return OkStatus();
  if (ByModelOpt()) {
    const std::string_view algorithm = TextOf(quantization_, "quant_algo");
    for (const std::string_view known : kModelOptAlgorithms) {
      if (algorithm == known) return OkStatus();
    }
    return InvalidArgument("weights of ModelOpt by the algorithm " + Quoted(algorithm) +
                           " are not supported (NVFP4 and FP8 are)" + other);
  }
  if (method_ == "awq") {
    const std::string_view version = TextOf(quantization_, "version");
    if (version.empty() || version == "gemm" || version == "GEMM") return OkStatus();
    return InvalidArgument("weights of awq in the layout " + Quoted(version) +
                           " are not supported" + other);
  }
  if (method_ == "gptq") {
    const int64_t bits = IntOr("bits", 4);
    if (bits == 2 || bits == 4 || bits == 8) return OkStatus();
    return InvalidArgument("weights of gptq in " + std::to_string(bits) +
                           " bits are not supported (2, 4 and 8 are)" + other);
  }
  return InvalidArgument(
      "weights quantised by " + (method_.empty() ? "an unnamed method" : Quoted(method_)) +
      " (quantization_config) are not supported (fp8, mxfp4, compressed-tensors, "
      "modelopt, awq and gptq are)" +
      other);
}

// Whether its data begins a matrix of the method, and all else is there and fits.
bool Finder::Fill(Recipe* recipe) const {
  const StoredPart& data = recipe->data;
  const auto stem = [&](std::string_view suffix) -> std::optional<std::string> {
    if (!data.name.ends_with(suffix) || !IsMatrix(data)) return std::nullopt;
    if (data.shape[0] <= 0 || data.shape[1] <= 0) return std::nullopt;
    return std::string(data.name.substr(0, data.name.size() - suffix.size()));
  };
  bool filled = false;
  if (method_ == "awq" || method_ == "gptq") {
    const auto of = stem(".qweight");
    if (!of || data.type != "I32") return false;
    recipe->name = *of + ".weight";
    filled = method_ == "awq" ? FillAwq(*of, recipe) : FillGptq(*of, recipe);
  } else if (const auto packed = stem(".weight_packed")) {
    recipe->name = *packed + ".weight";
    filled = data.type == "I32"
                 ? FillIntegers(*packed, recipe)
                 : data.type == "U8" && FillNvfp4(*packed, ".weight_global_scale", recipe);
  } else if (const auto plain = stem(".weight")) {
    recipe->name = *plain + ".weight";
    filled = ByModelOpt() && data.type == "U8"
                 ? FillNvfp4(*plain, ".weight_scale_2", recipe)
                 : (data.type == "F8_E4M3" || data.type == "I8") && FillBytes(*plain, recipe);
    // Activations that are scaled before the product would not be.
    filled = filled && !Part(*plain + ".pre_quant_scale").present();
  }
  return filled && (recipe->name == data.name || !by_name_.contains(recipe->name));
}

bool Finder::FillBytes(const std::string& stem, Recipe* recipe) const {
  recipe->kind = recipe->data.type == "I8" ? Recipe::Kind::kInt8 : Recipe::Kind::kFp8;
  recipe->rows = recipe->data.shape[0];
  recipe->cols = recipe->data.shape[1];
  recipe->scale = Part(stem + ".weight_scale_inv");
  if (!recipe->scale.present()) recipe->scale = Part(stem + ".weight_scale");
  if (!recipe->scale.present() || Part(stem + ".weight_zero_point").present()) return false;
  const auto type = FloatType(recipe->scale);
  if (!type) return false;
  recipe->result = *type;
  const Shape& shape = recipe->scale.shape;
  if (shape.elements() == 1) {
    recipe->block_rows = recipe->rows;
    recipe->block_cols = recipe->cols;
    return true;
  }
  if (shape.rank() > 2 || shape[0] == recipe->rows) {  // one a row
    recipe->block_cols = recipe->cols;
    return shape.rank() <= 2 && shape.elements() == recipe->rows;
  }
  if (shape.rank() != 2) return false;
  // Blocks as the configuration has them: the last ones of a side may be cut off.
  recipe->block_rows = recipe->block_cols = 128;
  if (const JsonValue* sides = quantization_.Find("weight_block_size");
      sides != nullptr && sides->is_array() && sides->items().size() == 2 &&
      sides->items()[0].is_int() && sides->items()[1].is_int()) {
    recipe->block_rows = sides->items()[0].as_int();
    recipe->block_cols = sides->items()[1].as_int();
  }
  const auto blocks = [](int64_t extent, int64_t side) { return (extent - 1) / side + 1; };
  return recipe->block_rows > 0 && recipe->block_cols > 0 &&
         shape[0] == blocks(recipe->rows, recipe->block_rows) &&
         shape[1] == blocks(recipe->cols, recipe->block_cols);
}

bool Finder::FillIntegers(const std::string& stem, Recipe* recipe) const {
  recipe->kind = Recipe::Kind::kIntegers;
  recipe->rows = recipe->data.shape[0];
  const StoredPart shape = Part(stem + ".weight_shape");
  recipe->scale = Part(stem + ".weight_scale");
  recipe->zeros = Part(stem + ".weight_zero_point");
  recipe->order = Part(stem + ".weight_g_idx");
  const auto type = FloatType(recipe->scale);
  if (!type || !IsMatrix(recipe->scale) || recipe->scale.shape[0] != recipe->rows) return false;
  recipe->result = *type;
  recipe->groups = recipe->scale.shape[1];
  // Its own shape decides how many bits a value has.
  int64_t sides[2];
  if (shape.type != "I64" || shape.bytes.size() != sizeof sides) return false;
  std::copy_n(shape.bytes.data(), sizeof sides, reinterpret_cast<std::byte*>(sides));
  recipe->cols = sides[1];
  const int64_t words = recipe->data.shape[1];
  if (sides[0] != recipe->rows || (recipe->cols != words * 8 && recipe->cols != words * 4)) {
    return false;
  }
  recipe->bits = recipe->cols == words * 8 ? 4 : 8;
  if (recipe->groups <= 0 || recipe->cols % recipe->groups != 0) return false;
  recipe->block_cols = recipe->cols / recipe->groups;
  const int64_t per_word = 32 / recipe->bits;
  if (recipe->zeros.present() &&
      !Is(recipe->zeros, "I32", (recipe->rows + per_word - 1) / per_word, recipe->groups)) {
    return false;
  }
  return !recipe->order.present() ||
         (recipe->order.type == "I32" && recipe->order.shape.elements() == recipe->cols);
}

bool Finder::FillNvfp4(const std::string& stem, std::string_view global, Recipe* recipe) const {
  recipe->kind = ByModelOpt() ? Recipe::Kind::kModelOpt4 : Recipe::Kind::kNvfp4;
  recipe->bits = 4;
  recipe->result = DType::kBF16;
  recipe->rows = recipe->data.shape[0];
  if (__builtin_mul_overflow(recipe->data.shape[1], 2, &recipe->cols)) return false;
  recipe->scale = Part(stem + ".weight_scale");
  recipe->global = Part(stem + std::string(global));
  return recipe->cols % 16 == 0 && recipe->global.type == "F32" &&
         recipe->global.shape.elements() == 1 &&
         Is(recipe->scale, "F8_E4M3", recipe->rows, recipe->cols / 16);
}

bool Finder::FillAwq(const std::string& stem, Recipe* recipe) const {
  recipe->kind = Recipe::Kind::kAwq;
  recipe->bits = 4;
  recipe->cols = recipe->data.shape[0];
  const int64_t words = recipe->data.shape[1];
  if (__builtin_mul_overflow(words, 8, &recipe->rows)) return false;
  recipe->scale = Part(stem + ".scales");
  recipe->zeros = Part(stem + ".qzeros");
  const auto type = FloatType(recipe->scale);
  if (!type || !IsMatrix(recipe->scale) || recipe->scale.shape[1] != recipe->rows) return false;
  recipe->result = *type;
  recipe->groups = recipe->scale.shape[0];
  if (recipe->groups <= 0 || recipe->cols % recipe->groups != 0) return false;
  recipe->block_cols = recipe->cols / recipe->groups;
  return Is(recipe->zeros, "I32", recipe->groups, words);
}

bool Finder::FillGptq(const std::string& stem, Recipe* recipe) const {
  recipe->kind = Recipe::Kind::kGptq;
  recipe->bits = static_cast<int>(IntOr("bits", 4));
  recipe->zero_shift = TextOf(quantization_, "checkpoint_format") == "gptq_v2" ? 0 : 1;
  const int64_t per_word = 32 / recipe->bits;
  recipe->rows = recipe->data.shape[1];
  if (__builtin_mul_overflow(recipe->data.shape[0], per_word, &recipe->cols)) return false;
  recipe->scale = Part(stem + ".scales");
  recipe->zeros = Part(stem + ".qzeros");
  recipe->order = Part(stem + ".g_idx");
  const auto type = FloatType(recipe->scale);
  if (!type || !IsMatrix(recipe->scale) || recipe->scale.shape[1] != recipe->rows) return false;
  recipe->result = *type;
  recipe->groups = recipe->scale.shape[0];
  if (recipe->groups <= 0 || recipe->rows % per_word != 0) return false;
  recipe->block_cols = (recipe->cols - 1) / recipe->groups + 1;
  if (recipe->order.present()) {
    if (recipe->order.type != "I32" || recipe->order.shape.elements() != recipe->cols) return false;
  } else if (recipe->cols % recipe->groups != 0) {
    return false;
  }
  return Is(recipe->zeros, "I32", recipe->groups, recipe->rows / per_word);
}

}  // namespace

StoredPart PartOf(const StoredTensor& tensor, int file) {
  const std::string_view type = tensor.dtype == DType::kF32    ? "F32"
                                : tensor.dtype == DType::kF16  ? "F16"
                                : tensor.dtype == DType::kBF16 ? "BF16"
                                                               : "I32";
  return {tensor.name, type, tensor.shape, tensor.bytes, file};
}

std::string FromModelOptFile(std::string_view json) {
  const auto document = JsonDocument::Parse(json);
  const JsonValue* inner = document.ok() ? document->root().Find("quantization") : nullptr;
  const std::string_view algorithm =
      inner == nullptr ? std::string_view() : TextOf(*inner, "quant_algo");
  if (algorithm.empty()) return {};
  std::string text = R"({"quant_method": "modelopt", "quant_algo": )";
  AppendJsonString(algorithm, &text);
  return text + "}";
}

Status CheckQuantisation(const JsonValue& quantization) {
  return Finder(quantization, {}).CheckMethod();
}

std::vector<std::unique_ptr<Recipe>> FindRecipes(const JsonValue& quantization,
                                                 std::span<const StoredPart> tensors) {
  const Finder finder(quantization, tensors);
  if (!finder.CheckMethod().ok()) return {};
  return finder.Run(tensors);
}

}  // namespace reprise
