// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/adapter/adapter_config.h"
#include "weights/format/stored_tensor.h"

namespace reprise {

enum class AdapterFormat : uint8_t { kPeft, kGguf };

// What an adapter adds to one weight: up [rows, rank] times down [rank, cols], times scale. Views
// of the file.
struct StoredLowRank {
  // The weight in the names of the format, with ".weight": "model.layers.0.mlp.up_proj.weight" as
  // PEFT names it, "blk.0.ffn_up.weight" in GGUF.
  std::string weight;
  StoredTensor down;
  StoredTensor up;
  double scale = 1;
  // More than one product: experts in one pair of tensors, which only the model can tell apart
  // (expert_products.h); its scale is that of AdapterFile::ScaleOf.
  bool stacked = false;
  bool embedding = false;  // of a table: down is [rank, rows], or in GGUF [rows, rank]
};

// A LoRA adapter on disk: a PEFT folder (adapter_config.json, adapter_model.safetensors) or a GGUF
// file (general.type "adapter"). Every byte is hostile: tensors are views of mapped files, sizes
// are checked against one another, and what is not understood is refused in one sentence.
//
// Thread safety: immutable.
class AdapterFile {
 public:
  static Result<AdapterFile> Open(const std::string& path);
  // Of bytes that outlive the result.
  static Result<AdapterFile> ParsePeft(std::string_view config,
                                       std::span<const std::byte> safetensors);
  static Result<AdapterFile> ParseGguf(std::span<const std::byte> bytes);

  AdapterFile(AdapterFile&&) noexcept;
  AdapterFile& operator=(AdapterFile&&) noexcept;
  ~AdapterFile();

  AdapterFormat format() const { return format_; }
  // general.architecture of GGUF; empty: the file does not say.
  const std::string& architecture() const { return architecture_; }
  const std::vector<StoredLowRank>& products() const { return products_; }  // by name
  // Tables of the base that lie beside adapters of them, as PEFT has it: the model has them itself.
  struct Copy {
    std::string weight;
    Shape shape;
  };
  const std::vector<Copy>& copies() const { return copies_; }
  // Of a product whose tensors hold several, by the name of what it changes and the rank of each.
  // Fails if the file gives it another rank.
  Result<double> ScaleOf(const std::string& weight, int64_t rank) const;
  // Tokens from whose last occurrence on the adapter counts (aLoRA); empty: everywhere.
  const std::vector<TokenId>& invocation() const { return invocation_; }

 private:
  struct Files;
  AdapterFile();
  Status AddPeft(std::string_view config, std::span<const std::byte> safetensors);
  Status AddGguf(std::span<const std::byte> bytes);

  std::unique_ptr<Files> files_;
  AdapterFormat format_ = AdapterFormat::kPeft;
  std::string architecture_;
  std::vector<StoredLowRank> products_;
  std::vector<Copy> copies_;
  std::vector<TokenId> invocation_;
  AdapterConfig config_;  // of a folder
};

}  // namespace reprise
