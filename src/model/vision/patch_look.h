// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/ops.h"
#include "model/live_state.h"
#include "model/vision/tower.h"

namespace reprise {

// A picture in a tower that is a transformer over all of its patches: what does not differ from one
// tower to another. Every layer has two passes over the patches, as many of them a part as a step
// has rows: the first stores keys and values, the second looks at all of them. One pass before the
// layers makes the stream of the patches, one behind them makes vectors of tokens of it.
//
// Patches come in the order of PlaceOfPatch; parts end between tokens.
class PatchLook : public VisionTower::Look {
 public:
  Result<bool> Advance(const OpContext& context) final;
  double done() const final;
  DeviceBuffer TakeVectors() final { return std::move(vectors_); }

 protected:
  struct Sizes {
    int layers = 0;
    int64_t dim = 0;  // of the stream
    int heads = 0;
    int head_dim = 0;
    int64_t out = 0;  // of a token's vector
    float scale = 0;  // of scores
    // Tables of angles that queries and keys turn with: the axes of each, at the same frequencies.
    std::vector<std::vector<uint8_t>> turns = {};
    ConstFloats frequencies = nullptr;
  };

  // The tower and the pixels outlive this.
  PatchLook(const VisionTower& tower, const Sizes& sizes, const Pixels& pixels);
  Status Allocate(const OpContext& context);

  // Parts of the passes, of patches [begin, end). Embed fills Stream; StoreInputs calls Keep.
  virtual void Embed(const OpContext& context, int64_t begin, int64_t end) = 0;
  virtual void StoreInputs(const OpContext& context, int layer, int64_t begin, int64_t end) = 0;
  virtual void MixPatches(const OpContext& context, int layer, int64_t begin, int64_t end) = 0;
  virtual void Merge(const OpContext& context, int64_t begin, int64_t end) = 0;

  const PatchRules& rules() const { return tower_.card().rules; }
  int columns() const { return columns_; }  // of patches
  int rows() const { return rows_; }
  int64_t width() const { return int64_t{sizes_.heads} * sizes_.head_dim; }
  Rows Stream(int64_t begin, int64_t end) const;
  Rows Vectors(int64_t begin, int64_t end) const;  // of the tokens of these patches
  // The values of patches, in the memory of the device. [end - begin, 3 * frames * patch * patch]
  Rows Patches(const OpContext& context, int64_t begin, int64_t end) const;
  // A row of `cols` values on the host for each patch: write(begin, end, values) for some of them,
  // by several threads.
  template <typename Write>
  Rows FromPatches(const OpContext& context, int64_t begin, int64_t end, int64_t cols,
                   const Write& write) const;
  // Turns heads of patches that begin with `begin` with a table of angles.
  void Turn(const OpContext& context, size_t table, int64_t begin, const Rows& x,
            int64_t offset = 0) const;
  // Keeps q, k and v [end - begin, width] of patches, as they are attended with.
  void Keep(const OpContext& context, int64_t begin, const ConstRows& q, const ConstRows& k,
            const ConstRows& v);
  // What all patches are to those that were kept. [end - begin, width]
  void AttendAll(const OpContext& context, int64_t begin, int64_t end, const Rows& out) const;

  // Means of so many rows that lie behind one another, summed in their order.
  static void MeanOf(const OpContext& context, const ConstRows& x, int64_t rows, const Rows& mean);
  static Rows NewRows(const OpContext& context, int64_t rows, int64_t cols);
  static Rows FromHost(const OpContext& context, const std::vector<float>& values, int64_t rows);

 private:
  static constexpr int64_t kGrain = 16;  // patches that a thread makes values of

  std::vector<RopePlace> Places(int64_t begin, int64_t end) const;
  void MakeAngles(const OpContext& context, int64_t begin, int64_t end);
  // [patches, half] of a table.
  Rows Angles(size_t table, bool sin, int64_t begin, int64_t end) const;
  Rows Queries(int64_t begin, int64_t end) const;
  KvShape Kv() const;
  void RunPart(const OpContext& context, int64_t end);

  const VisionTower& tower_;
  const Sizes sizes_;
  const Pixels& pixels_;
  const int columns_;
  const int rows_;
  const int64_t patches_;
  const int64_t of_token_;  // patches
  int64_t of_part_ = 0;     // patches
  DType kv_ = DType::kF32;
  // Which pass is next, and which patch of it.
  int pass_ = 0;
  int64_t at_ = 0;
  DeviceBuffer stream_;            // [patches, dim]
  DeviceBuffer queries_;           // [patches, width]
  DeviceBuffer angles_;            // of each table cosines, then sines: [patches, half]
  std::optional<LiveState> kept_;  // keys and values of one layer
  DeviceBuffer vectors_;           // [tokens, out]
};

template <typename Write>
Rows PatchLook::FromPatches(const OpContext& context, int64_t begin, int64_t end, int64_t cols,
                            const Write& write) const {
  const Rows out = NewRows(context, end - begin, cols);
  if (context.scratch->refused()) return out;
  const std::unique_ptr<float[]> values(new float[size_t(out.rows * cols)]);
  context.backend->host_threads().ParallelFor(out.rows, kGrain, [&](int64_t from, int64_t to) {
    write(begin + from, begin + to, values.get() + from * cols);
  });
  const std::span<const float> all(values.get(), size_t(out.rows * cols));
  context.backend->memory().UploadArray<float>(out.data, all);
  return out;
}

}  // namespace reprise
