// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/split/divided.h"
#include "kernels/split/split_machine.h"

namespace reprise {

// Several devices that compute every layer together, as one backend: tensor parallel without a sum
// that crosses a link (docs/devices.md).
//
//   matrices     divided by rows of output: each device makes its columns of the result
//   heads        K/V and recurrent state lie with their heads, and ops with state run where it is
//   column ops   run where the columns of their inputs are
//   row ops      (norms, routers, inputs of products) run on every device, behind a Gather
//
// So each value is computed by one device as one device alone would, in the same order: the bits
// are those of one, for any number of them. Where operands do not lie as an op wants them they are
// gathered: how weights and state are divided decides what that costs, never what comes out.
//
// Nothing is known of a family here: layers ask for ops, as on one device.
//
// Thread safety: as Backend.
class SplitBackend final : public Backend, public DividesMatrices {
 public:
  using Device = SplitMachine::Device;
  explicit SplitBackend(std::vector<Device> devices);

  int count() const { return machine_.count(); }
  Backend& part(int device) const { return machine_.backend(device); }
  SplitMemory& split_memory() { return machine_.memory(); }
  // Where state lies: its memories are those of the devices, in order. Until then, and for state
  // that is not there, all of it is on each device.
  void SetState(const UnitMemory* state) { machine_.SetState(state); }

  // Gives back what steps took, beside the scratch of their context.
  void DropScratch() { machine_.DropScratch(); }

  // The op of it: x is on these devices from now on. Nothing is computed.
  void Gather(const ConstRows& x, DeviceSet where) { machine_.memory().Gather(x, where); }
  void Gather(const ConstRows& x) { Gather(x, machine_.everywhere()); }

  std::string_view name() const override { return name_; }
  std::string_view numerics() const override { return part(0).numerics(); }
  DeviceMemory& memory() override { return machine_.memory(); }
  ThreadPool& host_threads() override { return part(0).host_threads(); }
  Result<std::unique_ptr<PackedMatrix>> MakeMatrix(const MatrixShape& shape) override;
  Result<std::unique_ptr<PackedMatrix>> MakeDivided(const MatrixShape& shape,
                                                    const MatrixDivision& division) override;
  Status PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                    size_t stride) override;
  size_t MatrixBytes(const MatrixShape& shape) const override;
  Status TakeError() override;
  bool chooses() const override { return part(0).chooses(); }
  Status ChooseTokens(ScratchArena& scratch, const ConstRows& logits, const ChoiceBatch& batch,
                      const ChoiceResults& results,
                      const std::function<void()>& meanwhile) override;
  int32_t step_rows() const override { return part(0).step_rows(); }
  bool holds(DType kv) const override { return part(0).holds(kv); }
  DType HeldAs(DType dtype) const override { return part(0).HeldAs(dtype); }
  size_t working_bytes() const override;
  StateSizes sizes_max() const override { return part(0).sizes_max(); }
  bool keeps() const override { return part(0).keeps(); }
  bool sees() const override { return part(0).sees(); }

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
  bool StoreHeads(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                  const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                  const ConstRows& v) override;
  bool AttendGated(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                   const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                   const ConstRows& q, const Rows& out) override;

 private:
  using Here = SplitMachine::Here;
  using Operands = SplitMachine::Operands;
  using Work = SplitMachine::Work;

  // Column by column, where the inputs are.
  void ByColumns(std::string_view op, Operands inputs, Operands outputs, const Work& compute);
  // The same head by head, or group by group.
  void ByHeads(std::string_view op, int64_t heads, Operands inputs, Operands outputs,
               const Work& compute);
  // What needs whole rows, on every device.
  void ByRows(std::string_view op, Operands inputs, Operands outputs, const Work& compute);

  SplitMachine machine_;
  std::string name_;
};

}  // namespace reprise
