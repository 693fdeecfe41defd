// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/cuda/cuda_memory.h"
#include "kernels/backend.h"
#include "kernels/cuda/choice/choices.h"
#include "kernels/cuda/graphs/step_graphs.h"
#include "kernels/cuda/joined/joined_ops.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/tensor/attention/attention.h"
#include "kernels/cuda/tensor/low_rank.h"
#include "kernels/cuda/view.h"
#include "kernels/devices/step_keeper.h"
#include "kernels/reference/gpu/tensor_core.h"

namespace reprise::cuda {

// The ops on an NVIDIA GPU: launches on the stream of its memory, one after another. Nothing waits
// but downloads. A launch that does not start, or memory that is not to be had, fails the stream
// (kernel.h): nothing starts behind it, and TakeError says what it was. A kernel that goes wrong
// while it runs ends the process (device/cuda/must.h).
//
// Bits: products with F32 weights and with quantised ones in planes, and everything that works row
// by row, equal the CPU's; products with 16-bit weights and with quantised ones that are packed
// (cuda_matrix.h), attention over 16-bit K/V and scans with a matrix state are those of
// kernels/reference/gpu/. Hence numerics().
class CudaBackend final : public Backend, public StepKeeper {
 public:
  // `threads`: of the host, 0: one per CPU. `memory_max`: bytes of the GPU's memory, 0: what is
  // free. Fails with one sentence where there is no GPU that the kernels were compiled for.
  static Result<std::unique_ptr<Backend>> Make(int ordinal, int threads, size_t memory_max = 0);
  ~CudaBackend() override;

  std::string_view name() const override { return name_; }
  std::string_view numerics() const override { return numerics_; }
  DeviceMemory& memory() override { return *memory_; }
  ThreadPool& host_threads() override { return *threads_; }

  Result<std::unique_ptr<PackedMatrix>> MakeMatrix(const MatrixShape& shape) override;
  Status PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                    size_t stride) override;
  size_t MatrixBytes(const MatrixShape& shape) const override;
  void RunStep(ScratchArena& scratch, const StepLayout& step, const StepProgram& program,
               const std::function<void()>& ops) override;
  void ForgetSteps() override { graphs_.Clear(); }
  Status TakeError() override;
  Refusals* refusals() override { return &memory_->refusals(); }
  void FailLaunch(int64_t n) override;
  bool holds(DType kv) const override;
  DType HeldAs(DType dtype) const override;
  size_t working_bytes() const override;
  StateSizes sizes_max() const override;
  int32_t step_rows() const override { return 4096; }
  bool chooses() const override { return true; }
  Status ChooseTokens(ScratchArena& scratch, const ConstRows& logits, const ChoiceBatch& batch,
                      const ChoiceResults& results,
                      const std::function<void()>& meanwhile) override;

  void Project(ScratchArena& scratch, std::span<const ProjectionGroup> groups) override;
  void ProjectAdapted(ScratchArena& scratch, std::span<const ProjectionGroup> groups,
                      const StepAdapters& adapters) override;
  Result<DeviceBuffer> LowRankTable(std::span<const LowRank> products) override;
  void TakeAdapters(const StepAdapters* adapters) override { adapters_ = adapters; }
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
  bool keeps() const override { return true; }
  bool sees() const override { return true; }
  void GeluErf(const ConstRows& x, const Rows& y) override;
  void Clamp(const ConstRows& x, float least, float most, const Rows& y) override;
  void MakePlacedRopeTable(std::span<const RopePlace> places, std::span<const uint8_t> axes,
                           ConstFloats inverse_frequencies, float magnitude, const Rows& cos,
                           const Rows& sin) override;
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

  bool GatedDeltaMix(ScratchArena& scratch, const StepLayout& step, const GatedDeltaLayer& layer,
                     const ConstRows& qkv, const Rows& a, const Rows& b, const ConstRows& z,
                     const Rows& y) override;
  bool AttendGated(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                   const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                   const ConstRows& q, const Rows& out) override;
  bool StoreHeads(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                  const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                  const ConstRows& v) override;

 private:
  CudaBackend(std::unique_ptr<CudaMemory> memory, std::unique_ptr<ThreadPool> threads,
              reference::TensorCore core);
  void RunAttend(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                 const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                 const ConstRows& q, const Rows& out);
  // narrow: what is added to the outputs, all but its x and its sums.
  void ProjectGroup(ScratchArena& scratch, const ProjectionGroup& group,
                    std::span<LowRankCall> narrow);
  // Products that may be one kernel with the ops around them; false: they cannot.
  bool JoinProducts(const ProjectionGroup& group);
  bool JoinExperts(const PlanView& plan, const View& x, ExpertInput input,
                   std::span<const ExpertProjection> projections);
  // The stream starts nothing more (kernel.h).
  bool failed() const;
  void Fail(const Status& error);
  // Memory of the arena; where that has none, the stream has failed.
  DevicePtr<std::byte> Room(ScratchArena& scratch, size_t bytes);
  // The arrays of a step go to the device, outside of graphs.
  void SendArrays();
  // For a launch: what waits comes before it.
  Stream stream() {
    memory_->Use();
    if (upload_to_ != nullptr) SendArrays();
    joined_.Run();
    return memory_->stream();
  }

  const std::unique_ptr<CudaMemory> memory_;
  const std::unique_ptr<ThreadPool> threads_;
  std::string name_;
  std::string numerics_;
  Pinned upload_;  // the arrays of a step, as one piece
  size_t upload_bytes_ = 0;
  std::byte* upload_to_ = nullptr;  // where the step's first launch brings them; null: it did
  ChoiceView step_operands_;  // of the choices that the step was told of, as it will have them
  Pinned choices_sent_;       // operands of others
  Choices choices_;
  bool chosen_with_step_ = false;           // the latest step asked for them
  const StepAdapters* adapters_ = nullptr;  // of the step
  // Of its rows, on the device; null: there are none, or not of all.
  const LowRankView* const* row_tables_ = nullptr;
  DepthView depth_;  // of the step
  StepGraphs graphs_;
  JoinedOps joined_;
  DeviceBuffer handed_memory_;
  HandedSums handed_;  // in it, if there was room
};

}  // namespace reprise::cuda
