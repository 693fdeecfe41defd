// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/vector.h"
#include "tensor/division.h"
#include "tensor/shape.h"

namespace reprise {

// The order of rows (or columns) that belong to heads, where the two file formats and memory
// differ.
//
//  order        Hugging Face               GGUF                      memory
//  kPlain       as is                      as is                     as is
//  kRotary      halves: (i, i + d/2)       pairs: (2i, 2i + 1)       halves
//  kQueryGate   per head: query, gate      per head: query, gate     all queries, then all gates
//  kValueHeads  grouped under key heads    tiled over key heads      as in the file
//  kPairs       the last rows of a head in pairs, in both formats    in halves
//
// Rows of quantised blocks move whole; columns cannot move, so kValueHeads stays as it came.
enum class HeadOrder : uint8_t { kPlain, kRotary, kQueryGate, kValueHeads, kPairs };

struct HeadRows {
  HeadOrder order = HeadOrder::kPlain;
  bool columns = false;   // the order is one of columns
  int64_t first = 0;      // rows before it are not touched
  int heads = 0;          // query heads or value heads
  int key_heads = 0;      // kValueHeads only
  int64_t head_rows = 0;  // rows of one head (of its query, for kQueryGate)
  int64_t tail = 0;       // kPairs only: how many are the last rows
};

// What a value is in Hugging Face files, in GGUF and in memory:
//  kPlain: w, w, w    kOnePlus: w, 1 + w, 1 + w    kNegatedExp: log a, -a, a
enum class ValueForm : uint8_t { kPlain, kOnePlus, kNegatedExp };

// Random weights for `reprise synth`: normal, in the terms of Hugging Face files.
struct RandomInit {
  float mean = 0;
  float deviation = 0;
};

// Where a matrix takes part: a lookup reads single rows of kEmbedding, a step all of the others.
enum class TensorRole : uint8_t { kLayer, kEmbedding, kHead, kEmbeddingAndHead };

// Rows of a tensor that holds more than one planned tensor: `count` parts of `rows` rows each,
// `stride` apart, the first at row `first`.
struct RowParts {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t first = 0;
  int64_t stride = 0;
};

// Where a file may hold a planned tensor besides under its own name: in the parts of a larger one
// (experts in one piece, gate beside up, q, k and v by head), parts in the order of our rows.
struct FusedTensor {
  std::string hf;  // empty: never in that format
  std::string gguf;
  int64_t rows = 0;  // of all of it
  std::vector<RowParts> parts;
  bool transposed = false;  // a part is [cols, rows] of one of our slices
  // With it: our rows are every `step`-th of a part's columns, from `first_column` on.
  int64_t step = 1;
  int64_t first_column = 0;

  bool empty() const { return rows == 0; }
  int64_t RowOf(int64_t planned_row) const;
};

// `rows` rows of a GGUF tensor are those of the Hugging Face file times `factor`.
struct RowFactor {
  int64_t rows = 0;
  float factor = 1;
};

// One tensor of a model, declared once for loading, converting and synthesis.
struct PlannedTensor {
  // Name in Hugging Face files. "{}": a tensor per slice, its number there; "{r,k,v}": its name.
  std::string hf;
  std::string gguf;  // name in GGUF files
  int layer = -1;    // -1: of none
  // A stack of matrices, `rows` x `cols` each: of experts, of heads. GGUF: [slices, rows, cols].
  int64_t slices = 1;
  double active = 1;    // share of the slices that a token goes through
  bool routed = false;  // of experts that a router chooses: they may lie apart from their layer
  int64_t rows = 1;
  int64_t cols = 0;
  FusedTensor fused;
  FusedTensor other_fused;  // a second form of it
  HeadRows head_rows;
  // Rows that stay together where several devices have a part each; empty: none have to.
  std::vector<Section> sections;
  ValueForm values = ValueForm::kPlain;
  bool transposed = false;  // a vector target holds [cols, rows]
  // Where a model multiplies activations by constants that GGUF files have in their weights: from
  // the first row on, one after another. Empty: 1.
  std::vector<RowFactor> gguf_factors;
  RandomInit init;
  // Exactly one is set. Matrices (stacks of [slices]) keep their type (or are quantised on the
  // way), vectors become f32.
  Matrix* matrix = nullptr;
  std::vector<float>* vector = nullptr;
  TensorRole role = TensorRole::kLayer;
  std::optional<Shape> gguf_shape;  // as it is written, where extents of 1 matter
  bool precise = false;             // never quantised: small, and decides much
  // Small, and followed by a choice or a recurrence in which errors grow: where the file has 16
  // bits, F32 in memory, so that no backend rounds what it multiplies.
  bool decides = false;
  // Of a block that predicts further tokens: a model is whole without it. `active` is 0 where steps
  // of the model do not read it.
  bool mtp = false;
  // GGUF only, and there it may be absent; a converter writes these values.
  bool optional = false;
  std::vector<float> computed;

  bool is_matrix() const { return matrix != nullptr; }
  int64_t row_count() const { return slices * rows; }
  int64_t element_count() const { return row_count() * cols; }
};

// All tensors of a model, in the order of the forward pass.
class TensorPlan {
 public:
  struct Name {
    std::string hf;
    std::string gguf;
    int layer = -1;
  };

  // `hf_prefix` stands before every name but that of the head, for example "model.".
  explicit TensorPlan(std::string hf_prefix) : hf_prefix_(std::move(hf_prefix)) {}

  Name Global(std::string_view hf, std::string_view gguf) const;
  Name Layer(int layer, std::string_view hf, std::string_view gguf) const;
  // The head: in most files the one tensor without the prefix.
  Name Head() const;
  // Of the block that predicts further tokens, and what is of no layer in it. From BeginMtp on,
  // Layer(layer, ...) is its only layer: "<hf_prefix>layers.0." in Hugging Face files. EndMtp marks
  // the tensors from number `first` on. (One block: GGUF files have it as a layer like the others.)
  void BeginMtp(int layer, std::string_view hf_prefix);
  Name Mtp(int layer, std::string_view hf, std::string_view gguf) const;
  void EndMtp(size_t first);

  // The reference is valid until the next call.
  PlannedTensor& AddMatrix(Name name, int64_t rows, int64_t cols, Matrix* out);
  // A stack of `slices` matrices.
  PlannedTensor& AddStack(Name name, int64_t slices, int64_t rows, int64_t cols, Matrix* out);
  // A vector that ops read, or one that only the loading looks at.
  PlannedTensor& AddVector(Name name, int64_t size, Vector* out);
  PlannedTensor& AddVector(Name name, int64_t size, std::vector<float>* out);
  // A norm: about 1 in memory.
  PlannedTensor& AddNorm(Name name, int64_t size, ValueForm values, Vector* out);
  // A vector that no file has: CompleteWeights computes it.
  void AddDerived(Vector* out, int layer = -1) { vectors_.push_back({out, layer}); }

  // A tensor that only GGUF files have and may lack; `computed` is what to write there.
  void AddOptional(std::string_view gguf, std::vector<float> computed, std::vector<float>* out);

  const std::vector<PlannedTensor>& tensors() const { return tensors_; }
  // All vectors that ops read: to be uploaded when they are complete.
  struct OpVector {
    Vector* vector = nullptr;
    int layer = -1;
    bool routed = false;
  };
  std::vector<OpVector> vectors() const;
  int64_t element_count() const;

 private:
  std::string hf_prefix_;
  int mtp_layer_ = -1;
  std::string mtp_prefix_;
  std::vector<PlannedTensor> tensors_;
  std::vector<OpVector> vectors_;
};

// What row `row` of a GGUF file is multiplied by.
float GgufFactor(const PlannedTensor& tensor, int64_t row);

// The row of a Hugging Face or GGUF file that row `row` of memory comes from.
int64_t FileRowOfMemoryRow(const HeadRows& rows, bool gguf, int64_t row);
// The row (or column) of a Hugging Face file that row `row` of a GGUF file comes from.
int64_t HfRowOfGgufRow(const HeadRows& rows, int64_t row);

}  // namespace reprise
