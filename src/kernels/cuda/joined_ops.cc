// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/joined_ops.h"

#include "kernels/cuda/rows/norm.h"

namespace reprise::cuda {
namespace {

bool Same(const View& a, const View& b) {
  return a.data == b.data && a.rows == b.rows && a.cols == b.cols && a.stride == b.stride;
}

}  // namespace

void JoinedOps::Run() {
  if (products_) return RunProducts(OutputOp::kNone, {});
  if (norm_) {
    const WaitingNorm waiting = *norm_;
    norm_.reset();
    RmsNorm(stream_, waiting.x, waiting.norm.weight, 1, waiting.norm.eps, waiting.norm.h);
  }
}

void JoinedOps::RunProducts(OutputOp op, const View& sum) {
  const WaitingProducts waiting = std::move(*products_);
  products_.reset();
  FewProducts few;
  few.x = RoundedOnTheWay(norm_ ? norm_->x : waiting.x);
  if (norm_) few.norm = norm_->norm;
  norm_.reset();
  few.products = waiting.products;
  few.op = op;
  few.sum = sum;
  RunFewProducts(stream_, waiting.type, few);
}

bool JoinedOps::Norm(const View& x, const float* weight, float eps, const View& h) {
  if (!open_ || !MayNormOnTheWay(x) || !MayRoundOnTheWay(h) || x.data == h.data) return false;
  Run();
  norm_ = {x, {weight, eps, h}};
  return true;
}

bool JoinedOps::Products(Half type, const View& x, std::span<const HalfProduct> products) {
  if (!open_ || !MayRoundOnTheWay(x) || products.size() > FewProducts::kMost) return false;
  if (products_ || (norm_ && !Same(norm_->norm.h, x))) Run();
  products_ = {type, x, {products.begin(), products.end()}};
  return true;
}

bool JoinedOps::Add(const View& sum, const View& y) {
  if (!products_ || products_->products.size() != 1) return false;
  // The sum must not be what the products read.
  if (!Same(products_->products[0].out, y) || sum.data == products_->x.data || norm_) return false;
  RunProducts(OutputOp::kAdd, sum);
  return true;
}

bool JoinedOps::Gate(OutputOp op, const View& gate, const View& up, const View& y) {
  if (!products_ || products_->products.size() != 2) return false;
  const std::vector<HalfProduct>& two = products_->products;
  if (!Same(two[0].out, up) || !Same(two[1].out, gate) || !Same(gate, y)) return false;
  RunProducts(op, {});
  return true;
}

}  // namespace reprise::cuda
