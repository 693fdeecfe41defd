// SPDX-License-Identifier: Apache-2.0
// Ops of rows: by columns, by heads or groups where their inputs are, or whole on every device.
#include "kernels/split/split_backend.h"

namespace reprise {
namespace {

using Machine = SplitMachine;

Machine::Operand Columns(const ConstRows& x) { return Machine::Columns(x); }
Machine::Operand Heads(const ConstRows& x, int64_t heads) { return Machine::Heads(x, heads); }
Machine::Operand Whole(const ConstRows& x) { return Machine::Whole(x); }

}  // namespace

void SplitBackend::ByColumns(std::string_view op, Operands inputs, Operands outputs,
                             const Work& compute) {
  const int64_t columns = outputs.begin()->rows.cols;
  machine_.Compute(op, machine_.WhereInputsAre(inputs, columns), inputs, outputs, compute);
}

void SplitBackend::ByHeads(std::string_view op, int64_t heads, Operands inputs, Operands outputs,
                           const Work& compute) {
  machine_.Compute(op, machine_.WhereInputsAre(inputs, heads), inputs, outputs, compute);
}

void SplitBackend::ByRows(std::string_view op, Operands inputs, Operands outputs,
                          const Work& compute) {
  machine_.Compute(op, machine_.Everywhere(1), inputs, outputs, compute);
}

void SplitBackend::GatherRows(const ConstRows& x, DevicePtr<const int32_t> index,
                              const Rows& out) {
  ByColumns("gather rows", {Columns(x)}, {Columns(out)}, [&](const Here& here) {
    here.backend().GatherRows(here.Of(x), here.At(index), here.Of(out));
  });
}

void SplitBackend::Fill(float value, const Rows& y) {
  ByRows("fill", {}, {Whole(y)},
         [&](const Here& here) { here.backend().Fill(value, here.All(y)); });
}

void SplitBackend::CopyHeads(int heads, int64_t width, const ConstRows& x, int64_t x_step,
                             const Rows& y, int64_t y_step) {
  ByHeads("copy heads", heads, {{x, x_step, width}}, {{y, y_step, width}}, [&](const Here& here) {
    const auto from = [&](auto rows, int64_t step) {
      return reprise::Columns(here.All(rows), here.run.begin * step,
                              (here.count() - 1) * step + width);
    };
    here.backend().CopyHeads(here.count(), width, from(x, x_step), x_step, from(y, y_step), y_step);
  });
}

void SplitBackend::RmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                           const Rows& y) {
  const int64_t size = x.cols / groups;
  ByHeads("rms norm", groups, {Heads(x, groups)}, {Heads(y, groups)}, [&](const Here& here) {
    here.backend().RmsNorm(here.Of(x, size), here.At(weight), here.count(), eps, here.Of(y, size));
  });
}

void SplitBackend::AddRmsNorm(const Rows& x, const ConstRows& y, ConstFloats weight, float eps,
                              const Rows& h) {
  ByRows("add, rms norm", {Whole(x), Whole(y)}, {Whole(x), Whole(h)}, [&](const Here& here) {
    here.backend().AddRmsNorm(here.All(x), here.All(y), here.At(weight), eps, here.All(h));
  });
}

void SplitBackend::RmsNormGated(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                                int groups, float eps, const Rows& y) {
  const int64_t size = x.cols / groups;
  ByHeads("rms norm gated", groups, {Heads(x, groups), Heads(gate, groups)}, {Heads(y, groups)},
          [&](const Here& here) {
            here.backend().RmsNormGated(here.Of(x, size), here.Of(gate, size), here.At(weight),
                                        here.count(), eps, here.Of(y, size));
          });
}

void SplitBackend::L2Norm(const ConstRows& x, int groups, float eps, float scale, const Rows& y) {
  const int64_t size = x.cols / groups;
  ByHeads("l2 norm", groups, {Heads(x, groups)}, {Heads(y, groups)}, [&](const Here& here) {
    here.backend().L2Norm(here.Of(x, size), here.count(), eps, scale, here.Of(y, size));
  });
}

void SplitBackend::LayerNorm(const ConstRows& x, ConstFloats weight, ConstFloats bias, int groups,
                             float eps, const Rows& y) {
  const int64_t size = x.cols / groups;
  ByHeads("layer norm", groups, {Heads(x, groups)}, {Heads(y, groups)}, [&](const Here& here) {
    const int64_t first = here.run.begin * size;
    here.backend().LayerNorm(here.Of(x, size), here.At(weight, first), here.At(bias, first),
                             here.count(), eps, here.Of(y, size));
  });
}

void SplitBackend::GroupRmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                                const Rows& y) {
  const int64_t size = x.cols / groups;
  ByHeads("group rms norm", groups, {Heads(x, groups)}, {Heads(y, groups)}, [&](const Here& here) {
    here.backend().GroupRmsNorm(here.Of(x, size), here.At(weight, here.run.begin * size),
                                here.count(), eps, here.Of(y, size));
  });
}

void SplitBackend::GateRmsNorm(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                               int groups, float eps, const Rows& y) {
  const int64_t size = x.cols / groups;
  ByHeads("gate, rms norm", groups, {Heads(x, groups), Heads(gate, groups)}, {Heads(y, groups)},
          [&](const Here& here) {
            here.backend().GateRmsNorm(here.Of(x, size), here.Of(gate, size),
                                       here.At(weight, here.run.begin * size), here.count(), eps,
                                       here.Of(y, size));
          });
}

void SplitBackend::RwkvBonus(const ConstRows& r, const ConstRows& k, ConstFloats weight,
                             const ConstRows& v, int heads, const Rows& y) {
  const int64_t size = y.cols / heads;
  ByHeads("rwkv bonus", heads, {Heads(y, heads), Heads(r, heads), Heads(k, heads), Heads(v, heads)},
          {Heads(y, heads)}, [&](const Here& here) {
            here.backend().RwkvBonus(here.Of(r, size), here.Of(k, size),
                                     here.At(weight, here.run.begin * size), here.Of(v, size),
                                     here.count(), here.Of(y, size));
          });
}

void SplitBackend::Rope(const RopeTable& table, int heads, const Rows& x, int64_t offset) {
  const int64_t size = x.cols / heads;
  ByHeads("rope", heads, {Heads(x, heads)}, {Heads(x, heads)}, [&](const Here& here) {
    const RopeTable angles = {here.At(table.cos), here.At(table.sin), table.half};
    here.backend().Rope(angles, here.count(), here.Of(x, size), offset);
  });
}

void SplitBackend::MakeRopeTable(const StepLayout&, ConstFloats inverse_frequencies,
                                 float magnitude, const Rows& cos, const Rows& sin) {
  ByRows("rope table", {}, {Whole(cos), Whole(sin)}, [&](const Here& here) {
    here.backend().MakeRopeTable(here.step(), here.At(inverse_frequencies), magnitude,
                                 here.All(cos), here.All(sin));
  });
}

void SplitBackend::MakePlacedRopeTable(std::span<const RopePlace> places,
                                       std::span<const uint8_t> axes,
                                       ConstFloats inverse_frequencies, float magnitude,
                                       const Rows& cos, const Rows& sin) {
  ByRows("rope table", {}, {Whole(cos), Whole(sin)}, [&](const Here& here) {
    here.backend().MakePlacedRopeTable(places, axes, here.At(inverse_frequencies), magnitude,
                                       here.All(cos), here.All(sin));
  });
}

void SplitBackend::MatchMagnitude(const ConstRows& x, const ConstRows& like, float least,
                                  const Rows& y) {
  ByRows("match magnitude", {Whole(x), Whole(like)}, {Whole(y)}, [&](const Here& here) {
    here.backend().MatchMagnitude(here.All(x), here.All(like), least, here.All(y));
  });
}

void SplitBackend::CutBelow(const ConstRows& x, float factor, const Rows& y) {
  ByRows("cut below", {Whole(x)}, {Whole(y)}, [&](const Here& here) {
    here.backend().CutBelow(here.All(x), factor, here.All(y));
  });
}

void SplitBackend::ScaleByPosition(const StepLayout&, ConstFloats factors, int period,
                                   const ConstRows& x, const Rows& y) {
  ByColumns("scale by position", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().ScaleByPosition(here.step(), here.At(factors), period, here.Of(x), here.Of(y));
  });
}

void SplitBackend::MixStreams(const ConstRows& x, const ConstRows& factors, int streams,
                              const Rows& y) {
  ByRows("mix streams", {Whole(x), Whole(factors)}, {Whole(y)}, [&](const Here& here) {
    here.backend().MixStreams(here.All(x), here.All(factors), streams, here.All(y));
  });
}

void SplitBackend::AddToStreams(const ConstRows& x, const ConstRows& factors, const Rows& y) {
  ByRows("add to streams", {Whole(x), Whole(factors), Whole(y)}, {Whole(y)},
         [&](const Here& here) {
           here.backend().AddToStreams(here.All(x), here.All(factors), here.All(y));
         });
}

// Of one, two and three inputs.
#define REPRISE_SPLIT_1(Op)                                                         \
  void SplitBackend::Op(const ConstRows& x, const Rows& y) {                        \
    ByColumns(#Op, {Columns(x)}, {Columns(y)},                                      \
              [&](const Here& here) { here.backend().Op(here.Of(x), here.Of(y)); }); \
  }
#define REPRISE_SPLIT_2(Op)                                                                    \
  void SplitBackend::Op(const ConstRows& a, const ConstRows& b, const Rows& y) {               \
    ByColumns(#Op, {Columns(a), Columns(b)}, {Columns(y)}, [&](const Here& here) {             \
      here.backend().Op(here.Of(a), here.Of(b), here.Of(y));                                   \
    });                                                                                        \
  }
REPRISE_SPLIT_1(Silu)
REPRISE_SPLIT_1(Gelu)
REPRISE_SPLIT_1(GeluErf)
REPRISE_SPLIT_1(ReluSquared)
REPRISE_SPLIT_2(SwiGlu)
REPRISE_SPLIT_2(SigmoidMul)
REPRISE_SPLIT_2(Add)
REPRISE_SPLIT_2(Mul)
REPRISE_SPLIT_2(GeGlu)
REPRISE_SPLIT_2(GeGluErf)
#undef REPRISE_SPLIT_1
#undef REPRISE_SPLIT_2

void SplitBackend::ClampedSwiGlu(const ConstRows& gate, const ConstRows& up, float alpha,
                                 float limit, const Rows& y) {
  ByColumns("clamped swiglu", {Columns(gate), Columns(up)}, {Columns(y)}, [&](const Here& here) {
    here.backend().ClampedSwiGlu(here.Of(gate), here.Of(up), alpha, limit, here.Of(y));
  });
}

void SplitBackend::Clamp(const ConstRows& x, float least, float most, const Rows& y) {
  ByColumns("clamp", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().Clamp(here.Of(x), least, most, here.Of(y));
  });
}

void SplitBackend::Scale(const ConstRows& x, float factor, const Rows& y) {
  ByColumns("scale", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().Scale(here.Of(x), factor, here.Of(y));
  });
}

void SplitBackend::Softcap(const ConstRows& x, float cap, const Rows& y) {
  ByColumns("softcap", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().Softcap(here.Of(x), cap, here.Of(y));
  });
}

void SplitBackend::Sigmoid(const ConstRows& x, ConstFloats bias, const Rows& y) {
  ByColumns("sigmoid", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().Sigmoid(here.Of(x), here.At(bias, here.run.begin), here.Of(y));
  });
}

void SplitBackend::Softplus(const ConstRows& x, ConstFloats bias, const Rows& y) {
  ByColumns("softplus", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().Softplus(here.Of(x), here.At(bias, here.run.begin), here.Of(y));
  });
}

void SplitBackend::Lerp(const ConstRows& a, const ConstRows& b, const ConstRows& t,
                        const Rows& y) {
  ByColumns("lerp", {Columns(a), Columns(b), Columns(t)}, {Columns(y)}, [&](const Here& here) {
    here.backend().Lerp(here.Of(a), here.Of(b), here.Of(t), here.Of(y));
  });
}

void SplitBackend::RwkvDecay(const ConstRows& x, ConstFloats bias, const Rows& y) {
  ByColumns("rwkv decay", {Columns(x)}, {Columns(y)}, [&](const Here& here) {
    here.backend().RwkvDecay(here.Of(x), here.At(bias, here.run.begin), here.Of(y));
  });
}

void SplitBackend::DecayGates(const ConstRows& x, ConstFloats bias, ConstFloats rate,
                              const Rows& decay) {
  ByColumns("decay gates", {Columns(x)}, {Columns(decay)}, [&](const Here& here) {
    const int64_t first = here.run.begin;
    here.backend().DecayGates(here.Of(x), here.At(bias, first), here.At(rate, first),
                              here.Of(decay));
  });
}

void SplitBackend::GatedDeltaGates(const ConstRows& a, const ConstRows& b, ConstFloats exp_a,
                                   ConstFloats dt_bias, const Rows& decay, const Rows& beta) {
  ByColumns("delta gates", {Columns(a), Columns(b)}, {Columns(decay), Columns(beta)},
            [&](const Here& here) {
              const int64_t first = here.run.begin;
              here.backend().GatedDeltaGates(here.Of(a), here.Of(b), here.At(exp_a, first),
                                             here.At(dt_bias, first), here.Of(decay),
                                             here.Of(beta));
            });
}

void SplitBackend::SsdGates(const ConstRows& x, ConstFloats bias, ConstFloats a, float low,
                            float high, const Rows& dt, const Rows& decay) {
  ByColumns("ssd gates", {Columns(x)}, {Columns(dt), Columns(decay)}, [&](const Here& here) {
    const int64_t first = here.run.begin;
    here.backend().SsdGates(here.Of(x), here.At(bias, first), here.At(a, first), low, high,
                            here.Of(dt), here.Of(decay));
  });
}

}  // namespace reprise
