// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/reference/gpu/tensor_core.h"

// Attention as a GPU with tensor cores computes it (K and V in 16 bit): the specification of the
// CUDA kernel's bits. One query of one head over pages of 64 positions, in position order:
//
//   q rounded to the type of K (nearest even), not scaled before
//   s_c = chain(q, k_c) * scale          over the head's channels (tensor_core.h)
//   s_c = cap * tanh(s_c / cap)          where there is a soft cap
//   m = the largest visible s_c; p_c = exp(s_c - m); p_c = 0 where c is not visible
//   l = visible p_c in four lanes, c to lane c % 8 / 2, each a sum in ascending c from +0;
//       (l0 + l1) + (l2 + l3)
//   o_v = chain over the 64 positions of (p_c rounded to the type of V) with v_c; a position that
//   is
//       not visible counts as p = v = 0
//   join: the first page with a visible position is taken as it is; then
//       m' = max(m, m_page), a = exp(m - m'), b = exp(m_page - m'),
//       l = fma(l, a, l_page * b), o = fma(o, a, o_page * b)
//   out = o * (1 / l)
// No number of splits enters: any division of the pages among blocks gives these bits.
namespace reprise::reference {

inline constexpr int kPage = 64;

struct PageView {
  const uint16_t* k = nullptr;  // [64, head_dim]
  const uint16_t* v = nullptr;  // [64, v_stride], the first value_dim of each row
  int first = 0;                // visible: [first, end)
  int end = kPage;
};
struct PagedQuery {
  Half type = Half::kF16;
  int head_dim = 0;
  int value_dim = 0;
  int v_stride = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
};
void AttendPages(const PagedQuery& query, const float* q, std::span<const PageView> pages,
                 float* out);

}  // namespace reprise::reference
