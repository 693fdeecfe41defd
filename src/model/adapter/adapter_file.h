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
  std::vector<TokenId> invocation_;
};

}  // namespace reprise
