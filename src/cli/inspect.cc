// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "cli/bundled_model.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/model_outline.h"
#include "weights/checkpoint.h"
#include "weights/format/gguf.h"
#include "weights/format/safetensors.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

constexpr uint64_t kItemsShown = 8;
constexpr size_t kTextShown = 60;

struct Options {
  std::string path;
  bool tensors = true;
  std::string kv = "f16";
  int64_t context_tokens = 0;  // 0: the model's
};

// Values come from files: control characters are escaped and long texts cut.
std::string Shown(std::string_view text) {
  const bool cut = text.size() > kTextShown;
  return Quoted(text.substr(0, kTextShown)) + (cut ? "..." : "");
}

std::string Shown(const GgufValue& value) {
  std::string text = value.is_array() ? "[" : "";
  uint64_t index = 0;
  if (value.type() == GgufType::kString) {
    for (const std::string_view item : value.strings()) {
      if (index == kItemsShown) break;
      text += (index++ == 0 ? "" : ", ") + Shown(item);
    }
  } else {
    for (; index < value.size() && index < kItemsShown; ++index) {
      char number[40];
      if (const auto flag = value.BoolAt(index)) {
        std::snprintf(number, sizeof(number), "%s", *flag ? "true" : "false");
      } else if (const auto whole = value.IntAt(index)) {
        std::snprintf(number, sizeof(number), "%" PRId64, *whole);
      } else {
        std::snprintf(number, sizeof(number), "%.9g", value.NumberAt(index).value_or(0));
      }
      text += (index == 0 ? "" : ", ") + std::string(number);
    }
  }
  if (!value.is_array()) return text;
  if (value.size() > index) text += ", ... " + std::to_string(value.size()) + " in all";
  return text + "]";
}

void PrintJson(const JsonValue& value, const std::string& path) {
  switch (value.kind()) {
    case JsonValue::Kind::kObject:
      for (const JsonValue::Member& member : value.members()) {
        PrintJson(member.value, (path.empty() ? "" : path + ".") + std::string(member.key));
      }
      return;
    case JsonValue::Kind::kArray:
      std::printf("  %s: %zu items\n", Shown(path).c_str(), value.items().size());
      return;
    case JsonValue::Kind::kString:
      std::printf("  %s: %s\n", Shown(path).c_str(), Shown(value.as_string()).c_str());
      return;
    case JsonValue::Kind::kNull:
      std::printf("  %s: null\n", Shown(path).c_str());
      return;
    case JsonValue::Kind::kBool:
      std::printf("  %s: %s\n", Shown(path).c_str(), value.as_bool() ? "true" : "false");
      return;
    case JsonValue::Kind::kInt:
    case JsonValue::Kind::kDouble:
      std::printf("  %s: %.9g\n", Shown(path).c_str(), value.as_double());
      return;
  }
}

void PrintTensors(std::span<const StoredTensor> tensors, bool each) {
  struct Sum {
    size_t count = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Sum> by_type;
  uint64_t bytes = 0;
  int64_t elements = 0;
  for (const StoredTensor& tensor : tensors) {
    Sum& sum = by_type[std::string(NameOf(tensor.dtype))];
    ++sum.count;
    sum.bytes += tensor.bytes.size() + tensor.scales.size();
    bytes += tensor.bytes.size() + tensor.scales.size();
    elements += tensor.shape.elements();
  }
  std::printf("tensors: %zu, %" PRId64 " values, %s\n", tensors.size(), elements,
              FormatBytes(bytes).c_str());
  for (const auto& [type, sum] : by_type) {
    std::printf("  %-8s %5zu tensors, %s\n", type.c_str(), sum.count,
                FormatBytes(sum.bytes).c_str());
  }
  if (!each) return;
  for (const StoredTensor& tensor : tensors) {
    std::printf("  %-48s %-7s %-20s %s\n", Shown(tensor.name).c_str(),
                std::string(NameOf(tensor.dtype)).c_str(), tensor.shape.ToString().c_str(),
                FormatBytes(tensor.bytes.size() + tensor.scales.size()).c_str());
  }
}

// What the model carries from token to token, if its family is known.
void PrintState(const Checkpoint& checkpoint, DType kv, int64_t context_tokens) {
  const auto outline = ReadModelOutline(checkpoint, kv, context_tokens);
  if (!outline.ok()) {
    std::printf("state: unknown (%s)\n", outline.status().message().c_str());
    return;
  }
  const ModelCard& card = outline->card;
  const StateSpec& state = card.state;
  std::printf("family: %s, vocabulary %" PRId64 ", context %" PRId64 " tokens\n",
              card.family.c_str(), card.vocab_size, card.context_length);
  if (!card.rope_regime.empty()) std::printf("rotary regime: %s\n", card.rope_regime.c_str());
  size_t attention = 0;
  for (const LayerState& layer : state.layers) attention += layer.kind != StateKind::kRecurrent;
  std::printf("state: %zu attention and %zu recurrent layers\n", attention,
              state.layers.size() - attention);
  int window = 0;  // of all layers that have one
  for (const LayerState& layer : state.layers) window = std::max(window, layer.window);
  const uint64_t full = state.bytes_per_token(StateKind::kFullKv);
  const uint64_t windowed = state.bytes_per_token(StateKind::kWindowKv);
  const uint64_t context = uint64_t(card.context_length);
  std::printf("  per token, K/V in %s: %" PRIu64 " bytes", std::string(NameOf(kv)).c_str(), full);
  if (window != 0) std::printf(", and %" PRIu64 " of the last %d tokens", windowed, window);
  std::printf("; %s for the whole context\n",
              FormatBytes(full * context + windowed * std::min(context, uint64_t(window))).c_str());
  std::printf("  per sequence, recurrent (a snapshot): %zu bytes (%s)\n", state.state_bytes(),
              FormatBytes(state.state_bytes()).c_str());
  const ModelCard& further = outline->with_mtp;
  if (further.mtp_state) {
    std::printf(
        "drafts: by a block that predicts further tokens (MTP); K/V of it per token: "
        "%zu bytes\n",
        size_t(further.state.bytes_per_token(StateKind::kFullKv) - full));
  } else if (further.mtp_declared) {
    std::printf("drafts: %s\n", further.mtp_absent.c_str());
  }
}

Status InspectSafetensors(const Options& options) {
  REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(options.path));
  const auto tensors = SafetensorsFile::Parse(file.bytes());
  if (!tensors.ok()) return tensors.status().Annotate(options.path);
  PrintTensors(tensors->tensors(), options.tensors);
  for (const SafetensorsFile::Foreign& tensor : tensors->foreign()) {
    std::printf("  %-48s %-7s %-20s %s\n", Shown(tensor.name).c_str(),
                std::string(tensor.type).c_str(), tensor.shape.ToString().c_str(),
                FormatBytes(tensor.bytes.size()).c_str());
  }
  return OkStatus();
}

Status Run(const Options& options) {
  if (options.path.ends_with(".safetensors")) return InspectSafetensors(options);
  REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(options.path));
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(checkpoint.files()[0]));
    REPRISE_ASSIGN(const GgufFile gguf, GgufFile::Parse(file.bytes()));
    std::printf("GGUF version %u, %zu file(s)\nmetadata:\n", gguf.version(),
                checkpoint.files().size());
    for (const GgufFile::Entry& entry : gguf.entries()) {
      std::printf("  %s: %s\n", Shown(entry.key).c_str(), Shown(entry.value).c_str());
    }
  } else {
    std::printf("Hugging Face folder, %zu file(s) of tensors\nconfig.json:\n",
                checkpoint.files().size());
    REPRISE_ASSIGN(const std::string text, checkpoint.ReadText("config.json"));
    REPRISE_ASSIGN(const JsonDocument config, ParseConfigJson(text));
    PrintJson(config.root(), "");
  }
  PrintTensors(checkpoint.tensors(), options.tensors);
  PrintState(checkpoint, KvType(options.kv), options.context_tokens);
  return OkStatus();
}

}  // namespace

void DefineInspect(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("FILE,-m,--model", &options->path,
             "GGUF file, safetensors file or Hugging Face folder (default: the bundled model)");
  flags->Add("--tensors,!--no-tensors", &options->tensors, "list every tensor (default)");
  flags->Add("--kv", &options->kv, "type of K/V to reckon with: f16, bf16, f32 or q8_0",
             {.one_of = {"f16", "bf16", "f32", "q8_0"}});
  flags->Add("-c,--context", &options->context_tokens,
             "tokens of the longest request to reckon with (default: the model's)",
             {.min = 1, .max = 1 << 24});
  flags->SetAction([options]() -> Status {
    REPRISE_ASSIGN(options->path, FindModel(options->path));
    return Run(*options);
  });
}

}  // namespace reprise::cli
