// SPDX-License-Identifier: Apache-2.0
#include "model/adapter/adapter_file.h"

#include <sys/stat.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "weights/format/gguf.h"
#include "weights/format/safetensors.h"

namespace reprise {
namespace {

constexpr size_t kProductsMax = 20000;

bool IsDirectory(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool Exists(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0;
}

// The two tensors of every weight, as they are found.
struct Pair {
  const StoredTensor* down = nullptr;
  const StoredTensor* up = nullptr;
  bool embedding = false;
};
using Pairs = std::map<std::string, Pair>;

Status AddTo(Pairs* pairs, const std::string& weight, const StoredTensor& tensor, bool up) {
  const StoredTensor*& place = up ? (*pairs)[weight].up : (*pairs)[weight].down;
  if (place != nullptr) return InvalidArgument("the adapter has " + Quoted(tensor.name) + " twice");
  place = &tensor;
  if (pairs->size() > kProductsMax) return InvalidArgument("the adapter changes too many weights");
  return OkStatus();
}

// One product, if both tensors are there and fit each other. Its scale is not set.
Result<StoredLowRank> Join(const std::string& weight, const Pair& pair) {
  if (pair.down == nullptr || pair.up == nullptr) {
    return InvalidArgument("the adapter has only one of the two tensors of " + Quoted(weight));
  }
  const Shape& down = pair.down->shape;
  const Shape& up = pair.up->shape;
  for (const StoredTensor* tensor : {pair.down, pair.up}) {
    if (tensor->shape.rank() != down.rank() || down.rank() < 2 || down.rank() > 3) {
      return Unimplemented("tensor " + Quoted(tensor->name) +
                           " of the adapter is no matrix: convolutions are not supported");
    }
    if (tensor->dtype == DType::kI32) {
      return InvalidArgument("tensor " + Quoted(tensor->name) + " holds integers, not weights");
    }
    if (tensor->shape.elements() == 0) {
      return InvalidArgument("tensor " + Quoted(tensor->name) + " of the adapter is empty");
    }
  }
  StoredLowRank product{weight, *pair.down, *pair.up};
  product.embedding = pair.embedding;
  const int64_t rank = up.cols();
  const bool whole = down.rank() == 3;  // of all experts, one after another
  const bool turned = pair.embedding && down[1] == rank && down[0] != rank;
  const int64_t other = whole || turned ? down[1] : down[0];
  if (rank != other || rank < 1 || (whole && down[0] != up[0])) {
    return InvalidArgument("the tensors of " + Quoted(weight) + " have ranks " +
                           std::to_string(other) + " and " + std::to_string(rank));
  }
  return product;
}

std::string WithoutPrefix(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return std::string(name);
}

// "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight" -> the module, and which of the two.
// Older files have the adapter's name behind lora_A.
struct PeftName {
  std::string module;
  bool up = false;
  bool embedding = false;
};
std::optional<PeftName> ReadPeftName(std::string_view name) {
  constexpr std::string_view kMarks[] = {".lora_A", ".lora_B", ".lora_embedding_A",
                                         ".lora_embedding_B"};
  for (size_t i = 0; i < std::size(kMarks); ++i) {
    const size_t at = name.rfind(kMarks[i]);
    if (at == std::string_view::npos) continue;
    const bool embedding = i >= 2;
    std::string_view behind = name.substr(at + kMarks[i].size());
    if (!behind.empty() && behind.front() != '.') return std::nullopt;
    if (!embedding) {
      if (!behind.ends_with(".weight")) return std::nullopt;
      behind.remove_suffix(7);
    }
    if (behind.find('.', 1) != std::string_view::npos) return std::nullopt;
    std::string module = WithoutPrefix(name.substr(0, at));
    if (module.empty()) return std::nullopt;
    return PeftName{std::move(module), i % 2 == 1, embedding};
  }
  return std::nullopt;
}

// PEFT wraps a module once for each of its parameters.
std::string WithoutWraps(std::string module) {
  constexpr std::string_view kWrap = ".base_layer";
  for (size_t at = module.find(kWrap); at != std::string::npos; at = module.find(kWrap)) {
    module.erase(at, kWrap.size());
  }
  return module;
}

// A weight of the base that has an adapter.
bool IsCopy(std::string_view name) { return name.ends_with(".base_layer.weight"); }

Status RefusePeft(std::string_view name) {
  std::string why = "which is no part of a plain LoRA of linear layers";
  if (name.find("lora_magnitude_vector") != std::string_view::npos) why = "which belongs to DoRA";
  if (name.ends_with(".bias")) why = "but trained biases are not supported";
  return Unimplemented("the adapter has tensor " + Quoted(name) + ", " + why);
}

}  // namespace

struct AdapterFile::Files {
  std::optional<MappedFile> mapped;
  std::optional<SafetensorsFile> safetensors;
  std::optional<GgufFile> gguf;
};

AdapterFile::AdapterFile() : files_(std::make_unique<Files>()) {}
AdapterFile::AdapterFile(AdapterFile&&) noexcept = default;
AdapterFile& AdapterFile::operator=(AdapterFile&&) noexcept = default;
AdapterFile::~AdapterFile() = default;

Status AdapterFile::AddPeft(std::string_view text, std::span<const std::byte> bytes) {
  format_ = AdapterFormat::kPeft;
  REPRISE_ASSIGN(config_, AdapterConfig::Parse(text));
  invocation_ = config_.invocation();
  auto parsed = SafetensorsFile::Parse(bytes);
  if (!parsed.ok()) return parsed.status().Annotate("adapter_model.safetensors");
  files_->safetensors.emplace(std::move(*parsed));
  const SafetensorsFile& file = *files_->safetensors;
  if (!file.foreign().empty()) {
    return Unimplemented("tensor " + Quoted(file.foreign().front().name) +
                         " of the adapter has a type that is not computed with");
  }
  Pairs pairs;
  for (const StoredTensor& tensor : file.tensors()) {
    const std::optional<PeftName> name = ReadPeftName(tensor.name);
    if (!name && IsCopy(tensor.name)) {
      copies_.push_back({WithoutWraps(WithoutPrefix(tensor.name)), tensor.shape});
      continue;
    }
    if (!name) return RefusePeft(tensor.name);
    REPRISE_TRY(AddTo(&pairs, name->module, tensor, name->up));
    pairs[name->module].embedding = name->embedding;
  }
  for (const Copy& copy : copies_) {
    const std::string module = copy.weight.substr(0, copy.weight.rfind('.'));
    if (!pairs.contains(module)) return RefusePeft(copy.weight);
  }
  for (const auto& [wrapped, pair] : pairs) {
    const std::string module = WithoutWraps(wrapped);
    REPRISE_ASSIGN(StoredLowRank product, Join(module, pair));
    if (product.down.shape.rank() != 2) {
      return Unimplemented("tensor " + Quoted(product.down.name) + " of the adapter is no matrix");
    }
    if (product.embedding && config_.ties_weights()) {
      return Unimplemented(
          "adapters of embeddings that are the head, too ('ensure_weight_tying') are not "
          "supported");
    }
    const int64_t rank = product.up.shape[1];
    const auto scale = config_.ScaleOf(module, rank);
    // What the configuration gives may be the rank of each of many.
    product.stacked = !scale.ok() && config_.MayStack(module, rank);
    if (!scale.ok() && !product.stacked) return scale.status();
    if (scale.ok()) product.scale = *scale;
    product.weight += ".weight";
    products_.push_back(std::move(product));
  }
  return OkStatus();
}

Status AdapterFile::AddGguf(std::span<const std::byte> bytes) {
  format_ = AdapterFormat::kGguf;
  REPRISE_ASSIGN(files_->gguf, GgufFile::Parse(bytes));
  const GgufFile& file = *files_->gguf;
  const auto text = [&](const char* key) -> std::string {
    const GgufValue* value = file.Find(key);
    if (value == nullptr || value->is_array() || value->type() != GgufType::kString) return "";
    return std::string(*value->strings().begin());
  };
  if (text("general.type") != "adapter") {
    return InvalidArgument("the GGUF file is no adapter (general.type is not 'adapter')");
  }
  if (text("adapter.type") != "lora") {
    return Unimplemented("adapters of type " + Quoted(text("adapter.type")) +
                         " are not supported; 'lora' is");
  }
  architecture_ = text("general.architecture");
  const GgufValue* alpha = file.Find("adapter.lora.alpha");
  const std::optional<double> number =
      alpha == nullptr || alpha->is_array() ? std::nullopt : alpha->NumberAt(0);
  if (!number || !std::isfinite(*number) || std::abs(*number) > 1e9) {
    return InvalidArgument("the adapter has no number 'adapter.lora.alpha'");
  }
  if (const GgufValue* invocation = file.Find("adapter.alora.invocation_tokens")) {
    constexpr uint64_t kTokensMax = 1024;
    if (!invocation->is_array() || invocation->size() > kTokensMax) {
      return InvalidArgument("'adapter.alora.invocation_tokens' is no list of tokens");
    }
    for (uint64_t i = 0; i < invocation->size(); ++i) {
      const std::optional<int64_t> token = invocation->IntAt(i);
      if (!token || *token < 0 || *token > INT32_MAX) {
        return InvalidArgument("'adapter.alora.invocation_tokens' has what is no token");
      }
      invocation_.push_back(TokenId(*token));
    }
  }
  Pairs pairs;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.recipe != nullptr) {
      return Unimplemented("tensor " + Quoted(tensor.name) +
                           " of the adapter has a type that is not computed with");
    }
    const bool up = tensor.name.ends_with(".lora_b");
    if (!up && !tensor.name.ends_with(".lora_a")) {
      return Unimplemented("the adapter has tensor " + Quoted(tensor.name) +
                           ", which is no part of a plain LoRA");
    }
    const std::string weight(tensor.name.substr(0, tensor.name.size() - 7));
    REPRISE_TRY(AddTo(&pairs, weight, tensor, up));
    pairs[weight].embedding = weight == "token_embd.weight";
  }
  for (const auto& [weight, pair] : pairs) {
    REPRISE_ASSIGN(StoredLowRank product, Join(weight, pair));
    if (product.up.shape.cols() > AdapterConfig::kRankMax) {
      return InvalidArgument("the tensors of " + Quoted(weight) + " have rank " +
                             std::to_string(product.up.shape.cols()));
    }
    // As llama.cpp: no alpha is a scale of one.
    if (*number != 0) product.scale = *number / double(product.up.shape.cols());
    products_.push_back(std::move(product));
  }
  return OkStatus();
}

Result<double> AdapterFile::ScaleOf(const std::string& weight, int64_t rank) const {
  constexpr std::string_view kWeight = ".weight";
  std::string_view name = weight;
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return config_.ScaleOf(name, rank);
}

Result<AdapterFile> AdapterFile::ParsePeft(std::string_view config,
                                           std::span<const std::byte> safetensors) {
  AdapterFile file;
  REPRISE_TRY(file.AddPeft(config, safetensors));
  return file;
}

Result<AdapterFile> AdapterFile::ParseGguf(std::span<const std::byte> bytes) {
  AdapterFile file;
  REPRISE_TRY(file.AddGguf(bytes));
  return file;
}

Result<AdapterFile> AdapterFile::Open(const std::string& path) {
  AdapterFile file;
  Status read;
  if (IsDirectory(path)) {
    const std::string tensors = path + "/adapter_model.safetensors";
    if (!Exists(tensors) && Exists(path + "/adapter_model.bin")) {
      return Unimplemented(path +
                           ": adapter_model.bin is not read, for it may run programs; save "
                           "the adapter as adapter_model.safetensors");
    }
    auto config = ReadFile(path + "/adapter_config.json", AdapterConfig::kBytesMax);
    if (!config.ok()) return config.status();
    REPRISE_ASSIGN(file.files_->mapped, MappedFile::Open(tensors));
    read = file.AddPeft(*config, file.files_->mapped->bytes());
  } else {
    if (path.ends_with(".safetensors")) {
      return InvalidArgument(path + ": give the folder that holds it and adapter_config.json");
    }
    REPRISE_ASSIGN(file.files_->mapped, MappedFile::Open(path));
    read = file.AddGguf(file.files_->mapped->bytes());
  }
  if (!read.ok()) return read.Annotate(path);
  if (file.products_.empty()) return InvalidArgument(path + ": the adapter has no tensors");
  return file;
}

}  // namespace reprise
