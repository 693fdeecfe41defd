// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/lane_scan.h"

#include <cmath>

namespace reprise::reference {
namespace {

const float* Row(const cpu::TokenRows& rows, int t) { return rows.data + t * rows.stride; }

class LaneSum {
 public:
  void Add(int key, float a, float b) { lane_[key % 32] = std::fma(a, b, lane_[key % 32]); }
  float Total() const {
    float quad[8];
    for (int j = 0; j < 8; ++j) {
      const float* l = lane_ + 4 * j;
      quad[j] = (l[0] + l[1]) + (l[2] + l[3]);
    }
    return ((quad[0] + quad[1]) + (quad[2] + quad[3])) +
           ((quad[4] + quad[5]) + (quad[6] + quad[7]));
  }

 private:
  float lane_[32] = {};
};

}  // namespace

void LaneDelta(const LaneDeltaScan& scan) {
  const cpu::MatrixState& state = scan.state;
  for (int t = 0; t < scan.rows; ++t) {
    const float* q = Row(scan.q, t);
    const float* k = Row(scan.k, t);
    const float decay = *Row(scan.decay, t);
    for (int c = 0; c < state.columns; ++c) {
      float* s = state.data + c;
      LaneSum read;
      for (int i = 0; i < state.keys; ++i) read.Add(i, s[i * state.stride], k[i]);
      const float delta = *Row(scan.beta, t) * (Row(scan.v, t)[c] - decay * read.Total());
      LaneSum out;
      for (int i = 0; i < state.keys; ++i) {
        float& cell = s[i * state.stride];
        cell = std::fma(k[i], delta, cell * decay);
        out.Add(i, cell, q[i]);
      }
      scan.y[t * scan.y_stride + c] = out.Total();
    }
  }
}

void LaneKeyDecayDelta(const cpu::KeyDecayDeltaScan& scan) {
  const cpu::MatrixState& state = scan.state;
  for (int t = 0; t < scan.rows; ++t) {
    const float* q = Row(scan.q, t);
    const float* k = Row(scan.k, t);
    const float* decay = Row(scan.decay, t);
    for (int c = 0; c < state.columns; ++c) {
      float* s = state.data + c;
      LaneSum read;
      for (int i = 0; i < state.keys; ++i) {
        s[i * state.stride] *= decay[i];
        read.Add(i, s[i * state.stride], k[i]);
      }
      const float delta = *Row(scan.beta, t) * (Row(scan.v, t)[c] - read.Total());
      LaneSum out;
      for (int i = 0; i < state.keys; ++i) {
        float& cell = s[i * state.stride];
        cell = std::fma(k[i], delta, cell);
        out.Add(i, cell, q[i]);
      }
      scan.y[t * scan.y_stride + c] = out.Total();
    }
  }
}

void LaneSsd(const cpu::SsdScan& scan) {
  const cpu::MatrixState& state = scan.state;
  for (int t = 0; t < scan.rows; ++t) {
    const float decay = *Row(scan.decay, t);
    for (int c = 0; c < state.columns; ++c) {
      const float x = Row(scan.x, t)[c];
      const float u = *Row(scan.dt, t) * x;
      LaneSum out;
      for (int i = 0; i < state.keys; ++i) {
        float& cell = state.data[i * state.stride + c];
        cell = std::fma(Row(scan.b, t)[i], u, cell * decay);
        out.Add(i, cell, Row(scan.c, t)[i]);
      }
      scan.y[t * scan.y_stride + c] = std::fma(scan.skip, x, out.Total());
    }
  }
}

void LaneWkv7(const cpu::Wkv7Scan& scan) {
  const cpu::MatrixState& state = scan.state;
  for (int t = 0; t < scan.rows; ++t) {
    for (int c = 0; c < state.columns; ++c) {
      const float v = Row(scan.v, t)[c];
      LaneSum read;
      for (int i = 0; i < state.keys; ++i) {
        read.Add(i, state.data[i * state.stride + c], Row(scan.a, t)[i]);
      }
      const float sum = read.Total();
      LaneSum out;
      for (int i = 0; i < state.keys; ++i) {
        float& cell = state.data[i * state.stride + c];
        const float add = std::fma(sum, Row(scan.b, t)[i], v * Row(scan.k, t)[i]);
        cell = std::fma(cell, Row(scan.w, t)[i], add);
        out.Add(i, cell, Row(scan.r, t)[i]);
      }
      scan.y[t * scan.y_stride + c] = out.Total();
    }
  }
}

}  // namespace reprise::reference
