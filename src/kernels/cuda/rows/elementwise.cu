// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/elementwise.h"
#include "kernels/reference/math.h"

// One kernel for all: a function of kIn operands gives kOut results, four elements a thread where
// everything is aligned. A vector [cols] is an operand whose rows are 0 floats apart.
namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;

struct Operand {
  float* data;
  int64_t stride;
};

template <int kCount>
struct Operands {
  Operand of[kCount];
};

template <int kVector>
__device__ void Load(const float* from, float (&to)[kVector]) {
  if constexpr (kVector == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    to[0] = *from;
  }
}

template <int kVector>
__device__ void Store(const float (&from)[kVector], float* to) {
  if constexpr (kVector == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    *to = from[0];
  }
}

template <int kVector, int kIn, int kOut, typename Function>
__global__ void __launch_bounds__(kThreads)
    Each(Operands<kIn> in, Operands<kOut> out, int64_t rows, int64_t cols, Function function) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (column >= cols) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float x[kIn][kVector];
    float y[kOut][kVector];
#pragma unroll
    for (int i = 0; i < kIn; ++i) {
      Load<kVector>(in.of[i].data + row * in.of[i].stride + column, x[i]);
    }
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      float arguments[kIn];
      float results[kOut];
#pragma unroll
      for (int i = 0; i < kIn; ++i) arguments[i] = x[i][v];
      function(arguments, results);
#pragma unroll
      for (int i = 0; i < kOut; ++i) y[i][v] = results[i];
    }
#pragma unroll
    for (int i = 0; i < kOut; ++i) {
      Store<kVector>(y[i], out.of[i].data + row * out.of[i].stride + column);
    }
  }
}

__global__ void __launch_bounds__(kThreads) FillRows(float value, View y) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= y.cols) return;
  for (int64_t row = blockIdx.y; row < y.rows; row += gridDim.y) {
    y.data[row * y.stride + column] = value;
  }
}

Operand From(const View& view) { return {view.data, view.stride}; }
Operand From(const float* vector) { return {const_cast<float*>(vector), 0}; }  // read only

template <int kIn, int kOut, typename Function>
void Launch(Stream stream, const View& shape, const Operands<kIn>& in, const Operands<kOut>& out,
            Function function) {
  if (shape.rows == 0 || shape.cols == 0) return;
  bool aligned = shape.cols % 4 == 0;
  for (const Operand& operand : in.of) aligned &= Aligned16(operand.data, operand.stride);
  for (const Operand& operand : out.of) aligned &= Aligned16(operand.data, operand.stride);
  const int vector = aligned ? 4 : 1;
  const dim3 grid(Blocks(shape.cols, int64_t{kThreads} * vector), RowBlocks(shape.rows));
  const auto kernel = aligned ? Each<4, kIn, kOut, Function> : Each<1, kIn, kOut, Function>;
  LaunchEarly(kernel, grid, kThreads, 0, stream, in, out, shape.rows, shape.cols, function);
}

struct AddOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] + x[1]; }
};
struct MulOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] * x[1]; }
};
struct ScaleOf {
  float factor;
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0] * factor; }
};
struct ScaleAddOf {
  float factor;
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = fmaf(factor, x[0], x[1]);
  }
};
struct LerpOf {
  __device__ void operator()(const float (&x)[3], float (&y)[1]) const {
    y[0] = fmaf(x[1] - x[0], x[2], x[0]);
  }
};
struct SwiGluOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::Silu(x[0]) * x[1];
  }
};
struct ClampedSwiGluOf {
  float alpha;
  float limit;
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::ClampedSwiGlu(x[0], x[1], alpha, limit);
  }
};
struct GeGluOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::Gelu(x[0]) * x[1];
  }
};
struct GeGluErfOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::GeluErf(x[0]) * x[1];
  }
};
struct SigmoidMulOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::Sigmoid(x[0]) * x[1];
  }
};
struct SiluOf {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = reference::Silu(x[0]);
  }
};
struct GeluOf {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = reference::Gelu(x[0]);
  }
};
struct GeluErfOf {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = reference::GeluErf(x[0]);
  }
};
struct ClampOf {
  float least;
  float most;
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    const float raised = x[0] < least ? least : x[0];
    y[0] = raised > most ? most : raised;
  }
};
struct ReluSquaredOf {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    const float r = x[0] < 0 ? 0 : x[0];
    y[0] = r * r;
  }
};
struct SoftcapOf {
  float cap;
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = cap * reference::Tanh(x[0] / cap);
  }
};
struct SigmoidOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::Sigmoid(x[0] + x[1]);
  }
};
struct SoftplusOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::Softplus(x[0] + x[1]);
  }
};
struct DeltaGatesOf {  // a, b, exp_a, dt_bias
  __device__ void operator()(const float (&x)[4], float (&y)[2]) const {
    y[0] = reference::Exp(-(x[2] * reference::Softplus(x[0] + x[3])));
    y[1] = reference::Sigmoid(x[1]);
  }
};
struct DecayGatesOf {  // x, bias, rate
  __device__ void operator()(const float (&x)[3], float (&y)[1]) const {
    y[0] = reference::Exp(-(x[2] * reference::Softplus(x[0] + x[1])));
  }
};
struct SsdGatesOf {  // x, bias, a
  float low;
  float high;
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float step = reference::Softplus(x[0] + x[1]);
    const float raised = low > step ? low : step;
    y[0] = high < raised ? high : raised;
    y[1] = reference::Exp(y[0] * x[2]);
  }
};
struct RwkvDecayOf {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = reference::Exp(-(0.606531f * reference::Sigmoid(x[0] + x[1])));
  }
};

}  // namespace

void Fill(Stream stream, float value, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  const dim3 grid(Blocks(y.cols, kThreads), RowBlocks(y.rows));
  LaunchInTurn(FillRows, grid, kThreads, 0, stream, value, y);
}
void Add(Stream stream, const View& a, const View& b, const View& y) {
  Launch<2, 1>(stream, y, {{From(a), From(b)}}, {{From(y)}}, AddOf{});
}
void Mul(Stream stream, const View& a, const View& b, const View& y) {
  Launch<2, 1>(stream, y, {{From(a), From(b)}}, {{From(y)}}, MulOf{});
}
void Scale(Stream stream, const View& x, float factor, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, ScaleOf{factor});
}
void ScaleAdd(Stream stream, const View& x, float factor, const View& y) {
  Launch<2, 1>(stream, y, {{From(x), From(y)}}, {{From(y)}}, ScaleAddOf{factor});
}
void Lerp(Stream stream, const View& a, const View& b, const View& t, const View& y) {
  Launch<3, 1>(stream, y, {{From(a), From(b), From(t)}}, {{From(y)}}, LerpOf{});
}
void SwiGlu(Stream stream, const View& gate, const View& up, const View& y) {
  Launch<2, 1>(stream, y, {{From(gate), From(up)}}, {{From(y)}}, SwiGluOf{});
}
void ClampedSwiGlu(Stream stream, const View& gate, const View& up, float alpha, float limit,
                   const View& y) {
  Launch<2, 1>(stream, y, {{From(gate), From(up)}}, {{From(y)}}, ClampedSwiGluOf{alpha, limit});
}
void GeGlu(Stream stream, const View& gate, const View& up, const View& y) {
  Launch<2, 1>(stream, y, {{From(gate), From(up)}}, {{From(y)}}, GeGluOf{});
}
void GeGluErf(Stream stream, const View& gate, const View& up, const View& y) {
  Launch<2, 1>(stream, y, {{From(gate), From(up)}}, {{From(y)}}, GeGluErfOf{});
}
void SigmoidMul(Stream stream, const View& gate, const View& x, const View& y) {
  Launch<2, 1>(stream, y, {{From(gate), From(x)}}, {{From(y)}}, SigmoidMulOf{});
}
void Silu(Stream stream, const View& x, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, SiluOf{});
}
void Gelu(Stream stream, const View& x, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, GeluOf{});
}
void GeluErf(Stream stream, const View& x, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, GeluErfOf{});
}
void Clamp(Stream stream, const View& x, float least, float most, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, ClampOf{least, most});
}
void ReluSquared(Stream stream, const View& x, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, ReluSquaredOf{});
}
void Softcap(Stream stream, const View& x, float cap, const View& y) {
  Launch<1, 1>(stream, y, {{From(x)}}, {{From(y)}}, SoftcapOf{cap});
}
void Sigmoid(Stream stream, const View& x, const float* bias, const View& y) {
  Launch<2, 1>(stream, y, {{From(x), From(bias)}}, {{From(y)}}, SigmoidOf{});
}
void Softplus(Stream stream, const View& x, const float* bias, const View& y) {
  Launch<2, 1>(stream, y, {{From(x), From(bias)}}, {{From(y)}}, SoftplusOf{});
}
void DeltaGates(Stream stream, const View& a, const View& b, const float* exp_a,
                const float* dt_bias, const View& decay, const View& beta) {
  Launch<4, 2>(stream, decay, {{From(a), From(b), From(exp_a), From(dt_bias)}},
               {{From(decay), From(beta)}}, DeltaGatesOf{});
}
void DecayGates(Stream stream, const View& x, const float* bias, const float* rate,
                const View& decay) {
  Launch<3, 1>(stream, decay, {{From(x), From(bias), From(rate)}}, {{From(decay)}}, DecayGatesOf{});
}
void SsdGates(Stream stream, const View& x, const float* bias, const float* a, float low,
              float high, const View& dt, const View& decay) {
  Launch<3, 2>(stream, dt, {{From(x), From(bias), From(a)}}, {{From(dt), From(decay)}},
               SsdGatesOf{low, high});
}
void RwkvDecay(Stream stream, const View& x, const float* bias, const View& y) {
  Launch<2, 1>(stream, y, {{From(x), From(bias)}}, {{From(y)}}, RwkvDecayOf{});
}

}  // namespace reprise::cuda
