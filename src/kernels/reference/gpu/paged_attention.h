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
//   pages are joined in groups: pages 16 i to 16 i + 15 of the sequence, from its first one on, are
//       group i. The pages of a group are joined in order, then the groups in order, both so, with
//       m = -infinity and l = o = +0 before the first; what has no visible positions changes
//       nothing (m_next = -infinity, l_next = o_next = 0):
//       m_next > m:  a = 2^(m - m_next), l = fma(l, a, l_next), o = fma(o, a, o_next), m = m_next
//       otherwise:   a = 2^(m_next - m), l = fma(l_next, a, l), o = fma(o_next, a, o)
//   where the head has a sink, l = SumWithSink(l, sink, m) (power2.h)
//   out = o * (1 / l) + 0, so that no zero has a sign
// No number of splits enters: any division of the groups among blocks gives these bits. A group is
// what a block leaves to be joined by others, so that little is left; and it is a place in the
// sequence, so that every query has the same. Maxima are integers, so that the factor of a join
// costs no polynomial.
// The scale is positive, and exponents are below 2^17.
namespace reprise::reference {

inline constexpr int kPage = 64;
inline constexpr int kPagesOfGroup = 16;

struct PageView {
  const uint16_t* k = nullptr;  // [64, head_dim]
  const uint16_t* v = nullptr;  // [64, v_stride], the first value_dim of each row
  int first = 0;                // visible: [first, end)
  int end = kPage;
};
struct PagedQuery {
  TensorCore core;
  Half type = Half::kF16;
  int head_dim = 0;
  int value_dim = 0;
  int v_stride = 0;
  float scale = 1;
  float softcap = 0;            // 0: none
  int first_page = 0;           // of the sequence: what the first of the pages is
  const float* sink = nullptr;  // of the head, or null
};
void AttendPages(const PagedQuery& query, const float* q, std::span<const PageView> pages,
                 float* out);

}  // namespace reprise::reference
