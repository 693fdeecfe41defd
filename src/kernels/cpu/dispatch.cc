// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dispatch.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/features.h"
#if defined(__x86_64__)
#include "kernels/cpu/avx512_vnni/matrix_panels.h"
#endif
#include "tensor/dtype.h"

namespace reprise::cpu {
namespace {

using Overlay = void (*)(KernelTable*);

struct Step {
  const char* name;
  bool supported;
  Overlay matrix;
  Overlay floats;  // null: this ISA has nothing to add
};

#if defined(__x86_64__)
void OverlayVnni(KernelTable* table) {
  OverlayAvx512VnniMatrix(table);
  OverlayVnniPanels(table);
}
#endif

// Slowest first; a later step overwrites only the entries it improves.
std::vector<Step> Steps() {
  const CpuFeatures& cpu = Features();
  static_cast<void>(cpu);
  return {
      {"scalar", true, OverlayScalarMatrix, OverlayScalarFloat},
#if defined(__x86_64__)
      {"avx2", cpu.avx2, OverlayAvx2Matrix, OverlayAvx2Float},
      {"avx512", cpu.avx512, OverlayAvx512Matrix, OverlayAvx512Float},
      {"avx512_vnni", cpu.avx512_vnni, OverlayVnni, nullptr},
      {"amx", cpu.amx, OverlayAmxMatrix, nullptr},
#elif defined(__aarch64__)
      {"neon", cpu.neon, OverlayNeonMatrix, OverlayNeonFloat},
      {"dotprod", cpu.dotprod, OverlayDotprodMatrix, nullptr},
      {"i8mm", cpu.i8mm, OverlayI8mmMatrix, nullptr},
#endif
  };
}

std::string NamesOf(const std::vector<Step>& steps) {
  std::string names;
  for (const Step& step : steps) {
    if (step.supported) names += (names.empty() ? "" : ", ") + std::string(step.name);
  }
  return names;
}

// The steps that `isas` selects, scalar first.
Result<std::vector<Step>> Select(std::string_view isas) {
  const std::vector<Step> steps = Steps();
  std::vector<bool> wanted(steps.size(), isas.empty() || isas == "all");
  wanted[0] = true;
  std::string_view rest = isas == "all" ? std::string_view() : isas;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(name.size() < rest.size() ? name.size() + 1 : name.size());
    size_t i = 0;
    while (i < steps.size() && (name != steps[i].name || !steps[i].supported)) ++i;
    if (i == steps.size()) {
      return InvalidArgument(
          "instruction set '" + std::string(name) +
          "' is unknown or not supported by this CPU; choose from: " + NamesOf(steps));
    }
    wanted[i] = true;
  }
  std::vector<Step> selected;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (wanted[i] && steps[i].supported) selected.push_back(steps[i]);
  }
  return selected;
}

void Apply(const Step& step, KernelTable* table) {
  step.matrix(table);
  if (step.floats != nullptr) step.floats(table);
}

struct NamedEntry {
  const char* name;
  size_t offset;
};

#define REPRISE_ENTRY(field) {#field, offsetof(KernelTable, field)}
constexpr NamedEntry kEntries[] = {
    REPRISE_ENTRY(quantise_32),
    REPRISE_ENTRY(quantise_256),
    REPRISE_ENTRY(rms_norm),
    REPRISE_ENTRY(l2_norm),
    REPRISE_ENTRY(layer_norm),
    REPRISE_ENTRY(swiglu),
    REPRISE_ENTRY(clamped_swiglu),
    REPRISE_ENTRY(silu),
    REPRISE_ENTRY(sigmoid_mul),
    REPRISE_ENTRY(add),
    REPRISE_ENTRY(mul),
    REPRISE_ENTRY(scale),
    REPRISE_ENTRY(scale_add),
    REPRISE_ENTRY(geglu),
    REPRISE_ENTRY(gelu),
    REPRISE_ENTRY(gelu_erf),
    REPRISE_ENTRY(relu_squared),
    REPRISE_ENTRY(softcap),
    REPRISE_ENTRY(softplus),
    REPRISE_ENTRY(sigmoid),
    REPRISE_ENTRY(lerp),
    REPRISE_ENTRY(rwkv_decay),
    REPRISE_ENTRY(dot_scale_add),
    REPRISE_ENTRY(exp),
    REPRISE_ENTRY(softmax),
    REPRISE_ENTRY(rope),
    REPRISE_ENTRY(rope_angles),
    REPRISE_ENTRY(f32_to_f16),
    REPRISE_ENTRY(f16_to_f32),
    REPRISE_ENTRY(bf16_to_f32),
    REPRISE_ENTRY(f32_to_bf16),
    REPRISE_ENTRY(attend_f32),
    REPRISE_ENTRY(attend_f16),
    REPRISE_ENTRY(attend_bf16),
    REPRISE_ENTRY(attend_q8_0),
    REPRISE_ENTRY(weigh_keys_f32),
    REPRISE_ENTRY(weigh_keys_f16),
    REPRISE_ENTRY(weigh_keys_bf16),
    REPRISE_ENTRY(weigh_keys_q8_0),
    REPRISE_ENTRY(store_keys_f32),
    REPRISE_ENTRY(store_keys_f16),
    REPRISE_ENTRY(store_keys_bf16),
    REPRISE_ENTRY(store_keys_q8_0),
    REPRISE_ENTRY(store_values_q8_0),
    REPRISE_ENTRY(attend_merge),
    REPRISE_ENTRY(short_conv),
    REPRISE_ENTRY(delta_gates),
    REPRISE_ENTRY(gated_delta),
    REPRISE_ENTRY(scan.key_decay_delta),
    REPRISE_ENTRY(scan.ssd),
    REPRISE_ENTRY(scan.wkv7),
    REPRISE_ENTRY(scan.selective),
    REPRISE_ENTRY(scan.rg_lru),
    REPRISE_ENTRY(scan.decay),
    REPRISE_ENTRY(scan.ssd_gates),
};
#undef REPRISE_ENTRY

}  // namespace

Result<KernelTable> BuildTable(std::string_view isas) {
  REPRISE_ASSIGN(const std::vector<Step> steps, Select(isas));
  KernelTable table = {};
  for (const Step& step : steps) Apply(step, &table);
  return table;
}

const KernelTable& ActiveTable() {
  static const KernelTable table = [] {
    const char* isas = std::getenv("REPRISE_ISA");
    Result<KernelTable> built = BuildTable(isas == nullptr ? "" : isas);
    if (!built.ok()) {
      std::fprintf(stderr, "REPRISE_ISA: %s\n", built.status().message().c_str());
      std::exit(1);
    }
    return *built;
  }();
  return table;
}

std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const Step& step : Steps()) {
    if (step.supported) names.push_back(step.name);
  }
  return names;
}

std::vector<ActiveEntry> DescribeTable(std::string_view isas) {
  const auto steps = Select(isas);
  CHECK(steps.ok());
  KernelTable table = {};
  const size_t entry_count = std::size(kEntries);
  std::vector<const char*> setters(entry_count, "none");
  for (const Step& step : *steps) {
    const KernelTable before = table;
    Apply(step, &table);
    for (size_t i = 0; i < entry_count; ++i) {
      const char* was = reinterpret_cast<const char*>(&before) + kEntries[i].offset;
      const char* is = reinterpret_cast<const char*>(&table) + kEntries[i].offset;
      if (std::memcmp(was, is, sizeof(void (*)())) != 0) setters[i] = step.name;
    }
  }
  std::vector<ActiveEntry> entries;
  for (int i = 0; i < kDTypeCount; ++i) {
    const MatrixKernel& kernel = table.matrix[i];
    if (kernel.run == nullptr) continue;
    entries.push_back({"matrix " + std::string(NameOf(static_cast<DType>(i))), kernel.isa});
  }
  for (size_t i = 0; i < entry_count; ++i) entries.push_back({kEntries[i].name, setters[i]});
  return entries;
}

}  // namespace reprise::cpu
