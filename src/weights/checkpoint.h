// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/format/stored_tensor.h"
#include "weights/metadata.h"

namespace reprise {

enum class CheckpointFormat { kGguf, kHuggingFace };

// A model on disk, whatever its format: hyper-parameters and a directory of tensors.
//
//   kGguf          one .gguf file, or a set name-00001-of-0000N.gguf given by any of its parts;
//                  metadata() is that of the first part
//   kHuggingFace   a folder with config.json and model.safetensors, or shards listed by
//                  model.safetensors.index.json; metadata() is config.json. Levels and scales of
//                  MXFP4 ("<name>_blocks", "<name>_scales") are one tensor, "<name>_blocks"
//
// Names of tensors and keys stay those of the format: families know both (model/families).
// Files are mapped; nothing of a tensor is read until its bytes are touched. A file must not be cut
// short while it is open: the kernel would end the process (SIGBUS). Replacing it is fine.
//
// Thread safety: immutable; Release may be called from any thread.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  CheckpointFormat format() const;
  const std::string& path() const;         // as it was given
  std::vector<std::string> files() const;  // that hold tensors
  const Metadata& metadata() const;
  // general.architecture of GGUF, model_type of config.json; empty if absent.
  std::string_view architecture() const;

  std::span<const StoredTensor> tensors() const;  // sorted by name
  uint64_t tensor_bytes() const;                  // of all of them
  const StoredTensor* Find(std::string_view name) const;
  // The tensor, or one sentence: missing, of another shape, of a type that cannot be computed with.
  Result<const StoredTensor*> Require(std::string_view name, const Shape& shape) const;

  // The bytes will not be needed again (they were packed elsewhere): drops them from memory.
  void Release(const StoredTensor& tensor) const;

  // A text that lies beside the weights of a Hugging Face folder: tokenizer.json,
  // tokenizer_config.json, generation_config.json, chat_template.jinja and the like. Fails with
  // kNotFound if it is not there (never for GGUF, where metadata has all of it).
  // `folder`, from a file like these, is one inside the folder; empty: none.
  // REQUIRES: name is a plain file name.
  Result<std::string> ReadText(std::string_view name, std::string_view folder = {}) const;

 private:
  friend class CheckpointOpener;
  struct Parts;
  explicit Checkpoint(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

Result<Checkpoint> OpenCheckpoint(const std::string& path);

}  // namespace reprise
