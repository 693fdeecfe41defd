// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/reference/gpu/tensor_core.h"

// Attention as a GPU with tensor cores computes it (K and V in 16 bit): the specification of the
// CUDA kernel's bits. One query of one head over pages of 64 positions, in position order:
//
//   q rounded to the type of K (nearest even), not scaled before
//   s_c = chain(q, k_c)                  over the head's channels (tensor_core.h)
//   where there is a soft cap, s_c = cap * tanh(s_c * scale / cap)
//   m = the largest visible exponent of two, rounded up to an integer (power2.h)
//   p_c = 4 * 2^(exponent - m) as WeightOfScore has it, rounded to the type of V; 0 where c is not
//       visible
//   l = chain over the 64 positions of p_c with 1
//   o_v = chain over the 64 positions of p_c with v_c; where c is not visible v_c counts as 0
//   join, with m = -infinity and l = o = +0 before the first page; a page without visible positions
//       changes nothing (m_page = -infinity, l_page = o_page = 0):
//       m_page > m:  a = 2^(m - m_page), l = fma(l, a, l_page), o = fma(o, a, o_page), m = m_page
//       otherwise:   a = 2^(m_page - m), l = fma(l_page, a, l), o = fma(o_page, a, o)
//   out = o * (1 / l) + 0, so that no zero has a sign
// No number of splits enters: any division of the pages among blocks gives these bits. Maxima are
// integers, so that the factor of a join costs no polynomial.
// The scale is positive, and exponents are below 2^17.
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
