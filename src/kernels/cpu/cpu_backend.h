// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cpu/products/product_order.h"
#include "kernels/cpu/table.h"
#include "tensor/kv_row.h"

namespace reprise::cpu {

// The ops on the threads of this machine: drivers that divide outputs (never reductions) among
// threads and call the leaf kernels of a table.
class CpuBackend final : public Backend {
 public:
  // What is pointed to must outlive it.
  CpuBackend(ThreadPool* pool, const KernelTable* table, DeviceMemory& memory = HostMemory())
      : pool_(pool), table_(table), memory_(&memory) {}
  CpuBackend(std::unique_ptr<ThreadPool> pool, const KernelTable* table,
             DeviceMemory& memory = HostMemory())
      : owned_pool_(std::move(pool)), pool_(owned_pool_.get()), table_(table), memory_(&memory) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view numerics() const override { return "reprise cpu 1"; }
  DeviceMemory& memory() override { return *memory_; }
  StateSizes sizes_max() const override { return sizes_max_; }
  void set_sizes_max(const StateSizes& most) { sizes_max_ = most; }  // for tests: there are none
  ThreadPool& host_threads() override { return *pool_; }
  std::unique_ptr<Backend> WithThreads(int threads) override {
    return std::make_unique<CpuBackend>(std::make_unique<ThreadPool>(threads), table_);
  }

  Result<std::unique_ptr<PackedMatrix>> MakeMatrix(const MatrixShape& shape) override;
  size_t MatrixBytes(const MatrixShape& shape) const override;
  Status PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                    size_t stride) override;

  void Project(ScratchArena& scratch, std::span<const ProjectionGroup> groups) override;
  void ProjectHeads(ScratchArena& scratch, const ConstRows& x, int64_t x_step,
                    std::span<const HeadProjection> projections) override;
  void BeginStep(ScratchArena& scratch, StepLayout* step) override;
  void Embed(const Matrix& table, const StepLayout& step, const Rows& out) override;
  void GatherRows(const ConstRows& x, DevicePtr<const int32_t> index, const Rows& out) override;
  void Fill(float value, const Rows& y) override;
  void FiniteRows(const StepLayout& step, const ConstRows& x, DevicePtr<uint8_t> finite) override;
  void CopyHeads(int heads, int64_t width, const ConstRows& x, int64_t x_step, const Rows& y,
                 int64_t y_step) override;
  void RmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
               const Rows& y) override;
  void AddRmsNorm(const Rows& x, const ConstRows& y, ConstFloats weight, float eps,
                  const Rows& h) override;
  void RmsNormGated(const ConstRows& x, const ConstRows& gate, ConstFloats weight, int groups,
                    float eps, const Rows& y) override;
  void L2Norm(const ConstRows& x, int groups, float eps, float scale, const Rows& y) override;
  void SwiGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) override;
  void SigmoidMul(const ConstRows& gate, const ConstRows& x, const Rows& y) override;
  void Add(const ConstRows& a, const ConstRows& b, const Rows& y) override;
  void MakeRopeTable(const StepLayout& step, ConstFloats inverse_frequencies, float magnitude,
                     const Rows& cos, const Rows& sin) override;
  void Rope(const RopeTable& table, int heads, const Rows& x, int64_t offset) override;
  void StoreKv(const StepLayout& step, const KvPlace& place, const KvShape& shape,
               const ConstRows& k, const ConstRows& v) override;
  void Attend(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
              const KvShape& shape, const AttentionParams& params, const ConstRows& q,
              const Rows& out) override;
  bool projects_part() const override { return true; }
  void ProjectFirst(ScratchArena& scratch, const ConstRows& x, const Matrix& weight,
                    const Rows& out) override;
  void AddLowRank(ScratchArena& scratch, std::span<const LowRankSum> sums) override;
  bool adapts_experts() const override { return true; }
  void AddExpertLowRank(ScratchArena& scratch, const ExpertPlan& plan, const ConstRows& x,
                        ExpertInput input, std::span<const ExpertLowRankSum> sums) override;
  bool holds(DType kv) const override { return IsKvType(kv); }
  bool sees() const override { return true; }
  void GeluErf(const ConstRows& x, const Rows& y) override;
  void Clamp(const ConstRows& x, float least, float most, const Rows& y) override;
  void MakePlacedRopeTable(std::span<const RopePlace> places, std::span<const uint8_t> axes,
                           ConstFloats inverse_frequencies, float magnitude, const Rows& cos,
                           const Rows& sin) override;
  bool keeps() const override { return true; }
  void ScoreKeys(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                 const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                 const ScoredRows& rows) override;
  void KeepRows(const KvPlace& place, const KvShape& shape, const KeptRows& kept) override;
  void ShortConv(const StepLayout& step, size_t state_offset, ConstFloats weight, ConstFloats bias,
                 int reach, bool silu, const ConstRows& x, const Rows& y) override;
  void GatedDeltaGates(const ConstRows& a, const ConstRows& b, ConstFloats exp_a,
                       ConstFloats dt_bias, const Rows& decay, const Rows& beta) override;
  void GatedDelta(const StepLayout& step, size_t state_offset, const GatedDeltaShape& shape,
                  const ConstRows& q, const ConstRows& k, const ConstRows& v,
                  const ConstRows& decay, const ConstRows& beta, const Rows& y) override;

  bool GatedDeltaMix(ScratchArena& scratch, const StepLayout& step, const GatedDeltaLayer& layer,
                     const ConstRows& qkv, const Rows& a, const Rows& b, const ConstRows& z,
                     const Rows& y) override;
  bool StoreHeads(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                  const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                  const ConstRows& v) override;
  bool AttendGated(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                   const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                   const ConstRows& q, const Rows& out) override;

  void Mul(const ConstRows& a, const ConstRows& b, const Rows& y) override;
  void Scale(const ConstRows& x, float factor, const Rows& y) override;
  void Silu(const ConstRows& x, const Rows& y) override;
  void Gelu(const ConstRows& x, const Rows& y) override;
  void GeGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) override;
  void GeGluErf(const ConstRows& gate, const ConstRows& up, const Rows& y) override;
  void ClampedSwiGlu(const ConstRows& gate, const ConstRows& up, float alpha, float limit,
                     const Rows& y) override;
  void ReluSquared(const ConstRows& x, const Rows& y) override;
  void Softcap(const ConstRows& x, float cap, const Rows& y) override;
  void Sigmoid(const ConstRows& x, ConstFloats bias, const Rows& y) override;
  void Softplus(const ConstRows& x, ConstFloats bias, const Rows& y) override;
  void Lerp(const ConstRows& a, const ConstRows& b, const ConstRows& t, const Rows& y) override;
  void LayerNorm(const ConstRows& x, ConstFloats weight, ConstFloats bias, int groups, float eps,
                 const Rows& y) override;
  void GroupRmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                    const Rows& y) override;
  void GateRmsNorm(const ConstRows& x, const ConstRows& gate, ConstFloats weight, int groups,
                   float eps, const Rows& y) override;
  void MatchMagnitude(const ConstRows& x, const ConstRows& like, float least,
                      const Rows& y) override;
  void CutBelow(const ConstRows& x, float factor, const Rows& y) override;
  void ScaleByPosition(const StepLayout& step, ConstFloats factors, int period, const ConstRows& x,
                       const Rows& y) override;
  void MixStreams(const ConstRows& x, const ConstRows& factors, int streams,
                  const Rows& y) override;
  void AddToStreams(const ConstRows& x, const ConstRows& factors, const Rows& y) override;
  void RwkvDecay(const ConstRows& x, ConstFloats bias, const Rows& y) override;
  void RwkvBonus(const ConstRows& r, const ConstRows& k, ConstFloats weight, const ConstRows& v,
                 int heads, const Rows& y) override;

  void RouteExperts(ScratchArena& scratch, const ConstRows& logits, const RoutingParams& params,
                    const Routing& routing) override;
  void PlanExperts(ScratchArena& scratch, const Routing& routing, const ExpertPlan& plan) override;
  void ProjectExperts(ScratchArena& scratch, const ExpertPlan& plan, const ConstRows& x,
                      ExpertInput input, std::span<const ExpertProjection> projections) override;
  void AddExpertBias(const ExpertPlan& plan, ConstFloats bias, const Rows& y) override;
  void CombineExperts(const Routing& routing, const ExpertPlan& plan, const ConstRows& slots,
                      SumStart start, const Rows& y) override;

  void KeyDecayDelta(const StepLayout& step, size_t state_offset, int heads, const ConstRows& q,
                     const ConstRows& k, const ConstRows& v, const ConstRows& decay,
                     const ConstRows& beta, const Rows& y) override;
  void DecayGates(const ConstRows& x, ConstFloats bias, ConstFloats rate,
                  const Rows& decay) override;
  void Ssd(const StepLayout& step, size_t state_offset, const SsdShape& shape, const ConstRows& x,
           const ConstRows& b, const ConstRows& c, const ConstRows& dt, const ConstRows& decay,
           ConstFloats skip, const Rows& y) override;
  void SsdGates(const ConstRows& x, ConstFloats bias, ConstFloats a, float low, float high,
                const Rows& dt, const Rows& decay) override;
  void SelectiveScan(const StepLayout& step, size_t state_offset, ConstFloats a, ConstFloats skip,
                     const ConstRows& x, const ConstRows& dt, const ConstRows& b,
                     const ConstRows& c, const Rows& y) override;
  void Wkv7(const StepLayout& step, size_t state_offset, int heads, const Wkv7Operands& operands,
            const Rows& y) override;
  void TokenShift(const StepLayout& step, size_t state_offset, const ConstRows& x,
                  std::span<const ConstFloats> mix, std::span<const Rows> outs) override;
  void RgLru(const StepLayout& step, size_t state_offset, ConstFloats rate, const ConstRows& x,
             const ConstRows& r, const ConstRows& i, const Rows& y) override;

 private:
  const std::unique_ptr<ThreadPool> owned_pool_;  // or null
  ThreadPool* const pool_;
  const KernelTable* const table_;
  DeviceMemory* const memory_;
  StateSizes sizes_max_;
  ProductOrder order_;
};

}  // namespace reprise::cpu
