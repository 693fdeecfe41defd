// SPDX-License-Identifier: Apache-2.0
#include "model/adapter/adapter.h"

#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/sha256.h"
#include "kernels/backend.h"
#include "model/adapter/adapter_values.h"
#include "model/adapter/expert_products.h"
#include "state/virtual_tokens.h"

namespace reprise {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbeddingInGguf = "token_embd.weight";

// The name of a weight without what stands before it, which depends on what the model was wrapped
// in when it was trained. Empty: the name is of no part of the text model.
std::string_view FromModel(std::string_view name) {
  for (const std::string_view prefix :
       {"", "model.", "backbone.", "language_model.", "model.language_model.",
        "language_model.model.", "transformer."}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    if (rest.starts_with("layers.") || rest == kHead || rest == "embed_tokens.weight" ||
        rest == "embeddings.weight") {
      return rest;
    }
  }
  return {};
}

// Of stacks of experts that a router chooses.
bool IsOfExperts(const PlannedTensor& tensor) { return tensor.slices > 1 && tensor.routed; }

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
      const std::string_view known = gguf ? std::string_view(name) : FromModel(name);
      if (!known.empty()) targets.emplace(known, Target{i, fused});
    };
    if (tensor.role == TensorRole::kEmbedding) continue;
    if (tensor.role == TensorRole::kEmbeddingAndHead) {
      add(gguf ? "output.weight" : std::string(kHead), nullptr);
      continue;
    }
    if (tensor.mtp) continue;
    add(gguf ? tensor.gguf : tensor.hf, nullptr);
    if (IsOfExperts(tensor) && !gguf) {
      // A parameter of three dimensions has the name of its module.
      const std::string& all = tensor.fused.hf;
      if (!all.empty()) add(all.substr(0, all.rfind('.')) + ".weight", &tensor.fused);
      continue;
    }
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

bool InOrder(const std::vector<int64_t>& places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != int64_t(i)) return false;
  }
  return true;
}

// Columns of the narrow matrix in the order of memory.
AdapterValues ReadDown(const StoredTensor& tensor, const std::vector<int64_t>& places) {
  if (InOrder(places) && CanView(tensor)) return AdapterValues::View(tensor);
  AdapterValues values(HeldAs(tensor), tensor.shape[0], int64_t(places.size()));
  std::vector<float> stored(places.size()), moved(places.size());
  for (int64_t r = 0; r < values.rows(); ++r) {
    ReadFloats(tensor, r, stored.data());
    for (size_t i = 0; i < places.size(); ++i) moved[i] = stored[size_t(places[i])];
    values.SetRow(r, moved.data());
  }
  return values;
}

// Rows of the tall matrix in the order of memory, each times what the base's row is multiplied by.
AdapterValues ReadUp(const StoredTensor& tensor, const std::vector<int64_t>& places,
                     const std::vector<float>& factors) {
  const bool scaled = std::any_of(factors.begin(), factors.end(), [](float f) { return f != 1; });
  const bool whole = int64_t(places.size()) == tensor.shape[0];
  if (!scaled && whole && InOrder(places) && CanView(tensor)) return AdapterValues::View(tensor);
  AdapterValues values(scaled ? DType::kF32 : HeldAs(tensor), int64_t(places.size()),
                       tensor.shape[1]);
  if (!scaled && values.dtype() == tensor.dtype) {
    const size_t row_bytes = values.row_bytes();
    for (size_t i = 0; i < places.size(); ++i) {
      std::memcpy(values.row(int64_t(i)), tensor.bytes.data() + row_bytes * size_t(places[i]),
                  row_bytes);
    }
    return values;
  }
  std::vector<float> row(static_cast<size_t>(values.cols()));
  for (size_t i = 0; i < places.size(); ++i) {
    ReadFloats(tensor, places[i], row.data());
    for (float& value : row) value *= factors[i];
    values.SetRow(int64_t(i), row.data());
  }
  return values;
}

// What is hashed: everything that decides the bits, by the places of weights in the plan, whatever
// order and names the file has.
class Content {
 public:
  void Add(size_t index, float scale, const AdapterValues& down, const AdapterValues& up) {
    std::string& parts = parts_[index];
    parts.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    for (const AdapterValues* values : {&down, &up}) {
      parts += std::string(NameOf(values->dtype())) + ShapeText(values->rows(), values->cols());
      // By OpenSSL, which has the processor's instructions: this is most of what loading takes.
      unsigned char hash[SHA256_DIGEST_LENGTH];
      ::SHA256(reinterpret_cast<const unsigned char*>(values->data()), values->bytes(), hash);
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

Status CheckSizes(const StoredLowRank& stored, const PlannedTensor& tensor,
                  const FusedTensor* fused) {
  const int64_t rows = fused != nullptr ? fused->rows : tensor.rows;
  if (stored.up.shape[0] == rows && stored.down.shape[1] == tensor.cols) return OkStatus();
  return InvalidArgument("the adapter's product for " + Quoted(stored.weight) + " is " +
                         ShapeText(stored.up.shape[0], stored.down.shape[1]) +
                         ", but the model's weight is " + ShapeText(rows, tensor.cols));
}

// "layers.0.mlp.experts.3.up_proj.weight" -> "layers.0.mlp.experts.{}.up_proj.weight" and 3, for
// every number but that of the layer.
struct ExpertName {
  std::string name;
  int64_t expert = -1;
};
std::vector<ExpertName> ExpertNames(std::string_view name) {
  std::vector<ExpertName> names;
  size_t begin = name.find('.', name.find('.') + 1);  // behind "layers.0"
  while (begin != std::string_view::npos) {
    const size_t end = name.find('.', ++begin);
    if (end == std::string_view::npos) break;
    int64_t number = 0;
    const auto [at, error] = std::from_chars(name.data() + begin, name.data() + end, number);
    if (error == std::errc() && at == name.data() + end && number >= 0) {
      names.push_back(
          {std::string(name.substr(0, begin)) + "{}" + std::string(name.substr(end)), number});
    }
    begin = end;
  }
  return names;
}

// Of which weights, and of what ranks, it is.
uint64_t ShapeOf(std::span<const LowRank> products) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < products.size(); ++i) {
    if (products[i].empty()) continue;
    ranks.push_back(int64_t(i));
    ranks.push_back(products[i].down.rows());
  }
  const auto bytes = std::as_bytes(std::span(ranks));
  return HashBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

// Reads one adapter.
class AdapterLoader {
 public:
  AdapterLoader(const AdapterFile& file, double scale, const AdaptableModel& model,
                std::span<const OpContext> contexts, Adapter* adapter)
      : file_(file),
        scale_(scale),
        model_(model),
        contexts_(contexts),
        gguf_(file.format() == AdapterFormat::kGguf),
        adapter_(adapter) {}

  Status Load() {
    adapter_->products_.resize(model_.tensors.size());
    const Targets targets = FindTargets(model_, file_.format());
    for (const StoredLowRank& stored : file_.products()) {
      REPRISE_TRY(stored.embedding ? AddEmbedding(stored) : AddProduct(targets, stored));
    }
    for (const AdapterFile::Copy& copy : file_.copies()) REPRISE_TRY(CheckCopy(copy));
    REPRISE_ASSIGN(const auto stacks, experts_.Join());
    for (const auto& [index, stack] : stacks) {
      const PlannedTensor& tensor = model_.tensors[index];
      REPRISE_ASSIGN(const float factor, Factor(stack.scale, tensor.gguf));
      if (factor == 0) continue;
      REPRISE_TRY(Take(index, factor, stack.down, stack.up, tensor.slices, ContextOf(tensor),
                       &adapter_->products_[index]));
    }
    adapter_->digest_ = model_.digest;
    if (adapter_->bytes_ == 0) return OkStatus();
    const std::vector<TokenId>& invocation = file_.invocation();
    std::string named = model_.digest;
    for (const TokenId token : invocation) named += " from " + std::to_string(token);
    adapter_->digest_ = content_.Hex(named);
    adapter_->invocation_ = invocation;
    if (invocation.empty()) return OkStatus();
    const auto name = Sha256("activated adapter " + adapter_->digest_);
    REPRISE_ASSIGN(adapter_->mark_, VirtualTokens::Get().Take(name, 1));
    return OkStatus();
  }

 private:
  const OpContext& ContextOf(const PlannedTensor& tensor) const {
    const Placement& placement = model_.placement;
    const int device =
        tensor.routed ? placement.OfExperts(tensor.layer) : placement.OfLayer(tensor.layer);
    CHECK(size_t(device) < contexts_.size());
    return contexts_[size_t(device)];
  }

  Result<float> Factor(double stored_scale, const std::string& weight) const {
    const double effective = stored_scale * scale_;
    if (!std::isfinite(effective) || std::abs(effective) > 1e9) {
      return InvalidArgument("the adapter's scale for " + Quoted(weight) + " is no number");
    }
    return static_cast<float>(effective);
  }

  // One of `count` matrices, as the context multiplies with it. `index` is its place in the digest.
  Status Take(size_t index, float factor, const AdapterValues& down, const AdapterValues& up,
              int64_t count, const OpContext& context, LowRank* product) {
    product->scale = factor;
    content_.Add(index, factor, down, up);
    REPRISE_ASSIGN(product->down, down.Pack(count, context));
    REPRISE_ASSIGN(product->up, up.Pack(count, context));
    adapter_->bytes_ += product->down.bytes() + product->up.bytes();
    return OkStatus();
  }

  Status AddProduct(const Targets& targets, const StoredLowRank& stored) {
    const std::string_view name = NameInModel(stored.weight);
    auto range = targets.equal_range(name);
    int64_t expert = -1;
    if (range.first == range.second) {
      for (const ExpertName& one : ExpertNames(name)) {
        range = targets.equal_range(one.name);
        expert = one.expert;
        if (range.first != range.second) break;
      }
    }
    if (range.first == range.second) {
      // Two products in one: then what the configuration says of the rank was not asked yet.
      if (stored.stacked) REPRISE_TRY(file_.ScaleOf(stored.weight, stored.down.shape[0]).status());
      return Unimplemented("the adapter changes " + Quoted(stored.weight) +
                           ", which is no linear layer of this model that can have an adapter");
    }
    bool fits = false;
    for (auto target = range.first; target != range.second; ++target) {
      const auto& [index, fused] = target->second;
      const PlannedTensor& tensor = model_.tensors[index];
      if (!IsAdaptable(tensor) || (IsOfExperts(tensor) && !AdaptsAll(tensor))) {
        return Unimplemented("the adapter changes " + Quoted(stored.weight) +
                             ", and adapters of that are not supported here");
      }
      if (IsOfExperts(tensor)) {
        REPRISE_ASSIGN(const bool added, experts_.Add(file_, stored, tensor, index, fused, expert));
        fits = fits || added;
        continue;
      }
      fits = true;
      REPRISE_TRY(AddLinear(stored, index, fused));
    }
    if (fits) return OkStatus();
    return CheckSizes(stored, model_.tensors[range.first->second.index], range.first->second.fused);
  }

  // What it is a copy of is not compared, but another number of tokens is another vocabulary.
  Status CheckCopy(const AdapterFile::Copy& copy) const {
    for (const PlannedTensor& tensor : model_.tensors) {
      if (tensor.role == TensorRole::kLayer) continue;
      if (copy.shape == Shape{tensor.rows, tensor.cols}) return OkStatus();
    }
    return Unimplemented("the adapter has a vocabulary of its own, " + Quoted(copy.weight) +
                         ", which is not supported");
  }

  bool AdaptsAll(const PlannedTensor& tensor) const {
    return ContextOf(tensor).backend->adapts_experts();
  }

  std::string_view NameInModel(std::string_view weight) const {
    return gguf_ ? weight : FromModel(weight);
  }

  Status AddLinear(const StoredLowRank& stored, size_t index, const FusedTensor* fused) {
    const PlannedTensor& tensor = model_.tensors[index];
    if (stored.stacked) REPRISE_TRY(file_.ScaleOf(stored.weight, stored.down.shape[0]).status());
    REPRISE_TRY(CheckSizes(stored, tensor, fused));
    std::vector<int64_t> rows =
        FilePlaces(tensor.head_rows, false, tensor.rows, model_.gguf, gguf_);
    const std::vector<int64_t> cols =
        FilePlaces(tensor.head_rows, true, tensor.cols, model_.gguf, gguf_);
    std::vector<float> factors(rows.size(), 1);
    for (size_t i = 0; i < rows.size(); ++i) {
      factors[i] = FactorOfFile(tensor, int64_t(i));
      if (fused != nullptr) rows[i] = fused->RowOf(rows[i]);
    }
    REPRISE_ASSIGN(const float factor, Factor(stored.scale, stored.weight));
    if (factor == 0) return OkStatus();  // the weight as it is, to the bit
    LowRank& product = adapter_->products_[index];
    if (!product.empty()) {
      return InvalidArgument("the adapter changes " + Quoted(stored.weight) + " under two names");
    }
    return Take(index, factor, ReadDown(stored.down, cols), ReadUp(stored.up, rows, factors), 1,
                ContextOf(tensor), &product);
  }

  // What a row of the base in memory is times one in the names of the adapter's format.
  float FactorOfFile(const PlannedTensor& tensor, int64_t row) const {
    if (model_.gguf == gguf_) return 1;
    const float in_gguf = GgufFactor(tensor, row);
    return model_.gguf ? in_gguf : 1 / in_gguf;
  }

  // down: a row for each token, as steps look it up.
  Status AddEmbedding(const StoredLowRank& stored) {
    const std::string_view name = NameInModel(stored.weight);
    const auto& tensors = model_.tensors;
    const auto table = std::find_if(tensors.begin(), tensors.end(), [&](const PlannedTensor& one) {
      const bool role =
          one.role == TensorRole::kEmbedding || one.role == TensorRole::kEmbeddingAndHead;
      return role && one.gguf == kEmbeddingInGguf &&
             name == (gguf_ ? std::string_view(one.gguf) : FromModel(one.hf));
    });
    if (table == tensors.end() || !AdaptsAll(*table)) {
      return Unimplemented("the adapter changes " + Quoted(stored.weight) +
                           ", and adapters of that are not supported here");
    }
    const int64_t rank = stored.up.shape[1];
    const bool turned = stored.down.shape[0] == rank;  // [rank, vocabulary]
    const int64_t tokens = stored.down.shape[turned ? 1 : 0];
    if (tokens != table->rows || stored.up.shape[0] != table->cols) {
      return InvalidArgument("the adapter's product for " + Quoted(stored.weight) + " is " +
                             ShapeText(tokens, stored.up.shape[0]) + ", but the model's table is " +
                             ShapeText(table->rows, table->cols));
    }
    REPRISE_ASSIGN(const float factor, Factor(stored.scale, stored.weight));
    if (factor == 0) return OkStatus();
    AdapterValues down(HeldAs(stored.down), tokens, rank);
    std::vector<float> all(size_t(tokens * rank)), row(static_cast<size_t>(rank));
    for (int64_t r = 0; r < (turned ? rank : tokens); ++r) {
      ReadFloats(stored.down, r, all.data() + r * (turned ? tokens : rank));
    }
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t r = 0; r < rank; ++r) {
        row[size_t(r)] = all[size_t(turned ? r * tokens + token : token * rank + r)];
      }
      down.SetRow(token, row.data());
    }
    const std::vector<int64_t> rows =
        FilePlaces(HeadRows(), false, table->cols, model_.gguf, gguf_);
    const std::vector<float> factors(rows.size(), FactorOfFile(*table, 0));
    // The table may be the head, too, which has a product of its own: another place.
    return Take(tensors.size(), factor, down, ReadUp(stored.up, rows, factors), 1,
                ContextOf(*table), &adapter_->embedding_);
  }

  const AdapterFile& file_;
  const double scale_;
  const AdaptableModel& model_;
  const std::span<const OpContext> contexts_;
  const bool gguf_;
  Adapter* const adapter_;
  ExpertProducts experts_;
  Content content_;
};

bool IsAdaptable(const PlannedTensor& tensor) {
  if (!tensor.is_matrix() || tensor.role == TensorRole::kEmbedding) return false;
  if (tensor.role != TensorRole::kLayer || IsOfExperts(tensor)) return true;
  const auto turned = [](const FusedTensor& fused) { return fused.transposed || fused.step != 1; };
  return tensor.slices == 1 && tensor.hf.find('{') == std::string::npos && !turned(tensor.fused) &&
         !turned(tensor.other_fused);
}

namespace {

// Not experts, embeddings or heads, whose rows are not those of the step.
bool ChangesLayersAlone(const Adapter& adapter, const AdaptableModel& model) {
  if (!adapter.embedding().empty()) return false;
  for (size_t i = 0; i < adapter.products().size(); ++i) {
    const PlannedTensor& tensor = model.tensors[i];
    if (adapter.products()[i].empty()) continue;
    if (tensor.role != TensorRole::kLayer || IsOfExperts(tensor)) return false;
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const Adapter>> Adapter::Load(const AdapterFile& file, double scale,
                                                     const AdaptableModel& model,
                                                     std::span<const OpContext> contexts) {
  const auto& families = model.architectures;
  if (!file.architecture().empty() &&
      std::find(families.begin(), families.end(), file.architecture()) == families.end()) {
    return InvalidArgument("the adapter is for " + Quoted(file.architecture()) + " models");
  }
  std::shared_ptr<Adapter> adapter(new Adapter());
  REPRISE_TRY(AdapterLoader(file, scale, model, contexts, adapter.get()).Load());
  adapter->shape_ = ShapeOf(adapter->products_);
  if (contexts.size() == 1 && ChangesLayersAlone(*adapter, model)) {
    REPRISE_ASSIGN(adapter->table_, contexts.front().backend->LowRankTable(adapter->products_));
  }
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

std::optional<int32_t> Adapter::CountsFrom(std::span<const TokenId> prompt) const {
  if (invocation_.empty()) return 0;
  const auto found =
      std::find_end(prompt.begin(), prompt.end(), invocation_.begin(), invocation_.end());
  if (found == prompt.end()) return std::nullopt;
  return static_cast<int32_t>(found - prompt.begin());
}

}  // namespace reprise
