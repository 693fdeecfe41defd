// SPDX-License-Identifier: Apache-2.0
#include "state/packing.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace reprise {
namespace {

constexpr size_t kPieceNumbers = size_t{1} << 18;  // rounded at a time

}  // namespace

StatePacking StatePacking::Rounded(const StateSpec& spec) {
  StatePacking packing;
  packing.rounded_ = true;
  const StateLayout layout(spec);
  for (const bool round : {true, false}) {
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      if (spec.layers[i].kind != StateKind::kRecurrent) continue;
      for (size_t j = 0; j < spec.layers[i].tensors.size(); ++j) {
        if ((spec.layers[i].tensors[j].dtype == DType::kF32) != round) continue;
        const Tensor tensor{layout.offset(i, j), layout.bytes(i, j), packing.bytes_, round};
        packing.bytes_ += tensor.packed_bytes();
        packing.tensors_.push_back(tensor);
      }
    }
  }
  packing.bytes_ += packing.bytes_ % 2;
  return packing;
}

void StatePacking::Read(DeviceMemory& device, DevicePtr<const std::byte> state, size_t offset,
                        std::span<std::byte> out) const {
  if (!rounded_) return device.Download(out.data(), state + int64_t(offset), out.size());
  CHECK(offset % 2 == 0 && out.size() % 2 == 0 && offset + out.size() <= bytes_);
  std::vector<float> numbers;
  for (const Tensor& tensor : tensors_) {
    size_t at = std::max(offset, tensor.packed);
    const size_t end = std::min(offset + out.size(), tensor.packed + tensor.packed_bytes());
    if (at < end && !tensor.round) {
      device.Download(out.data() + (at - offset),
                      state + int64_t(tensor.offset + at - tensor.packed), end - at);
    }
    while (at < end && tensor.round) {
      const size_t count = std::min(kPieceNumbers, (end - at) / 2);
      numbers.resize(count);
      const size_t from = tensor.offset + (at - tensor.packed) * 2;
      device.Download(numbers.data(), state + int64_t(from), count * sizeof(float));
      for (size_t i = 0; i < count; ++i) {
        const uint16_t bits = F32ToBF16(numbers[i]);
        std::memcpy(out.data() + (at - offset) + 2 * i, &bits, sizeof(bits));
      }
      at += 2 * count;
    }
  }
}

void StatePacking::Write(DeviceMemory& device, DevicePtr<std::byte> state, size_t offset,
                         std::span<const std::byte> packed) const {
  if (!rounded_) return device.Upload(state + int64_t(offset), packed.data(), packed.size());
  CHECK(offset % 2 == 0 && packed.size() % 2 == 0 && offset + packed.size() <= bytes_);
  std::vector<float> numbers;
  for (const Tensor& tensor : tensors_) {
    size_t at = std::max(offset, tensor.packed);
    const size_t end = std::min(offset + packed.size(), tensor.packed + tensor.packed_bytes());
    if (at < end && !tensor.round) {
      device.Upload(state + int64_t(tensor.offset + at - tensor.packed),
                    packed.data() + (at - offset), end - at);
    }
    while (at < end && tensor.round) {
      const size_t count = std::min(kPieceNumbers, (end - at) / 2);
      numbers.resize(count);
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, packed.data() + (at - offset) + 2 * i, sizeof(bits));
        numbers[i] = BF16ToF32(bits);
      }
      device.Upload(state + int64_t(tensor.offset + (at - tensor.packed) * 2), numbers.data(),
                    count * sizeof(float));
      at += 2 * count;
    }
  }
}

}  // namespace reprise
