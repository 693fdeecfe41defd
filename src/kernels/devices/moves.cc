// SPDX-License-Identifier: Apache-2.0
#include "kernels/devices/moves.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "device/raw.h"
#include "kernels/backend.h"

namespace reprise {
namespace {

void Move(const OpContext& from, DevicePtr<const std::byte> x, const OpContext& to,
          DevicePtr<std::byte> y, size_t bytes) {
  if (from.scratch->refused() || to.scratch->refused()) return;
  DeviceMemory& source = from.backend->memory();
  DeviceMemory& target = to.backend->memory();
  if (&target == &HostMemory()) return source.Download(Raw(y), x, bytes);
  if (&source == &HostMemory()) return target.Upload(y, Raw(x), bytes);
  std::vector<std::byte> between(bytes);
  source.Download(between.data(), x, bytes);
  target.Upload(y, between.data(), bytes);
}

template <typename T>
DevicePtr<T> MovedArray(const OpContext& from, DevicePtr<T> x, size_t count, const OpContext& to) {
  const DevicePtr<std::remove_const_t<T>> y = to.scratch->Take<std::remove_const_t<T>>(count);
  Move(from, x.template As<const std::byte>(), to, y.template As<std::byte>(), count * sizeof(T));
  return y;
}

}  // namespace

Rows Moved(const OpContext& from, const ConstRows& x, const OpContext& to) {
  const Rows y = {to.scratch->Floats(size_t(x.rows * x.cols)), x.rows, x.cols, x.cols};
  MoveRows(from, x, to, y);
  return y;
}

Routing Moved(const OpContext& from, const Routing& routing, const OpContext& to) {
  const auto pairs = size_t(routing.rows * routing.top_k);
  Routing moved = routing;
  moved.experts = MovedArray(from, routing.experts, pairs, to);
  moved.weights = MovedArray(from, routing.weights, pairs, to);
  return moved;
}

RopeTable Moved(const OpContext& from, const RopeTable& table, int64_t rows, const OpContext& to) {
  if (table.half == 0) return table;
  const auto count = size_t(rows * table.half);
  return {MovedArray(from, table.cos, count, to), MovedArray(from, table.sin, count, to),
          table.half};
}

void MoveRows(const OpContext& from, const ConstRows& x, const OpContext& to, const Rows& y) {
  CHECK(x.rows == y.rows && x.cols == y.cols);
  const bool whole = x.stride == x.cols && y.stride == y.cols;
  const int64_t pieces = whole ? std::min<int64_t>(x.rows, 1) : x.rows;
  const size_t bytes = size_t(x.cols) * sizeof(float) * size_t(whole ? x.rows : 1);
  for (int64_t row = 0; row < pieces; ++row) {
    Move(from, (x.data + row * x.stride).As<const std::byte>(), to,
         (y.data + row * y.stride).As<std::byte>(), bytes);
  }
}

}  // namespace reprise
