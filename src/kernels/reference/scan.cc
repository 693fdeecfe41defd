// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/scan.h"

#include <cmath>

#include "kernels/reference/math.h"

namespace reprise::reference {

namespace {

const float* Row(const cpu::TokenRows& rows, int t) { return rows.data + t * rows.stride; }

}  // namespace

void KeyDecayDelta(const cpu::KeyDecayDeltaScan* scan) {
  const cpu::MatrixState& state = scan->state;
  for (int t = 0; t < scan->rows; ++t) {
    const float* q = Row(scan->q, t);
    const float* k = Row(scan->k, t);
    const float* decay = Row(scan->decay, t);
    for (int c = 0; c < state.columns; ++c) {
      float* s = state.data + c;
      float read = 0;
      for (int i = 0; i < state.keys; ++i) {
        s[i * state.stride] *= decay[i];
        read = std::fma(s[i * state.stride], k[i], read);
      }
      const float delta = *Row(scan->beta, t) * (Row(scan->v, t)[c] - read);
      float out = 0;
      for (int i = 0; i < state.keys; ++i) {
        s[i * state.stride] = std::fma(k[i], delta, s[i * state.stride]);
        out = std::fma(s[i * state.stride], q[i], out);
      }
      scan->y[t * scan->y_stride + c] = out;
    }
  }
}

void Ssd(const cpu::SsdScan* scan) {
  const cpu::MatrixState& state = scan->state;
  for (int t = 0; t < scan->rows; ++t) {
    for (int c = 0; c < state.columns; ++c) {
      const float x = Row(scan->x, t)[c];
      const float u = *Row(scan->dt, t) * x;
      float out = 0;
      for (int i = 0; i < state.keys; ++i) {
        float& s = state.data[i * state.stride + c];
        s *= *Row(scan->decay, t);
        s = std::fma(Row(scan->b, t)[i], u, s);
        out = std::fma(s, Row(scan->c, t)[i], out);
      }
      scan->y[t * scan->y_stride + c] = std::fma(scan->skip, x, out);
    }
  }
}

void Wkv7(const cpu::Wkv7Scan* scan) {
  const cpu::MatrixState& state = scan->state;
  for (int t = 0; t < scan->rows; ++t) {
    for (int c = 0; c < state.columns; ++c) {
      const float v = Row(scan->v, t)[c];
      float read = 0;
      for (int i = 0; i < state.keys; ++i) {
        read = std::fma(state.data[i * state.stride + c], Row(scan->a, t)[i], read);
      }
      float out = 0;
      for (int i = 0; i < state.keys; ++i) {
        float& s = state.data[i * state.stride + c];
        const float add = std::fma(read, Row(scan->b, t)[i], v * Row(scan->k, t)[i]);
        s = std::fma(s, Row(scan->w, t)[i], add);
        out = std::fma(s, Row(scan->r, t)[i], out);
      }
      scan->y[t * scan->y_stride + c] = out;
    }
  }
}

void Selective(const cpu::SelectiveScan* scan) {
  const cpu::MatrixState& state = scan->state;
  for (int t = 0; t < scan->rows; ++t) {
    for (int c = 0; c < state.columns; ++c) {
      const float x = Row(scan->x, t)[c];
      const float dt = Row(scan->dt, t)[c];
      const float u = dt * x;
      float out = 0;
      for (int i = 0; i < state.keys; ++i) {
        float& s = state.data[i * state.stride + c];
        const float decay = Exp(dt * scan->a[i * scan->a_stride + c]);
        s = std::fma(decay, s, u * Row(scan->b, t)[i]);
        out = std::fma(s, Row(scan->c, t)[i], out);
      }
      scan->y[t * scan->y_stride + c] = std::fma(scan->skip[c], x, out);
    }
  }
}

void RgLru(const cpu::RgLruScan* scan) {
  for (int t = 0; t < scan->rows; ++t) {
    for (int c = 0; c < scan->columns; ++c) {
      const float l = -(scan->rate[c] * Sigmoid(Row(scan->r, t)[c]));
      const float gated = Row(scan->x, t)[c] * Sigmoid(Row(scan->i, t)[c]);
      const float next = std::fma(Exp(l), scan->state[c], gated * std::sqrt(1.0f - Exp(l + l)));
      scan->state[c] = scan->reset && t == 0 ? gated : next;
      scan->y[t * scan->y_stride + c] = scan->state[c];
    }
  }
}

void Decay(const float* x, const float* bias, const float* rate, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Exp(-(rate[i] * Softplus(x[i] + bias[i])));
}

void SsdGates(const float* x, const float* bias, const float* a, float low, float high, int64_t n,
              float* dt, float* decay) {
  for (int64_t i = 0; i < n; ++i) {
    const float step = Softplus(x[i] + bias[i]);
    const float raised = low > step ? low : step;
    dt[i] = high < raised ? high : raised;
    decay[i] = Exp(dt[i] * a[i]);
  }
}

}  // namespace reprise::reference
