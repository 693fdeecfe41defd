// SPDX-License-Identifier: Apache-2.0
#include "kernels/matrix.h"

#include <utility>

#include "base/check.h"
#include "kernels/backend.h"

namespace reprise {

Result<Matrix> Matrix::Pack(const OpContext& context, const MatrixShape& shape,
                            const std::byte* source, size_t stride) {
  REPRISE_ASSIGN(std::unique_ptr<PackedMatrix> packed, context.backend->MakeMatrix(shape));
  for (int64_t i = 0; i < shape.count; ++i) {
    const std::byte* rows = source + size_t(i * shape.rows) * stride;
    REPRISE_TRY(context.backend->PackMatrix(packed.get(), i, rows, stride));
  }
  return Matrix(std::move(packed));
}

}  // namespace reprise
