// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/joint_ops.h"
#include "kernels/scan_ops.h"
#include "tensor/kv_row.h"

// For tests: every op that has to do with state, on any backend, with one value that is no finite
// number in the second of some sequences. That sequence is spoilt, and no other (ops.h).
namespace reprise {

class SpoiltCases {
 public:
  explicit SpoiltCases(Backend* backend)
      : backend_(backend), scratch_(backend->memory()), context_{backend, &scratch_} {}

  void RunAll() {
    for (const int rows : {1, 3, 70}) {
      for (const DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kQ8_0}) {
        if (backend_->holds(type)) Attention(rows, type);
      }
      for (const int sequences : {3, 9}) Delta(rows, sequences);
      Scans(rows);
      Channels(rows);
    }
    DeltaLayer(3);
    DeltaLayer(9);
  }

 private:
  static constexpr float kInf = std::numeric_limits<float>::infinity();
  static constexpr int64_t kStateBytes = 1 << 18;

  // Values of an op: `planted`, if any, takes the place of one in the second sequence.
  struct Plant {
    int operand = -1;
    float value = 0;
  };
  // Runs ops(values of operand i with so many columns) for the plain values, of which none may be
  // spoilt, and with each value planted into each operand.
  using Operand = std::function<Rows(int operand, int64_t cols)>;
  using Ops = std::function<void(const StepLayout&, const Operand&)>;

  void Check(const std::string& what, int rows, int sequences, int operands,
             std::vector<float> values, const Ops& ops, int past = 0, bool others = true) {
    EXPECT_EQ(Flags(rows, sequences, {}, ops, past), Expected(sequences, false)) << what;
    if (others) values.insert(values.end(), {kInf, -kInf, std::nanf("")});
    for (int operand = 0; operand < operands; ++operand) {
      for (const float value : values) {
        EXPECT_EQ(Flags(rows, sequences, {operand, value}, ops, past), Expected(sequences, true))
            << what << ", " << rows << " rows each, " << value << " in operand " << operand;
      }
    }
  }

  static std::vector<uint8_t> Expected(int sequences, bool spoilt) {
    std::vector<uint8_t> flags(size_t(sequences), 1);
    if (spoilt) flags[1] = 0;
    return flags;
  }

  std::vector<uint8_t> Flags(int rows, int sequences, const Plant& plant, const Ops& ops,
                             int past) {
    scratch_.Reset();
    buffers_.clear();
    const int all = rows * sequences, blocks = (past + rows + 63) / 64;
    std::vector<int32_t> tokens(size_t(all), 0), positions, of;
    std::vector<StepSequence> list;
    std::vector<uint32_t> ids;
    for (int s = 0; s < sequences; ++s) {
      StepSequence& one = list.emplace_back();
      one.row_begin = s * rows, one.row_count = rows, one.position = past;
      one.block_begin = s * blocks, one.block_count = blocks, one.state = uint32_t(s);
      for (int b = 0; b < blocks; ++b) ids.push_back(uint32_t(s * blocks + b));
      for (int r = 0; r < rows; ++r) positions.push_back(past + r), of.push_back(s);
    }
    StepLayout step;
    step.host = {tokens, positions, of, list, ids, {}, {}};
    step.block_bytes = step.state_bytes = size_t(kStateBytes);
    step.block_memory = Take(ids.size() * size_t(kStateBytes));
    step.state_memory = Take(list.size() * size_t(kStateBytes));
    BeginStep(context_, &step);
    const Operand operand = [&](int index, int64_t cols) {
      Rng rng(uint64_t(index) + 1);
      std::vector<float> values(size_t(all * cols));
      for (float& value : values) value = 0.02f + 0.04f * rng.Uniform();  // no scan grows
      if (index == plant.operand) values[size_t((2 * rows - 1) * cols + cols / 2)] = plant.value;
      return Rows{Up(values), all, cols, cols};
    };
    const Rows x = {Up(std::vector<float>(size_t(all * 16), 1.0f)), all, 16, 16};
    const DevicePtr<uint8_t> flags = Take(size_t(sequences)).As<uint8_t>();
    ++runs_;  // no two are one program: operands are made on the way
    const StepProgram program = {reinterpret_cast<const void*>(runs_), {}, flags};
    backend_->RunStep(scratch_, step, program, [&] {
      ops(step, operand);
      FiniteRows(context_, step, x, flags);
    });
    EXPECT_TRUE(backend_->TakeError().ok());
    std::vector<uint8_t> result(size_t(sequences), 7);
    backend_->memory().DownloadArray<uint8_t>(result, flags);
    return result;
  }

  DevicePtr<std::byte> Take(size_t bytes) {
    auto buffer = backend_->memory().Allocate(bytes);
    CHECK(buffer.ok());
    buffers_.push_back(std::move(*buffer));
    return buffers_.back().data();
  }
  DevicePtr<float> Up(const std::vector<float>& values) {
    const DevicePtr<float> place = Take(values.size() * sizeof(float)).As<float>();
    backend_->memory().UploadArray<float>(place, values);
    return place;
  }
  ConstFloats Const(size_t count, float value = 0.5f) {
    return Up(std::vector<float>(count, value));
  }

  // Keys, values, queries; as they come, and where heads are stored and attended in one kernel.
  void Attention(int rows, DType type) {
    const std::vector<float> large = type == DType::kF16    ? std::vector<float>{7e4f, -65520.0f}
                                     : type == DType::kBF16 ? std::vector<float>{3.4e38f}
                                     : type == DType::kQ8_0 ? std::vector<float>{-1e7f}
                                                            : std::vector<float>{};
    for (const int dim : {64, 80, 128, 256}) {
      if (dim > 64 && type != DType::kF16) continue;
      for (const bool heads : {false, true}) {
        AttentionOf(rows, type, dim, 0, heads, 0, large);
        if (dim < 128) AttentionOf(rows, type, dim, 0, heads, 20, large);
        if (dim == 64 && rows <= 3) AttentionOf(rows, type, dim, 300, heads, 0, large);
      }
    }
  }
  void AttentionOf(int rows, DType type, int dim, int past, bool heads, float softcap,
                   const std::vector<float>& large) {
    const KvShape shape = {2, dim, dim, type, false};
    const KvPlace place = {0, KvRowBytes(type, dim) * 128};
    const AttentionParams params = {4, 1.0f / std::sqrt(float(dim)), 0, softcap};
    const std::string what = "attention, K/V " + std::string(NameOf(type)) + " of " +
                             std::to_string(dim) + (heads ? ", heads" : "") +
                             (softcap > 0 ? ", soft cap" : "") + (past > 0 ? ", long" : "");
    const Ops ops = [&](const StepLayout& step, const Operand& operand) {
      const Rows k = operand(0, 2 * dim), v = operand(1, 2 * dim), q = operand(2, 4 * dim);
      const Rows out = {Up(std::vector<float>(size_t(q.rows * q.cols))), q.rows, q.cols, q.cols};
      if (heads) {
        HeadInputs inputs;
        inputs.q_heads = params.q_heads;
        StoreHeads(context_, step, place, shape, inputs, q, k, v);
      } else {
        StoreKv(context_, step, place, shape, k, v);
      }
      Attend(context_, step, place, shape, params, q, out);
    };
    Check(what, rows, 3, 3, {}, ops, past);
    // Queries are rounded to the type of the keys only where tensor cores multiply them.
    Check(what, rows, 3, 2, large, ops, past, false);
  }

  void Delta(int rows, int sequences) {
    for (const int keys : {32, 64, 128, 256}) {
      const GatedDeltaShape shape = {1, 2, keys, 32, false};
      Check("gated delta of " + std::to_string(keys), rows, sequences, 2, {},
            [&](const StepLayout& step, const Operand& operand) {
              const Rows v = operand(0, 64), k = operand(1, keys), q = operand(2, keys);
              const Rows decay = operand(3, 2), beta = operand(4, 2);
              const Rows y = operand(5, 64);
              GatedDelta(context_, step, 0, shape, q, k, v, decay, beta, y);
            });
    }
  }

  void Scans(int rows) {
    Check("key decay delta", rows, 3, 2, {}, [&](const StepLayout& step, const Operand& operand) {
      const Rows v = operand(0, 64), k = operand(1, 64), q = operand(2, 64);
      KeyDecayDelta(context_, step, 0, 2, q, k, v, operand(3, 64), operand(4, 2), operand(5, 64));
    });
    Check("ssd", rows, 3, 2, {}, [&](const StepLayout& step, const Operand& operand) {
      const Rows x = operand(0, 64), b = operand(1, 16), c = operand(2, 16);
      Ssd(context_, step, 0, {2, 1, 16, 32}, x, b, c, operand(3, 2), operand(4, 2), Const(2),
          operand(5, 64));
    });
    Check("wkv7", rows, 3, 2, {}, [&](const StepLayout& step, const Operand& operand) {
      const Rows v = operand(0, 64), k = operand(1, 64);
      Wkv7(context_, step, 0, 2,
           {operand(2, 64), operand(3, 64), k, v, operand(4, 64), operand(5, 64)}, operand(6, 64));
    });
    Check("selective scan", rows, 3, 2, {}, [&](const StepLayout& step, const Operand& operand) {
      const Rows x = operand(0, 48), b = operand(1, 8);
      SelectiveScan(context_, step, 0, Const(8 * 48, -0.5f), Const(48), x, operand(2, 48), b,
                    operand(3, 8), operand(4, 48));
    });
  }

  void Channels(int rows) {
    for (const int reach : {2, 4, 16}) {
      Check("convolution over " + std::to_string(reach), rows, 3, 1, {},
            [&](const StepLayout& step, const Operand& operand) {
              ShortConv(context_, step, 0, Const(size_t(reach * 48)), nullptr, reach, true,
                        operand(0, 48), operand(1, 48));
            });
    }
    Check("token shift", rows, 3, 1, {}, [&](const StepLayout& step, const Operand& operand) {
      const ConstFloats mix[] = {Const(48)};
      const Rows outs[] = {operand(1, 48)};
      TokenShift(context_, step, 0, operand(0, 48), mix, outs);
    });
    Check("rg-lru", rows, 3, 1, {}, [&](const StepLayout& step, const Operand& operand) {
      RgLru(context_, step, 0, Const(48), operand(0, 48), operand(1, 48), operand(2, 48),
            operand(3, 48));
    });
  }

  // One token of each sequence as one kernel, or three.
  void DeltaLayer(int sequences) {
    GatedDeltaLayer layer;
    layer.shape = {1, 2, 128, 128, false};
    layer.reach = 4;
    layer.conv_offset = 0;
    layer.delta_offset = 16 << 10;
    layer.l2_eps = layer.norm_eps = 1e-6f;
    Check("gated delta layer", 1, sequences, 1, {},
          [&](const StepLayout& step, const Operand& operand) {
            layer.conv = Const(4 * 512);
            layer.exp_a = Const(2);
            layer.dt_bias = Const(2);
            layer.norm = Const(128);
            const Rows qkv = operand(0, 512), a = operand(1, 2), b = operand(2, 2);
            GatedDeltaMix(context_, step, layer, qkv, a, b, operand(3, 256), operand(4, 256));
          });
  }

  Backend* const backend_;
  ScratchArena scratch_;
  const OpContext context_;
  uintptr_t runs_ = 0;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace reprise
