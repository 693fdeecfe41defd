// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

// SHA-256 (FIPS 180-4) of `bytes`.
std::array<uint8_t, 32> Sha256(std::string_view bytes);

// The same as 64 hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace reprise
