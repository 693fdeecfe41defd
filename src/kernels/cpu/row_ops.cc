// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/raw_rows.h"

// Ops whose rows need nothing but themselves: rows are divided among the threads.
namespace reprise::cpu {

namespace {

// Costs of an element relative to an addition.
constexpr int64_t kNormCost = 2;
constexpr int64_t kExpCost = 4;

}  // namespace

void CpuBackend::BeginStep(ScratchArena& scratch, StepLayout* step) {
  // What lies on the host is where it is wanted.
  const auto& host = step->host;
  step->device = {PlaceAt(host.tokens.data()),        PlaceAt(host.positions.data()),
                  PlaceAt(host.row_sequences.data()), PlaceAt(host.sequences.data()),
                  PlaceAt(host.blocks.data()),        PlaceAt(host.taps.data()),
                  PlaceAt(host.logit_rows.data())};
  step->spoilt = scratch.Take<int32_t>(host.sequences.size());
  if (!scratch.refused()) std::fill_n(Raw(step->spoilt), host.sequences.size(), 0);
}

void CpuBackend::RmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                         const Rows& y) {
  const int64_t width = x.cols / groups;
  ForRows(*pool_, x.rows, x.cols * kNormCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        table_->rms_norm(RowOf(x, t) + g * width, Raw(weight), eps, width, RowOf(y, t) + g * width);
      }
    }
  });
}

void CpuBackend::AddRmsNorm(const Rows& x, const ConstRows& y, ConstFloats weight, float eps,
                            const Rows& h) {
  ForRows(*pool_, x.rows, x.cols * (kNormCost + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->add(RowOf(x, t), RowOf(y, t), x.cols, RowOf(x, t));
      table_->rms_norm(RowOf(x, t), Raw(weight), eps, x.cols, RowOf(h, t));
    }
  });
}

void CpuBackend::RmsNormGated(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                              int groups, float eps, const Rows& y) {
  const int64_t width = x.cols / groups;
  ForRows(*pool_, x.rows, x.cols * (kNormCost + kExpCost), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        table_->rms_norm(RowOf(x, t) + g * width, Raw(weight), eps, width, RowOf(y, t) + g * width);
      }
      table_->swiglu(RowOf(gate, t), RowOf(y, t), x.cols, RowOf(y, t));
    }
  });
}

void CpuBackend::L2Norm(const ConstRows& x, int groups, float eps, float scale, const Rows& y) {
  const int64_t width = x.cols / groups;
  ForRows(*pool_, x.rows, x.cols * kNormCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        table_->l2_norm(RowOf(x, t) + g * width, eps, scale, width, RowOf(y, t) + g * width);
      }
    }
  });
}

void CpuBackend::SwiGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) {
  ForRows(*pool_, y.rows, y.cols * kExpCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->swiglu(RowOf(gate, t), RowOf(up, t), y.cols, RowOf(y, t));
    }
  });
}

void CpuBackend::SigmoidMul(const ConstRows& gate, const ConstRows& x, const Rows& y) {
  ForRows(*pool_, y.rows, y.cols * kExpCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->sigmoid_mul(RowOf(gate, t), RowOf(x, t), y.cols, RowOf(y, t));
    }
  });
}

void CpuBackend::Add(const ConstRows& a, const ConstRows& b, const Rows& y) {
  ForRows(*pool_, y.rows, y.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->add(RowOf(a, t), RowOf(b, t), y.cols, RowOf(y, t));
    }
  });
}

void CpuBackend::MakeRopeTable(const StepLayout& step, ConstFloats inverse_frequencies,
                               float magnitude, const Rows& cos, const Rows& sin) {
  constexpr int64_t kSinCosCost = 32;
  const int half = static_cast<int>(cos.cols);
  ForRows(*pool_, cos.rows, half * kSinCosCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->rope_angles(static_cast<float>(step.host.positions[size_t(t)]),
                          Raw(inverse_frequencies), half, RowOf(cos, t), RowOf(sin, t));
      if (magnitude == 1) continue;
      table_->scale(RowOf(cos, t), magnitude, half, RowOf(cos, t));
      table_->scale(RowOf(sin, t), magnitude, half, RowOf(sin, t));
    }
  });
}

void CpuBackend::MakePlacedRopeTable(std::span<const RopePlace> places,
                                     std::span<const uint8_t> axes, ConstFloats inverse_frequencies,
                                     float magnitude, const Rows& cos, const Rows& sin) {
  constexpr int64_t kSinCosCost = 3 * 32;
  const int half = static_cast<int>(axes.size());
  ForRows(*pool_, cos.rows, half * kSinCosCost, [&](int64_t begin, int64_t end) {
    std::vector<float> of_axis(2 * axes.size());
    for (int64_t t = begin; t < end; ++t) {
      const RopePlace& place = places[size_t(t)];
      // Axis by axis, all frequencies: those of other axes are left where they are.
      for (uint8_t axis = 0; axis < 3; ++axis) {
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
        table_->rope_angles(static_cast<float>(place[axis]), Raw(inverse_frequencies), half,
                            of_axis.data(), of_axis.data() + half);
        for (int f = 0; f < half; ++f) {
          if (axes[size_t(f)] != axis) continue;
          RowOf(cos, t)[f] = of_axis[size_t(f)];
          RowOf(sin, t)[f] = of_axis[size_t(half + f)];
        }
      }
      if (magnitude == 1) continue;
      table_->scale(RowOf(cos, t), magnitude, half, RowOf(cos, t));
      table_->scale(RowOf(sin, t), magnitude, half, RowOf(sin, t));
    }
  });
}

void CpuBackend::Rope(const RopeTable& table, int heads, const Rows& x, int64_t offset) {
  const int64_t head_dim = x.cols / heads;
  ForRows(*pool_, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* cos = Raw(table.cos) + t * table.half;
      const float* sin = Raw(table.sin) + t * table.half;
      for (int64_t h = 0; h < heads; ++h) {
        table_->rope(RowOf(x, t) + h * head_dim + offset, cos, sin, table.half);
      }
    }
  });
}

void CpuBackend::GatedDeltaGates(const ConstRows& a, const ConstRows& b, ConstFloats exp_a,
                                 ConstFloats dt_bias, const Rows& decay, const Rows& beta) {
  ForRows(*pool_, a.rows, a.cols * 3 * kExpCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->delta_gates(RowOf(a, t), RowOf(b, t), Raw(exp_a), Raw(dt_bias), a.cols,
                          RowOf(decay, t), RowOf(beta, t));
    }
  });
}

void CpuBackend::GatherRows(const ConstRows& x, DevicePtr<const int32_t> index, const Rows& out) {
  const int32_t* rows = Raw(index);
  ForRows(*pool_, out.rows, out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::memcpy(RowOf(out, t), RowOf(x, rows[t]), size_t(out.cols) * sizeof(float));
    }
  });
}

void CpuBackend::Fill(float value, const Rows& y) {
  for (int64_t t = 0; t < y.rows; ++t) std::fill_n(RowOf(y, t), y.cols, value);
}

void CpuBackend::CopyHeads(int heads, int64_t width, const ConstRows& x, int64_t x_step,
                           const Rows& y, int64_t y_step) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::memcpy(RowOf(y, t) + h * y_step, RowOf(x, t) + h * x_step,
                  size_t(width) * sizeof(float));
    }
  }
}

void CpuBackend::FiniteRows(const StepLayout& step, const ConstRows& x, DevicePtr<uint8_t> finite) {
  uint8_t* flags = Raw(finite);
  for (size_t s = 0; s < step.host.sequences.size(); ++s) {
    const StepSequence& sequence = step.host.sequences[s];
    flags[s] = !step.spoilt || Raw(step.spoilt)[s] == 0;
    for (int64_t i = 0; i < sequence.row_count; ++i) {
      const float* row = RowOf(x, sequence.row_begin + i);
      if (!AllFinite({row, static_cast<size_t>(x.cols)})) flags[s] = 0;
    }
  }
}

}  // namespace reprise::cpu
