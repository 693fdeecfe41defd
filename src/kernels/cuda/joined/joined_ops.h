// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/choice/choose.h"
#include "kernels/cuda/quantised/chosen/chosen.h"
#include "kernels/cuda/quantised/forms/one.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/start/embed.h"
#include "kernels/cuda/tensor/attention/one.h"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/view.h"

namespace reprise::cuda {

// Rows as the ops make them, by themselves.
void MakeRows(Stream stream, const MadeRows& rows);

// Ops of a step that wait for the next one, to be one kernel with it: its arrays for the embedding
// and the angles of its rows, and those for products that start beside them; a norm for the
// products that read it, products for what is done with their outputs, heads for attention, the
// route of rows to experts for its plan, products with experts for their gates and for the sum of
// what they make, flags of sequences for the choice. A decoded token is bound by the number of
// kernels, so rows must be few. Of more rows norms and gates wait for products that round what they
// read. Everything else runs at once. The bits are those of the ops one after another, and every
// row that they would have written is written, but for q behind StoreHeads.
class JoinedOps {
 public:
  explicit JoinedOps(Stream stream) : stream_(stream) {}

  // Between these ops may wait. arrays: of the step, if they are still to be brought.
  void Begin(const HostArrays& arrays);
  void End() {
    Run();
    open_ = false;
  }
  // What waits is never run.
  void Drop();
  // Runs what waits. Comes before every other launch.
  void Run();

  // Each is done or waits, in this order behind the others; or, false, is left to the caller.
  bool Embed(const EmbeddedRows& rows);
  bool Angles(const AngledRows& rows);
  bool Norm(const View& x, const float* weight, float eps, const View& h);
  // floats: of the same rows.
  bool Products(const View& x, std::span<const HalfProduct> products,
                std::span<const FloatProduct> floats);
  bool Products(const View& x, std::span<const QuantisedProduct> products);
  // These never wait: a norm does for them.
  bool Products(const View& x, std::span<const FloatProduct> products);
  bool Add(const View& sum, const View& y);  // sum += y
  bool Gate(const GatedRows& rows);
  bool Make(const MadeRows& rows);
  bool Heads(const StepView& step, const KvView& kv, const HeadRowsView& heads);
  bool Route(const View& logits, const RoutingParams& params, const RoutingView& routing);
  bool Plan(const RoutingView& routing, const PlanView& plan);
  bool Experts(const ChosenGates& gates);
  // Only where those that make its rows are what ran last.
  bool Experts(const ChosenSum& products);
  bool Combine(const RoutingView& routing, const PlanView& plan, const View& slots, SumStart start,
               const View& y);

  bool Flag(const StepView& step, const View& x, uint8_t* finite);

  // What waits and makes x, which is the caller's to do then.
  std::optional<MadeRows> Take(const View& x);
  // Heads that wait for attention with these queries; likewise.
  std::optional<HeadRowsView> TakeHeads(const View& q);
  // Flags that wait, or none; likewise.
  FlaggedRows TakeFlagged();

 private:
  // The angles, and a norm of the rows with or without products, may wait behind the rows.
  struct WaitingStart {
    HostArrays arrays;
    std::optional<EmbeddedRows> rows;
    AngledRows angles;
  };
  struct WaitingNorm {
    View x;
    InputNorm norm;
  };
  // With weights of one kind: the other list is empty. Nothing rides along with those of F32.
  struct WaitingProducts {
    View x;
    std::vector<HalfProduct> halves;
    std::vector<QuantisedProduct> quantised;
    std::vector<FloatProduct> floats;  // beside halves

    std::vector<View> Outputs() const;
  };

  struct WaitingHeads {
    StepView step;
    KvView kv;
    HeadRowsView rows;
  };

  struct WaitingRoute {
    View logits;
    RoutingParams params;
    RoutingView routing;
  };

  struct WaitingFlags {
    StepView step;
    View x;
    uint8_t* finite;
  };

  void RunStart();
  bool StartsWith(const View& x) const;
  bool NormRides(const View& x, bool fits) const;
  bool GateRides(const GatedRows& rows) const;
  bool ExpertsGate(const GatedRows& rows);
  bool ExpertsAdd(const View& sum, const View& y);
  void RunProducts(OutputOp op, const View& sum);
  void RunQuantised(const WaitingProducts& waiting, OutputOp op, const View& sum, bool hold_next);

  const Stream stream_;
  bool open_ = false;
  std::optional<WaitingStart> start_;
  std::optional<WaitingNorm> norm_;  // where products wait, too: theirs
  std::optional<WaitingProducts> products_;
  std::optional<MadeRows> made_;       // alone
  std::optional<WaitingHeads> heads_;  // alone
  std::optional<WaitingRoute> route_;  // alone
  std::optional<ChosenGates> gates_;   // alone
  std::optional<ChosenSum> experts_;   // alone
  std::optional<WaitingFlags> flags_;  // alone
  std::optional<ChosenGates> gated_;   // do not wait: they ran, and nothing has come since
};

}  // namespace reprise::cuda
