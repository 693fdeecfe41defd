// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "cli/serve/serve_options.h"

namespace reprise::cli {

// The memory that the models of one server share: a budget for weights and state on every device
// that one of them is to lie on.
class DeviceBudgets {
 public:
  struct Budget {
    size_t bytes = 0;
    size_t working = 0;  // that one model takes of it to compute in
  };
  using Map = std::map<std::string, Budget, std::less<>>;  // by the name of the device

  // One model alone: it has what is free.
  DeviceBudgets() = default;
  explicit DeviceBudgets(Map budgets) : budgets_(std::move(budgets)) {}
  // Looks at every device that one of `models` names, or `server`, if further ones may come. The
  // CPU's budget is --memory-mib, or four fifths of what is available; a GPU's is --vram-mib, else
  // --memory-mib, else nearly all that is free there.
  static Result<DeviceBudgets> Open(const ServeOptions& server,
                                    std::span<const ServeOptions> models);

  bool shared() const { return !budgets_.empty(); }
  // The device that a model is to lie on: "cpu" or "cuda:0". Fails if it names several, or one
  // without a budget.
  Result<std::string> DeviceOf(const ModelOptions& model) const;
  // REQUIRES: DeviceOf has named it.
  const Budget& Of(std::string_view device) const { return budgets_.find(device)->second; }
  const Map& all() const { return budgets_; }

 private:
  Map budgets_;
  std::string auto_ = "cpu";  // what --device auto takes on this machine
};

}  // namespace reprise::cli
