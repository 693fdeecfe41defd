// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/status.h"
#include "device/cuda/refusals.h"
#include "device/memory.h"
#include "device/thread_pool.h"
#include "kernels/activation_ops.h"
#include "kernels/choice_ops.h"
#include "kernels/expert_ops.h"
#include "kernels/joint_ops.h"
#include "kernels/keep_ops.h"
#include "kernels/low_rank_ops.h"
#include "kernels/ops.h"
#include "kernels/scan_ops.h"

namespace reprise {

// What a step does besides its layout: whose ops they are, and where the results go.
struct StepProgram {
  const void* model = nullptr;
  Rows logits = {};
  DevicePtr<uint8_t> finite = nullptr;
};

// Sizes of the state of a layer that kernels may have limits for; 0: the layer has no such.
struct StateSizes {
  int64_t head_dim = 0;      // of K/V
  int64_t value_dim = 0;     // of K/V
  int64_t conv_reach = 0;    // ShortConv
  int64_t matrix_keys = 0;   // of scans whose state is a matrix a head
  int64_t channel_keys = 0;  // SelectiveScan

  // OK, or what of it is more than `most` has, as a sentence; a size that is 0 there has no limit.
  Status Within(const StateSizes& most) const;
};

// What computes: a set of ops, the memory that they work in, and the weights as they want them.
// There is one per device; models, layers and families are written once, against the functions of
// ops.h, activation_ops.h, expert_ops.h, low_rank_ops.h, scan_ops.h and keep_ops.h, which check
// shapes and come here.
//
// The bits of every op are specified: those of kernels/cpu by kernels/reference. A backend whose
// bits differ says so in numerics(), which is part of the digest that names a model's state.
//
// A backend may run behind its caller: results are there after memory().Synchronize() or a
// Download. Operands that lie on the host (spans of projections, of steps) are read before an op
// returns.
//
// Thread safety: none; one thread loads, then the engine's thread calls.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;      // for people: "cpu", "cuda:0 NVIDIA H200"
  virtual std::string_view numerics() const = 0;  // changes when bits do
  virtual DeviceMemory& memory() = 0;
  // Threads for what the host does around the ops: reading, packing, digests.
  virtual ThreadPool& host_threads() = 0;
  // The same ops, also on what this has packed, on so many threads: for proofs that results do not
  // depend on them. Null where they play no part.
  virtual std::unique_ptr<Backend> WithThreads(int) { return nullptr; }

  // Room for weights, in one allocation; then every matrix of the stack is packed into it, once,
  // from rows of the type's blocks that lie `stride` bytes apart in the memory of the host.
  virtual Result<std::unique_ptr<PackedMatrix>> MakeMatrix(const MatrixShape& shape) = 0;
  virtual Status PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                            size_t stride) = 0;
  // About what MakeMatrix will take.
  virtual size_t MatrixBytes(const MatrixShape& shape) const {
    return RowBytes(shape.dtype, shape.cols) * size_t(shape.rows) * size_t(shape.count);
  }

  // The ops of a step between BeginStep and its results, which `ops` asks for. A backend may keep
  // what they were and, for a later step of the same program and shape, run that instead of `ops`.
  // `scratch` is where the ops take their memory from.
  virtual void RunStep(ScratchArena&, const StepLayout&, const StepProgram&,
                       const std::function<void()>& ops) {
    ops();
  }

  // What kept the device from doing what was asked of it since this was last asked; ok: nothing.
  // Ops that were asked for behind it were not done either, so results and whatever state they
  // write are none. Asked for before anything of a step is used.
  virtual Status TakeError() { return OkStatus(); }

  // For tests of what becomes of a step when the device fails: memory that is refused (null: there
  // is no way to), and a launch, the n-th from now on, that does not start.
  virtual Refusals* refusals() { return nullptr; }
  virtual void FailLaunch(int64_t /*n*/) {}

  // choice_ops.h. Where the host chooses as well, logits are for it.
  virtual bool chooses() const { return false; }
  virtual Status ChooseTokens(ScratchArena&, const ConstRows&, const ChoiceBatch&,
                              const ChoiceResults&, const std::function<void()>& /*meanwhile*/) {
    CHECK(chooses());
    return OkStatus();
  }

  // Rows of a step beyond which more rows are hardly quicker a row.
  virtual int32_t step_rows() const { return 512; }

  // Whether K/V may be stored as this type.
  virtual bool holds(DType kv) const = 0;
  // The type that weights of `dtype` have in its memory: another, which holds the same values,
  // where it has no products for them.
  virtual DType HeldAs(DType dtype) const { return dtype; }
  // Memory that steps take beside weights and state, at most: activations, and what is kept for the
  // next ones.
  virtual size_t working_bytes() const { return size_t{256} << 20; }
  // The largest state that it has kernels for; asked before a model is loaded.
  virtual StateSizes sizes_max() const { return {}; }

  // keep_ops.h
  virtual bool keeps() const { return false; }
  virtual void ScoreKeys(ScratchArena&, const StepLayout&, const KvPlace&, const KvShape&,
                         const AttentionParams&, const ConstRows& /*q*/, const ScoredRows&) {
    CHECK(keeps());
  }
  virtual void KeepRows(const KvPlace&, const KvShape&, const KeptRows&) { CHECK(keeps()); }

  // Ops that models with pictures need beside the others: GeluErf, Clamp, MakePlacedRopeTable, and
  // attention with AttentionParams::ends.
  virtual bool sees() const { return false; }
  virtual void GeluErf(const ConstRows& /*x*/, const Rows& /*y*/) { CHECK(sees()); }
  virtual void MakePlacedRopeTable(std::span<const RopePlace>, std::span<const uint8_t> /*axes*/,
                                   ConstFloats /*inverse_frequencies*/, float /*magnitude*/,
                                   const Rows& /*cos*/, const Rows& /*sin*/) {
    CHECK(sees());
  }

  // Ops: what the functions of the same name say, their shapes already checked, at least one row.
  // ops.h
  virtual void Project(ScratchArena& scratch, std::span<const ProjectionGroup> groups) = 0;
  virtual void ProjectHeads(ScratchArena& scratch, const ConstRows& x, int64_t x_step,
                            std::span<const HeadProjection> projections) = 0;
  virtual void BeginStep(ScratchArena& scratch, StepLayout* step) = 0;
  virtual void Embed(const Matrix& table, const StepLayout& step, const Rows& out) = 0;
  virtual void GatherRows(const ConstRows& x, DevicePtr<const int32_t> index, const Rows& out) = 0;
  virtual void Fill(float value, const Rows& y) = 0;
  virtual void FiniteRows(const StepLayout& step, const ConstRows& x,
                          DevicePtr<uint8_t> finite) = 0;
  virtual void CopyHeads(int heads, int64_t width, const ConstRows& x, int64_t x_step,
                         const Rows& y, int64_t y_step) = 0;
  virtual void RmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                       const Rows& y) = 0;
  virtual void AddRmsNorm(const Rows& x, const ConstRows& y, ConstFloats weight, float eps,
                          const Rows& h) = 0;
  virtual void RmsNormGated(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                            int groups, float eps, const Rows& y) = 0;
  virtual void L2Norm(const ConstRows& x, int groups, float eps, float scale, const Rows& y) = 0;
  virtual void SwiGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) = 0;
  virtual void SigmoidMul(const ConstRows& gate, const ConstRows& x, const Rows& y) = 0;
  virtual void Add(const ConstRows& a, const ConstRows& b, const Rows& y) = 0;
  virtual void MakeRopeTable(const StepLayout& step, ConstFloats inverse_frequencies,
                             float magnitude, const Rows& cos, const Rows& sin) = 0;
  virtual void Rope(const RopeTable& table, int heads, const Rows& x, int64_t offset) = 0;
  virtual void StoreKv(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                       const ConstRows& k, const ConstRows& v) = 0;
  virtual void Attend(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                      const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                      const Rows& out) = 0;
  virtual void ShortConv(const StepLayout& step, size_t state_offset, ConstFloats weight,
                         ConstFloats bias, int reach, bool silu, const ConstRows& x,
                         const Rows& y) = 0;
  virtual void GatedDeltaGates(const ConstRows& a, const ConstRows& b, ConstFloats exp_a,
                               ConstFloats dt_bias, const Rows& decay, const Rows& beta) = 0;
  virtual void GatedDelta(const StepLayout& step, size_t state_offset, const GatedDeltaShape& shape,
                          const ConstRows& q, const ConstRows& k, const ConstRows& v,
                          const ConstRows& decay, const ConstRows& beta, const Rows& y) = 0;

  // activation_ops.h
  virtual void Mul(const ConstRows& a, const ConstRows& b, const Rows& y) = 0;
  virtual void Scale(const ConstRows& x, float factor, const Rows& y) = 0;
  virtual void Silu(const ConstRows& x, const Rows& y) = 0;
  virtual void Gelu(const ConstRows& x, const Rows& y) = 0;
  virtual void GeGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) = 0;
  virtual void GeGluErf(const ConstRows& gate, const ConstRows& up, const Rows& y) = 0;
  virtual void ClampedSwiGlu(const ConstRows& gate, const ConstRows& up, float alpha, float limit,
                             const Rows& y) = 0;
  virtual void ReluSquared(const ConstRows& x, const Rows& y) = 0;
  virtual void Softcap(const ConstRows& x, float cap, const Rows& y) = 0;
  virtual void Sigmoid(const ConstRows& x, ConstFloats bias, const Rows& y) = 0;
  virtual void Softplus(const ConstRows& x, ConstFloats bias, const Rows& y) = 0;
  virtual void Lerp(const ConstRows& a, const ConstRows& b, const ConstRows& t, const Rows& y) = 0;
  virtual void LayerNorm(const ConstRows& x, ConstFloats weight, ConstFloats bias, int groups,
                         float eps, const Rows& y) = 0;
  virtual void GroupRmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                            const Rows& y) = 0;
  virtual void GateRmsNorm(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                           int groups, float eps, const Rows& y) = 0;
  virtual void MatchMagnitude(const ConstRows& x, const ConstRows& like, float least,
                              const Rows& y) = 0;
  virtual void CutBelow(const ConstRows& x, float factor, const Rows& y) = 0;
  virtual void ScaleByPosition(const StepLayout& step, ConstFloats factors, int period,
                               const ConstRows& x, const Rows& y) = 0;
  virtual void MixStreams(const ConstRows& x, const ConstRows& factors, int streams,
                          const Rows& y) = 0;
  virtual void AddToStreams(const ConstRows& x, const ConstRows& factors, const Rows& y) = 0;
  virtual void RwkvDecay(const ConstRows& x, ConstFloats bias, const Rows& y) = 0;
  virtual void RwkvBonus(const ConstRows& r, const ConstRows& k, ConstFloats weight,
                         const ConstRows& v, int heads, const Rows& y) = 0;

  // expert_ops.h; results go to places that the caller has made.
  virtual void RouteExperts(ScratchArena& scratch, const ConstRows& logits,
                            const RoutingParams& params, const Routing& routing) = 0;
  virtual void PlanExperts(ScratchArena& scratch, const Routing& routing,
                           const ExpertPlan& plan) = 0;
  virtual void ProjectExperts(ScratchArena& scratch, const ExpertPlan& plan, const ConstRows& x,
                              ExpertInput input, std::span<const ExpertProjection> projections) = 0;
  virtual void AddExpertBias(const ExpertPlan& plan, ConstFloats bias, const Rows& y) = 0;
  virtual void CombineExperts(const Routing& routing, const ExpertPlan& plan,
                              const ConstRows& slots, SumStart start, const Rows& y) = 0;

  // low_rank_ops.h: Project, and what the adapters of the step add to it.
  virtual void ProjectAdapted(ScratchArena& scratch, std::span<const ProjectionGroup> groups,
                              const StepAdapters& adapters);
  // Every out += up (scale * (down x)).
  virtual void AddLowRank(ScratchArena& scratch, std::span<const LowRankSum> sums);
  // What ops of the device read of an adapter's products, which it does not outlive; empty: they
  // are given the products alone.
  virtual Result<DeviceBuffer> LowRankTable(std::span<const LowRank> /*products*/) {
    return DeviceBuffer();
  }

  // scan_ops.h
  virtual void KeyDecayDelta(const StepLayout& step, size_t state_offset, int heads,
                             const ConstRows& q, const ConstRows& k, const ConstRows& v,
                             const ConstRows& decay, const ConstRows& beta, const Rows& y) = 0;
  virtual void DecayGates(const ConstRows& x, ConstFloats bias, ConstFloats rate,
                          const Rows& decay) = 0;
  virtual void Ssd(const StepLayout& step, size_t state_offset, const SsdShape& shape,
                   const ConstRows& x, const ConstRows& b, const ConstRows& c, const ConstRows& dt,
                   const ConstRows& decay, ConstFloats skip, const Rows& y) = 0;
  virtual void SsdGates(const ConstRows& x, ConstFloats bias, ConstFloats a, float low, float high,
                        const Rows& dt, const Rows& decay) = 0;
  virtual void SelectiveScan(const StepLayout& step, size_t state_offset, ConstFloats a,
                             ConstFloats skip, const ConstRows& x, const ConstRows& dt,
                             const ConstRows& b, const ConstRows& c, const Rows& y) = 0;
  virtual void Wkv7(const StepLayout& step, size_t state_offset, int heads,
                    const Wkv7Operands& operands, const Rows& y) = 0;
  virtual void TokenShift(const StepLayout& step, size_t state_offset, const ConstRows& x,
                          std::span<const ConstFloats> mix, std::span<const Rows> outs) = 0;
  virtual void RgLru(const StepLayout& step, size_t state_offset, ConstFloats rate,
                     const ConstRows& x, const ConstRows& r, const ConstRows& i, const Rows& y) = 0;

  // joint_ops.h; false: there is no kernel for it, and the ops that it consists of are run.
  virtual bool GatedDeltaMix(ScratchArena&, const StepLayout&, const GatedDeltaLayer&,
                             const ConstRows& /*qkv*/, const Rows& /*a*/, const Rows& /*b*/,
                             const ConstRows& /*z*/, const Rows& /*y*/) {
    return false;
  }
  virtual bool StoreHeads(const StepLayout&, const KvPlace&, const KvShape&, const HeadInputs&,
                          const Rows& /*q*/, const ConstRows& /*k*/, const ConstRows& /*v*/) {
    return false;
  }
  virtual bool AttendGated(ScratchArena&, const StepLayout&, const KvPlace&, const KvShape&,
                           const AttentionParams&, const ConstRows& /*gate*/,
                           const ConstRows& /*q*/, const Rows& /*out*/) {
    return false;
  }

  // activation_ops.h, of backends that see.
  virtual void Clamp(const ConstRows& /*x*/, float /*least*/, float /*most*/, const Rows& /*y*/) {
    CHECK(sees());
  }

  // ops.h
  virtual bool projects_part() const { return false; }
  virtual void ProjectFirst(ScratchArena&, const ConstRows& /*x*/, const Matrix& /*weight*/,
                            const Rows& /*out*/) {
    CHECK(projects_part());
  }

  // expert_ops.h; whether adapters may change experts and embeddings.
  virtual bool adapts_experts() const { return false; }
  virtual void AddExpertLowRank(ScratchArena&, const ExpertPlan&, const ConstRows& /*x*/,
                                ExpertInput, std::span<const ExpertLowRankSum>) {
    CHECK(adapts_experts());
  }

  // Before BeginStep: the adapters of the step's rows, until its end; null: they have none.
  virtual void TakeAdapters(const StepAdapters*) {}
};

}  // namespace reprise
